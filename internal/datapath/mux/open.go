package mux

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/pin"
)

// linkPin is the attachment's pin, beside those of tables and programs.
const linkPin = "link"

// Open loads the data plane and attaches it to the interface, or adopts what is pinned. When the pinned
// tables have another layout or size, they go on forwarding until new ones are filled and TakeOver is
// called. It fails when another process has the data plane open, and when what is pinned is attached to
// another interface.
func Open(c Config) (*Datapath, error) {
	sizes, err := c.sizes()
	if err != nil {
		return nil, err
	}
	spec, err := sizes.Spec()
	if err != nil {
		return nil, err
	}
	return open(c, sizes, spec)
}

func open(c Config, sizes bpf.Sizes, spec *ebpf.CollectionSpec) (_ *Datapath, err error) {
	iface, err := net.InterfaceByName(c.Interface)
	if err != nil {
		return nil, fmt.Errorf("find interface %q: %w", c.Interface, err)
	}
	folder, err := pin.Open(c.PinPath)
	if err != nil {
		return nil, err
	}
	d := newDatapath(sizes, c.Log)
	d.folder = folder
	defer func() {
		if err != nil {
			_ = d.Close()
		}
	}()
	if folder.HasLive() {
		err = d.adopt(spec, iface, c.Mode)
		if errors.Is(err, bpf.ErrLayout) {
			err = d.migrate(spec, iface, c.Mode, err)
		}
	} else {
		err = d.create(spec, iface, c.Mode)
	}
	if err != nil {
		return nil, err
	}
	if _, d.mode, err = attachment(d.link); err == nil {
		d.switchOffloads(iface.Name, d.mode)
	}
	return d, err
}

// create makes a new data plane. Until it is published it goes when this process ends; from then on it
// stays.
func (d *Datapath) create(spec *ebpf.CollectionSpec, iface *net.Interface, mode Mode) error {
	o, err := bpf.Load(spec, nil)
	if err != nil {
		return err
	}
	d.tables, d.programs = o.Tables, o.Programs
	return d.folder.Publish(func(folder string) (err error) {
		if err := d.tables.Pin(folder); err != nil {
			return err
		}
		if err := d.programs.Pin(folder); err != nil {
			return err
		}
		if d.link, err = attach(d.programs.Program, iface, mode, d.log); err != nil {
			return err
		}
		if err := d.link.Pin(filepath.Join(folder, linkPin)); err != nil {
			return fmt.Errorf("pin attachment: %w", err)
		}
		return nil
	})
}

// adopt goes on with the pinned data plane, whose program it replaces when ours is another.
func (d *Datapath) adopt(spec *ebpf.CollectionSpec, iface *net.Interface, mode Mode) error {
	pinned, err := bpf.OpenTables(d.folder.Live(""), spec, true, ebpf.LoadPinOptions{})
	if err == nil {
		err = d.checkPins(&pinned)
	}
	if err != nil {
		return fmt.Errorf("adopt data plane of %s: %w", d.folder, err)
	}
	replace, err := d.openPrograms(spec, &pinned)
	_ = pinned.Close() // loading made handles of its own
	if err != nil {
		return err
	}
	if err := d.adoptLink(iface, mode); err != nil {
		return err
	}
	if err := d.adoptPrograms(replace); err != nil {
		return err
	}
	return d.readLive()
}

// checkPins refuses live pins that are none of ours: a version with more tables than this one has made
// them.
func (d *Datapath) checkPins(t *bpf.Tables) error {
	names, err := d.folder.Names("")
	if err != nil {
		return err
	}
	known := map[string]bool{bpf.ProgramPin: true, bpf.SlowpathPin: true, linkPin: true}
	for _, table := range t.Pinned() {
		known[table.Pin] = true
	}
	for _, name := range names {
		if !known[strings.TrimSuffix(name, halfMade)] {
			return errors.Join(fmt.Errorf("open table %s: we have none: %w", name, bpf.ErrLayout), t.Close())
		}
	}
	return nil
}

func (d *Datapath) adoptLink(iface *net.Interface, mode Mode) error {
	switch index, err := d.openLink(); {
	case err != nil:
		return err
	case index == 0: // the interface that it was attached to is gone
		d.log.Warn("interface was replaced, attaching anew", "interface", iface.Name)
		return d.reattach(d.folder.Live(linkPin), iface, mode)
	case index != iface.Index:
		return d.attachedElsewhere(index, iface)
	}
	return nil
}

func (d *Datapath) reattach(path string, iface *net.Interface, mode Mode) error {
	fresh, err := attach(d.programs.Program, iface, mode, d.log)
	if err != nil {
		return err
	}
	_ = d.link.Close()
	d.link = fresh
	return repin(fresh, path)
}

// halfMade ends the name of a pin that is about to take another's place; a bpffs takes no dots.
const halfMade = "-next"

// repin pins p at path in place of what is there.
func repin(p pinnable, path string) error {
	if err := halfPin(p, path); err != nil {
		return err
	}
	if err := os.Rename(path+halfMade, path); err != nil {
		return fmt.Errorf("replace pinned %s: %w", filepath.Base(path), err)
	}
	return nil
}

// halfPin pins p beside path.
func halfPin(p pinnable, path string) error {
	_ = os.Remove(path + halfMade)
	if err := p.Pin(path + halfMade); err != nil {
		return fmt.Errorf("pin %s: %w", filepath.Base(path), err)
	}
	return nil
}

type pinnable interface{ Pin(string) error }

func attach(p *ebpf.Program, iface *net.Interface, mode Mode, log *slog.Logger) (link.Link, error) {
	options := link.XDPOptions{Program: p, Interface: iface.Index, Flags: link.XDPDriverMode}
	if mode == Generic {
		options.Flags = link.XDPGenericMode
	}
	attached, err := link.AttachXDP(options)
	if err != nil && (mode == Auto || mode == "") && !errors.Is(err, unix.EBUSY) {
		log.Warn("driver has no native XDP, falling back to generic: expect a fraction of the speed",
			"interface", iface.Name, "err", err)
		options.Flags = link.XDPGenericMode
		attached, err = link.AttachXDP(options)
	}
	if errors.Is(err, unix.EBUSY) {
		return nil, fmt.Errorf("attach xdp to %s: another program is attached; remove it first: %w", iface.Name, err)
	}
	if err != nil {
		return nil, fmt.Errorf("attach xdp to %s in mode %s: %w", iface.Name, mode, err)
	}
	return attached, nil
}

// attachment tells the interface and mode of an attached program.
func attachment(l link.Link) (iface string, mode Mode, err error) {
	info, err := l.Info()
	if err != nil {
		return "", "", fmt.Errorf("read attachment: %w", err)
	}
	device, err := netlink.LinkByIndex(int(info.XDP().Ifindex))
	if err != nil {
		return "", "", fmt.Errorf("find interface %d: %w", info.XDP().Ifindex, err)
	}
	attributes := device.Attrs()
	if attributes.Xdp != nil && attributes.Xdp.AttachMode == nl.XDP_ATTACHED_SKB {
		return attributes.Name, Generic, nil
	}
	return attributes.Name, Native, nil
}
