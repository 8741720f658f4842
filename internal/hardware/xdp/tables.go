package xdp

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/xdp/bpf"
)

// row is one of table tunnels.
type row struct{ source, destination netip.Addr }

// tables are what the maps hold, and what of them is free.
type tables struct {
	inventory hardware.Inventory
	hosts     map[netip.Addr]bpf.SwitchHost
	ecmp      []bool // which rows are in use
	tunnels   map[row]uint32
	uses      []int                   // of each tunnel, by groups
	ids       []bool                  // which rows of counters are in use
	sources   int                     // rows of outer sources that are in use
	left      map[uint32][]netip.Addr // of these, what a call that broke off has left, by id
}

// load reads the maps. Rows that make no sense, as someone else may have written them, are left out of their entry, which then
// equals none.
func (d *Driver) load() (*tables, error) {
	o := &d.objects
	t := &tables{
		hosts: map[netip.Addr]bpf.SwitchHost{}, ecmp: make([]bool, o.Ecmp.MaxEntries()), tunnels: map[row]uint32{}, left: map[uint32][]netip.Addr{},
		uses: make([]int, o.Tunnels.MaxEntries()), ids: make([]bool, o.HostCounts.MaxEntries()),
	}
	hosts, err := abi.ReadTable[bpf.SwitchAddress, bpf.SwitchHost](o.Hosts)
	if err != nil {
		return nil, fmt.Errorf("read table hosts: %w", err)
	}
	groups, tunnels := make([]uint32, o.Ecmp.MaxEntries()), make([]row, o.Tunnels.MaxEntries())
	if err := abi.EachRow(o.Ecmp, func(i uint32, tunnel uint32) { groups[i] = tunnel }); err != nil {
		return nil, fmt.Errorf("read table ecmp: %w", err)
	}
	if err := abi.EachRow(o.Tunnels, func(i uint32, r bpf.SwitchTunnel) {
		tunnels[i] = row{abi.Address(r.Source.Words), abi.Address(r.Destination.Words)}
	}); err != nil {
		return nil, fmt.Errorf("read table tunnels: %w", err)
	}
	rows, err := abi.ReadTable[bpf.SwitchTipSource, uint32](o.TipSources)
	if err != nil {
		return nil, fmt.Errorf("read table tip_sources: %w", err)
	}
	for row := range rows {
		t.left[row.Id] = append(t.left[row.Id], abi.Address(row.Address.Words))
	}
	t.sources = len(rows)
	for address, host := range hosts {
		if uint64(host.Base)+uint64(host.Size) > uint64(len(groups)) || host.Size == 0 || int(host.Id) >= len(t.ids) {
			continue
		}
		vip := abi.Address(address.Words)
		members := groups[host.Base : host.Base+host.Size]
		t.hosts[vip] = host
		t.ids[host.Id] = true
		t.claim(host)
		e := entryOf(vip, members, tunnels)
		if host.Tip != 0 {
			var inner bpf.SwitchAddress
			if err := o.Inners.Lookup(host.Id, &inner); err != nil {
				return nil, fmt.Errorf("read what is inside of %s: %w", vip, err)
			}
			e.Inner = abi.Address(inner.Words)
		}
		if host.Tip == bpf.SwitchTipTIP_LISTED {
			e.Sources = slices.SortedFunc(slices.Values(t.left[host.Id]), netip.Addr.Compare)
			delete(t.left, host.Id)
		}
		t.inventory.Put(e)
		for _, index := range distinct(members, len(tunnels)) {
			t.uses[index]++
			t.tunnels[tunnels[index]] = index
		}
	}
	return t, nil
}

// distinct returns the tunnels of a group, in order, without those that the table does not have.
func distinct(members []uint32, size int) (tunnels []uint32) {
	for i, index := range members {
		if int(index) < size && (i == 0 || members[i-1] != index) {
			tunnels = append(tunnels, index)
		}
	}
	return tunnels
}

// entryOf is the entry of a VIP by the rows of its group: those of a member lie side by side.
func entryOf(vip netip.Addr, members []uint32, tunnels []row) hardware.Entry {
	e := hardware.Entry{VIP: vip}
	for i, index := range members {
		if int(index) >= len(tunnels) {
			continue
		}
		if i > 0 && members[i-1] == index && len(e.Members) > 0 {
			e.Members[len(e.Members)-1].Entries++
			continue
		}
		e.Source = tunnels[index].source
		e.Members = append(e.Members, hardware.Member{Tunnel: tunnels[index].destination, Entries: 1})
	}
	return e
}

func (t *tables) claim(host bpf.SwitchHost) {
	for i := range host.Size {
		t.ecmp[host.Base+i] = true
	}
}

// free takes back the rows of a group.
func (t *tables) free(e hardware.Entry, host bpf.SwitchHost) {
	for i := range host.Size {
		t.ecmp[host.Base+i] = false
	}
	for _, m := range e.Members {
		r := row{e.Source, m.Tunnel}
		index := t.tunnels[r]
		if t.uses[index]--; t.uses[index] == 0 {
			delete(t.tunnels, r)
		}
	}
}

// room returns the first free rows of table ecmp that are as many; or the most that lie side by side.
func (t *tables) room(rows uint32) (base uint32, most uint32, ok bool) {
	run := uint32(0)
	for i, used := range t.ecmp {
		if used {
			run = 0
			continue
		}
		run++
		most = max(most, run)
		if run == rows {
			return uint32(i) + 1 - rows, most, true
		}
	}
	return 0, most, false
}

var errFull = errors.New("the table is full")

// freeRow returns the first row that is not in use.
func freeRow(used func(int) bool, size int) (uint32, error) {
	for i := range size {
		if !used(i) {
			return uint32(i), nil
		}
	}
	return 0, errFull
}

// tunnel returns the row of a tunnel, which it writes if there is none.
func (d *Driver) tunnel(t *tables, r row) (uint32, error) {
	if index, ok := t.tunnels[r]; ok {
		return index, nil
	}
	index, err := freeRow(func(i int) bool { return t.uses[i] > 0 }, len(t.uses))
	if err != nil {
		return 0, fmt.Errorf("add tunnel to %s: %w", r.destination, err)
	}
	value := bpf.SwitchTunnel{Source: bpf.SwitchAddress{Words: abi.Words(r.source)}, Destination: bpf.SwitchAddress{Words: abi.Words(r.destination)}}
	if err := d.objects.Tunnels.Update(index, value, ebpf.UpdateAny); err != nil {
		return 0, fmt.Errorf("write tunnel to %s: %w", r.destination, err)
	}
	t.tunnels[r] = index
	return index, nil
}
