package overlay

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/pin"
)

// Names of pinned links. Those of workloads' interfaces end in the ifindex.
const (
	fromUnderlay = "from_underlay"
	toUnderlay   = "to_underlay"
	serverPrefix = "from_server_"
	clientPrefix = "from_client_"
)

// programOf is the program that a pinned link runs; empty: no link has that name.
func programOf(name string) string {
	switch {
	case name == fromUnderlay, name == toUnderlay:
		return name
	case strings.HasPrefix(name, serverPrefix):
		return "from_server"
	case strings.HasPrefix(name, clientPrefix):
		return "from_client"
	}
	return ""
}

// links attach programs, and are pinned.
type links struct {
	folder  *pin.Folder
	objects *overlayObjects
}

// SetUplink says where VXLAN comes by. An interface that was made anew gets its programs back.
func (d *Datapath) SetUplink(ifindex int, mtu uint32) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var s overlayOverlaySettings
	if err := d.objects.Settings.Get(&s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	d.config.Uplink, d.config.MTU = ifindex, mtu
	s.Uplink, s.Mtu, s.UplinkMac = uint32(ifindex), mtu, macOf(ifindex)
	if err := d.objects.Settings.Set(&s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	if d.folder == nil {
		return nil
	}
	return d.links().attachUplink(ifindex)
}

// macOf is an interface's Ethernet address; zero: it has none, or has vanished.
func macOf(ifindex int) (mac [6]byte) {
	if i, err := net.InterfaceByIndex(ifindex); err == nil {
		copy(mac[:], i.HardwareAddr)
	}
	return mac
}

func (d *Datapath) links() links { return links{d.folder, &d.objects} }

// SetInterfaces has the programs run at exactly the host-side interfaces of workloads that are named. One that can't be
// had, because it has just vanished, is an error, but the others are set.
func (d *Datapath) SetInterfaces(ifindexes []int) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.links().setInterfaces(serverPrefix, ifindexes)
}

// attachUplink has the programs run before all others of the interface: what is not ours they pass on.
func (l links) attachUplink(ifindex int) error {
	return errors.Join(
		l.attach(toUnderlay, ifindex, l.objects.ToUnderlay, ebpf.AttachTCXEgress),
		l.attach(fromUnderlay, ifindex, l.objects.FromUnderlay, ebpf.AttachTCXIngress))
}

func (l links) attach(name string, ifindex int, program *ebpf.Program, at ebpf.AttachType) error {
	return l.folder.Attach(name, link.TCXOptions{Interface: ifindex, Program: program, Attach: at, Anchor: link.Head()})
}

// ofInterface is the program of links with that prefix.
func (l links) ofInterface(prefix string) *ebpf.Program {
	if prefix == clientPrefix {
		return l.objects.FromClient
	}
	return l.objects.FromServer
}

func (l links) setInterfaces(prefix string, ifindexes []int) error {
	var failed []error
	for _, ifindex := range ifindexes {
		failed = append(failed, l.attach(prefix+strconv.Itoa(ifindex), ifindex, l.ofInterface(prefix), ebpf.AttachTCXIngress))
	}
	live, err := l.interfaces(prefix)
	failed = append(failed, err)
	for _, ifindex := range live {
		if !slices.Contains(ifindexes, ifindex) {
			failed = append(failed, l.folder.Detach(prefix+strconv.Itoa(ifindex)))
		}
	}
	return errors.Join(failed...)
}

// interfaces are those that have links with that prefix.
func (l links) interfaces(prefix string) ([]int, error) {
	names, err := l.folder.Names(prefix)
	if err != nil {
		return nil, err
	}
	var all []int
	for _, name := range names {
		ifindex, err := strconv.Atoi(strings.TrimPrefix(name, prefix))
		if err != nil {
			return nil, fmt.Errorf("read link %s: %w", name, err)
		}
		all = append(all, ifindex)
	}
	return all, nil
}

// updateInterfaces has the links of an earlier process run this one's program, and removes those whose interface has
// vanished meanwhile.
func (l links) updateInterfaces(prefix string, log *slog.Logger) error {
	live, err := l.interfaces(prefix)
	if err != nil {
		return err
	}
	for _, ifindex := range live {
		name := prefix + strconv.Itoa(ifindex)
		if err := l.attach(name, ifindex, l.ofInterface(prefix), ebpf.AttachTCXIngress); err != nil {
			log.Warn("workload's interface is gone", "ifindex", ifindex, "err", err)
			if err := l.folder.Detach(name); err != nil {
				return err
			}
		}
	}
	return nil
}
