package attachment

import (
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"sync"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/pin"
)

// found is what the data plane must know of the interface towards the network.
type found struct {
	index     int
	mtu       int
	addresses []netip.Addr
}

func findUplink(name string) (found, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return found{}, fmt.Errorf("find uplink %q: %w", name, err)
	}
	if len(iface.HardwareAddr) != 6 {
		return found{}, fmt.Errorf("use uplink %s: is not an Ethernet interface", name)
	}
	u := found{index: iface.Index, mtu: iface.MTU}
	addresses, err := iface.Addrs()
	if err != nil {
		return found{}, fmt.Errorf("read addresses of uplink %s: %w", name, err)
	}
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			u.addresses = append(u.addresses, prefix.Addr())
		}
	}
	return u, nil
}

// first is the first address of a family, or the zero Addr.
func (u found) first(family func(netip.Addr) bool) netip.Addr {
	for _, a := range u.addresses {
		if family(a) {
			return a
		}
	}
	return netip.Addr{}
}

// Config is what the interfaces' programs need of the data plane.
type Config struct {
	Uplink string // interface
	// Settings writes those settings that are not the uplink's, whenever the uplink's are written.
	Settings func(*bpf.AgentAgentSettings)
	Objects  *bpf.AgentObjects
	Folder   *pin.Folder // of links
	Lock     *sync.Mutex // over tables and settings
	Log      *slog.Logger
}

// CheckUplink says why an interface can't be the uplink.
func CheckUplink(name string) error {
	_, err := findUplink(name)
	return err
}

// Uplink is the interface towards the network, which muxes' packets arrive on.
type Uplink struct{ c Config }

// NewUplink is attached to nothing yet.
func NewUplink(c Config) *Uplink { return &Uplink{c} }

// Refresh reads the uplink again: its MTU bounds the MSS, and an interface that was made anew
// gets its programs back. Call it when the uplink has changed.
func (u *Uplink) Refresh() error {
	now, err := findUplink(u.c.Uplink)
	if err != nil {
		return err
	}
	u.c.Lock.Lock()
	defer u.c.Lock.Unlock()
	err = bpf.ChangeSettings(u.c.Objects, func(s *bpf.AgentAgentSettings) {
		s.Uplink = uint32(now.index)
		s.Mtu = uint32(now.mtu)
		s.Address4 = bpf.ToAddress(now.first(netip.Addr.Is4))
		s.Address6 = bpf.ToAddress(now.first(netip.Addr.Is6))
		u.c.Settings(s)
	})
	if err != nil {
		return err
	}
	return errors.Join(
		u.c.Folder.Attach(FromUplink, link.TCXOptions{Interface: now.index, Program: u.c.Objects.FromUplink, Attach: ebpf.AttachTCXIngress}),
		u.c.Folder.Attach(ToUplink, link.TCXOptions{Interface: now.index, Program: u.c.Objects.ToUplink, Attach: ebpf.AttachTCXEgress}))
}

// MSS is what a workload's SYN of a family may announce; 0: not known.
func (u *Uplink) MSS(v6 bool) int {
	var s bpf.AgentAgentSettings
	if err := u.c.Objects.Settings.Get(&s); err != nil {
		return 0
	}
	if v6 {
		return int(s.Mss6)
	}
	return int(s.Mss4)
}
