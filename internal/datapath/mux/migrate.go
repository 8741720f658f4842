package mux

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path/filepath"
	"slices"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// predecessor is a live data plane whose tables ours can't be used with. It forwards on, by its own
// program and tables, which nobody writes any more, until TakeOver.
type predecessor struct {
	endpoints []model.EndpointKey // in order
	vips      []netip.Addr        // those that have none too, in order
}

// migrate makes tables of our layout beside the live ones, and loads the program with them. Nothing of it
// is attached or pinned, so that the live data plane stays whole however this process ends.
func (d *Datapath) migrate(spec *ebpf.CollectionSpec, iface *net.Interface, mode Mode, why error) error {
	index, err := d.openLink()
	switch {
	case err != nil:
		return err
	case index == 0: // the interface is gone, and with it all that the live tables were good for
		_ = d.link.Close()
		d.link = nil
		d.log.Warn("interface was replaced, beginning anew", "interface", iface.Name, "reason", why)
		return errors.Join(d.folder.Clear(), d.create(spec, iface, mode))
	case index != iface.Index:
		return d.attachedElsewhere(index, iface)
	}
	endpoints, vips, err := endpointsOf(d.folder.Live("endpoints"))
	if err != nil {
		return fmt.Errorf("%w: %w, and which VIPs they hold can't be read: %w", why, bpf.ErrLayout, err)
	}
	pinned, err := ebpf.LoadPinnedProgram(d.folder.Live(bpf.ProgramPin), nil)
	if err != nil {
		return fmt.Errorf("open pinned program: %w", err)
	}
	err = d.restore(pinned)
	_ = pinned.Close()
	if err != nil {
		return err
	}
	o, err := bpf.Load(spec, nil)
	if err != nil {
		return err
	}
	d.tables, d.programs = o.Tables, o.Programs
	d.predecessor = &predecessor{endpoints: endpoints, vips: vips}
	d.log.Info("live tables have another layout: they forward on until new ones are filled",
		"reason", why, "endpoints", len(endpoints))
	return nil
}

// endpointsOf lists the endpoints, and the VIPs, of a pinned table of any layout whose keys have the members
// that ours have.
func endpointsOf(path string) (endpoints []model.EndpointKey, vips []netip.Addr, err error) {
	table, err := ebpf.LoadPinnedMap(path, &ebpf.LoadPinOptions{ReadOnly: true})
	if err != nil {
		return nil, nil, err
	}
	defer table.Close()
	fields, err := abi.LiveFields(table, &btf.Struct{Name: "endpoint_key"})
	if err != nil {
		return nil, nil, err
	}
	members := map[string]abi.Field{}
	for _, f := range fields[0] {
		members[f.Name] = f
	}
	vip, port, protocol := members["vip"], members["port"], members["protocol"]
	if vip.Size != 16 || port.Size != 2 || protocol.Size != 1 {
		return nil, nil, fmt.Errorf("its keys are no address, port and protocol: %v", members)
	}
	key, row := make([]byte, table.KeySize()), make([]byte, table.ValueSize())
	entries := table.Iterate()
	for entries.Next(&key, &row) {
		address, _ := netip.AddrFromSlice(key[vip.Offset : vip.Offset+16])
		if key[protocol.Offset] == 0 {
			vips = append(vips, address.Unmap())
			continue
		}
		endpoints = append(endpoints, model.EndpointKey{
			VIP: address.Unmap(), Port: binary.BigEndian.Uint16(key[port.Offset:]), Protocol: model.Protocol(key[protocol.Offset]),
		})
	}
	if err := entries.Err(); err != nil {
		return nil, nil, err
	}
	slices.SortFunc(endpoints, model.EndpointKey.Compare)
	slices.SortFunc(vips, netip.Addr.Compare)
	return endpoints, vips, nil
}

// TakeOver lets the tables, which the caller has filled, take the place of those of another layout. From
// one packet to the next the attached program is ours, with our tables. Without a predecessor it does
// nothing.
func (d *Datapath) TakeOver() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.predecessor == nil {
		return nil
	}
	err := d.folder.Replace(d.pinAll, func() error { return d.link.Update(d.programs.Program) })
	if err != nil {
		return fmt.Errorf("take over from tables of another layout: %w", err)
	}
	d.predecessor = nil
	d.log.Info("new tables forward, those of another layout are gone", "endpoints", len(d.endpoints.Live))
	return nil
}

// pinAll pins tables, program and attachment in a folder. The attachment keeps its other pin.
func (d *Datapath) pinAll(folder string) error {
	if err := d.tables.Pin(folder); err != nil {
		return err
	}
	if err := d.programs.Pin(folder); err != nil {
		return err
	}
	info, err := d.link.Info()
	if err != nil {
		return fmt.Errorf("read pinned attachment: %w", err)
	}
	again, err := link.NewFromID(info.ID) // a handle that is pinned is moved by another Pin
	if err != nil {
		return fmt.Errorf("open attachment: %w", err)
	}
	defer again.Close()
	if err := again.Pin(filepath.Join(folder, linkPin)); err != nil {
		return fmt.Errorf("pin attachment: %w", err)
	}
	return nil
}

// openLink opens the pinned attachment, and tells the interface that it is attached to: 0 if that is gone.
func (d *Datapath) openLink() (int, error) {
	attached, err := link.LoadPinnedLink(d.folder.Live(linkPin), nil)
	if err != nil {
		return 0, fmt.Errorf("open pinned attachment: %w", err)
	}
	d.link = attached
	info, err := attached.Info()
	if err != nil {
		return 0, fmt.Errorf("read pinned attachment: %w", err)
	}
	return int(info.XDP().Ifindex), nil
}

func (d *Datapath) attachedElsewhere(index int, iface *net.Interface) error {
	return fmt.Errorf("adopt data plane of %s: it is attached to interface %d, not to %s; "+
		"run `weir-mux unload` first", d.folder, index, iface.Name)
}

// restore attaches the pinned program if another is: that of a process that ended while it captured, or
// before it had taken over.
func (d *Datapath) restore(pinned *ebpf.Program) error {
	runs, err := d.link.Info()
	if err != nil {
		return fmt.Errorf("read pinned attachment: %w", err)
	}
	info, err := pinned.Info()
	if err != nil {
		return fmt.Errorf("read pinned program: %w", err)
	}
	if id, ok := info.ID(); !ok || id == runs.Program {
		return nil
	}
	d.log.Info("attaching the pinned program again: a process ended with another one attached")
	if err := d.link.Update(pinned); err != nil {
		return fmt.Errorf("attach the pinned program again: %w", err)
	}
	return nil
}
