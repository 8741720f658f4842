package agent

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// uplink is what the data plane must know of the interface towards the network.
type uplink struct {
	index     int
	mtu       int
	addresses []netip.Addr
}

func findUplink(name string) (uplink, error) {
	iface, err := net.InterfaceByName(name)
	if err != nil {
		return uplink{}, fmt.Errorf("find uplink %q: %w", name, err)
	}
	if len(iface.HardwareAddr) != 6 {
		return uplink{}, fmt.Errorf("use uplink %s: is not an Ethernet interface", name)
	}
	found := uplink{index: iface.Index, mtu: iface.MTU}
	addresses, err := iface.Addrs()
	if err != nil {
		return uplink{}, fmt.Errorf("read addresses of uplink %s: %w", name, err)
	}
	for _, a := range addresses {
		prefix, err := netip.ParsePrefix(a.String())
		if err == nil && !prefix.Addr().IsLinkLocalUnicast() {
			found.addresses = append(found.addresses, prefix.Addr())
		}
	}
	return found, nil
}

// first is the first address of a family, or the zero Addr.
func (u uplink) first(family func(netip.Addr) bool) netip.Addr {
	for _, a := range u.addresses {
		if family(a) {
			return a
		}
	}
	return netip.Addr{}
}

// Refresh reads the uplink again: its MTU bounds the MSS, and an interface that was made anew
// gets its programs back. Call it when the uplink has changed.
func (d *Datapath) Refresh() error {
	found, err := findUplink(d.config.Uplink)
	if err != nil {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.useUplink(found)
}

func (d *Datapath) useUplink(u uplink) error {
	takeOver := d.takeOver()
	err := d.changeSettings(func(s *bpf.AgentAgentSettings) {
		s.TakeOver = takeOver
		s.Uplink = uint32(u.index)
		s.Mtu = uint32(u.mtu)
		s.Address4 = bpf.ToAddress(u.first(netip.Addr.Is4))
		s.Address6 = bpf.ToAddress(u.first(netip.Addr.Is6))
		s.CookieScale = d.cookieScale
		s.SnatFlows, s.SnatQueueLimit = uint32(d.config.MaxSNATFlows/2), uint32(d.config.MaxQueued)
		s.CheckSources = 1
		if d.config.AnySource {
			s.CheckSources = 0
		}
	})
	if err != nil {
		return err
	}
	return errors.Join(
		d.attach("from_uplink", u.index, d.objects.FromUplink, ebpf.AttachTCXIngress),
		d.attach("to_uplink", u.index, d.objects.ToUplink, ebpf.AttachTCXEgress))
}

// MTU is that of the uplink.
func (d *Datapath) MTU() int {
	var s bpf.AgentAgentSettings
	if err := d.objects.Settings.Get(&s); err != nil {
		return 0
	}
	return int(s.Mtu)
}

// SetGeneration notes which generation the tables hold.
func (d *Datapath) SetGeneration(g model.Generation) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changeSettings(func(s *bpf.AgentAgentSettings) { s.Generation = uint64(g) })
}

// Generation is what SetGeneration noted last, perhaps before a restart; 0 if never.
func (d *Datapath) Generation() (model.Generation, error) {
	var s bpf.AgentAgentSettings
	if err := d.objects.Settings.Get(&s); err != nil {
		return 0, fmt.Errorf("read settings: %w", err)
	}
	return model.Generation(s.Generation), nil
}

func (d *Datapath) changeSettings(change func(*bpf.AgentAgentSettings)) error {
	var s bpf.AgentAgentSettings
	if err := d.objects.Settings.Get(&s); err != nil {
		return fmt.Errorf("read settings: %w", err)
	}
	change(&s)
	if err := d.objects.Settings.Set(&s); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	return nil
}
