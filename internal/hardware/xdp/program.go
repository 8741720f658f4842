package xdp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Program implements hardware.Driver.
func (d *Driver) Program(ctx context.Context, e hardware.Entry) error {
	if err := e.Validate(); err != nil {
		return err
	}
	t, err := d.current(ctx, e.VIP)
	if err != nil {
		return err
	}
	if err := t.inventory.Fits(e, d.capabilities(t)); err != nil {
		return err
	}
	before, replaces := t.inventory.Get(e.VIP)
	if replaces && before.Equal(e) {
		return nil
	}
	base, most, ok := t.room(e.Rows())
	if !ok {
		return &hardware.Refusal{VIP: e.VIP, Table: hardware.ECMP, Need: e.Rows(), Free: most}
	}
	host := bpf.SwitchHost{Base: base, Size: e.Rows(), Id: t.hosts[e.VIP].Id}
	switch {
	case len(e.Sources) > 0:
		host.Tip = bpf.SwitchTipTIP_LISTED
	case e.Inner.IsValid():
		host.Tip = bpf.SwitchTipTIP_ANY
	}
	fresh := !replaces || before.Inner != e.Inner || !slices.Equal(before.Sources, e.Sources)
	if fresh {
		if free := int(d.objects.TipSources.MaxEntries()) - t.sources; len(e.Sources) > free {
			return &hardware.Refusal{VIP: e.VIP, Reason: fmt.Sprintf("it has %d outer sources, and there is room for %d", len(e.Sources), max(free, 0))}
		}
		if host.Id, err = freeRow(func(i int) bool { return t.ids[i] }, len(t.ids)); err != nil {
			return &hardware.Refusal{VIP: e.VIP, Table: hardware.Hosts, Need: 1}
		}
	}
	if err := d.write(t, e, host, fresh); err != nil {
		d.tables = nil
		return err
	}
	if !replaces {
		t.put(e, host)
		return nil
	}
	old := t.hosts[e.VIP]
	return d.release(t, before, old, fresh, func() { t.put(e, host) })
}

// put takes over an entry that was written.
func (t *tables) put(e hardware.Entry, host bpf.SwitchHost) {
	t.inventory.Put(e)
	t.hosts[e.VIP] = host
	t.ids[host.Id] = true
	t.claim(host)
}

// write makes before it breaks: tunnels, the group, what is kept by a fresh id, the host's row.
func (d *Driver) write(t *tables, e hardware.Entry, host bpf.SwitchHost, fresh bool) error {
	indices, rows := make([]uint32, 0, host.Size), make([]uint32, 0, host.Size)
	for _, m := range e.Members {
		index, err := d.tunnel(t, row{e.Source, m.Tunnel})
		if err != nil {
			return err
		}
		t.uses[index]++
		for range m.Entries {
			indices = append(indices, host.Base+uint32(len(indices)))
			rows = append(rows, index)
		}
	}
	if _, err := d.objects.Ecmp.BatchUpdate(indices, rows, nil); err != nil {
		return fmt.Errorf("write the group of %s: %w", e.VIP, err)
	}
	if fresh {
		if err := d.objects.Inners.Update(host.Id, bpf.SwitchAddress{Words: abi.Words(e.Inner)}, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("write what is inside of %s: %w", e.VIP, err)
		}
		if err := d.writeSources(t, e, host.Id); err != nil {
			return err
		}
		zero := make([]bpf.SwitchCounter, ebpf.MustPossibleCPU())
		if err := d.objects.HostCounts.Update(host.Id, zero, ebpf.UpdateAny); err != nil {
			return fmt.Errorf("clear the counter of %s: %w", e.VIP, err)
		}
	}
	err := d.objects.Hosts.Update(bpf.SwitchAddress{Words: abi.Words(e.VIP)}, host, ebpf.UpdateAny)
	if err != nil {
		return fmt.Errorf("write the row of %s: %w", e.VIP, err)
	}
	return nil
}

// release frees the rows of a group that no host names any more, once no packet reads them, and those of its id, if that is
// free too; what takes its place is put down meanwhile.
func (d *Driver) release(t *tables, before hardware.Entry, host bpf.SwitchHost, id bool, replace func()) error {
	if err := abi.Quiesce(); err != nil {
		d.tables = nil
		return err
	}
	t.free(before, host)
	if id {
		t.ids[host.Id] = false
		if err := d.deleteSources(t, host.Id, before.Sources); err != nil {
			d.tables = nil
			return err
		}
	}
	replace()
	return nil
}

// Remove implements hardware.Driver.
func (d *Driver) Remove(ctx context.Context, vip netip.Addr) error {
	if !vip.IsValid() {
		return ctx.Err()
	}
	t, err := d.current(ctx, vip)
	if err != nil {
		return err
	}
	before, ok := t.inventory.Get(vip)
	if !ok {
		return nil
	}
	err = d.objects.Hosts.Delete(bpf.SwitchAddress{Words: abi.Words(vip)})
	if err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
		d.tables = nil
		return fmt.Errorf("delete the row of %s: %w", vip, err)
	}
	host := t.hosts[vip]
	return d.release(t, before, host, true, func() {
		t.inventory.Delete(vip)
		delete(t.hosts, vip)
	})
}

// Counters are the packets that went into tunnels, by VIP.
func (d *Driver) Counters() (map[netip.Addr]model.Counter, error) {
	t, err := d.load()
	if err != nil {
		return nil, err
	}
	all := map[netip.Addr]model.Counter{}
	for vip, host := range t.hosts {
		if all[vip], err = abi.Counter(d.objects.HostCounts, host.Id); err != nil {
			return nil, fmt.Errorf("read the counter of %s: %w", vip, err)
		}
	}
	return all, nil
}
