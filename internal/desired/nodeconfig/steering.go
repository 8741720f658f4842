package nodeconfig

import (
	"cmp"
	"math"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/snatport"
)

// Steered is a VIP as its hosts steer it, if switches may send its packets: they are to hold it, or have not been told for
// long enough that they are not. It has what muxes run, also endpoints that a host has no backend of: a switch knows no
// ports.
func Steered(s desired.State, vip model.VIP) (steering.VIP, bool) {
	names := s.SwitchesAt(vip.Address)
	if len(names) == 0 {
		return steering.VIP{}, false
	}
	steered := steering.VIP{Address: vip.Address, Ping: vip.Ping != model.PingIgnore, ByHost: vip.Hardware != nil && vip.Hardware.ByHost}
	for _, name := range names {
		if n, there := s.Nodes.Get(name); there && n.Role == model.RoleSwitch {
			steered.Switches = append(steered.Switches, n.Addresses...)
		}
	}
	for _, e := range vip.Endpoints {
		steered.Endpoints = append(steered.Endpoints, steeredEndpoint(s, vip, e))
		for _, b := range e.Backends {
			steered.Peers = append(steered.Peers, b.TunnelAddress())
			// From a tunnel of the other family a host steers by an address of its own.
			steered.Peers = append(steered.Peers, s.Nodes.At(b.Host).Addresses...)
		}
	}
	if vip.SNAT != nil {
		steered.Endpoints = append(steered.Endpoints, steeredPorts(s, vip))
	}
	for _, addresses := range []*[]netip.Addr{&steered.Switches, &steered.Peers} {
		slices.SortFunc(*addresses, netip.Addr.Compare)
		*addresses = slices.Compact(*addresses)
	}
	slices.SortFunc(steered.Endpoints, func(a, b steering.Endpoint) int { return a.Key.Compare(b.Key) })
	return steered, true
}

// steeredPorts are the ports of workloads that leave as the VIP: hosts send on what comes back to them. A workload's slot is
// its lowest range, which is no other one's: what others have or lose does not change it. Port 0 is in no range, and so 0 is
// no slot. Of a range that a restore gave twice the first workload is told until one has lost it.
func steeredPorts(s desired.State, vip model.VIP) steering.Endpoint {
	ports := steering.Endpoint{
		Key: steering.Ports(vip.Address), Buckets: make([]model.Slot, model.RangeOf(math.MaxUint16)+1), Cookies: model.CookiesOff,
	}
	for key := range snatport.KeysOf(vip) {
		w, _ := s.Ports.Client(key)
		slot := model.Slot(0)
		for _, r := range s.Ports.At(key).Ranges {
			if r == 0 || ports.Buckets[r] != 0 {
				continue
			}
			if slot == 0 {
				slot = model.Slot(r)
				ports.Backends = append(ports.Backends, steering.Backend{Slot: slot, Tunnel: w.TunnelAddress()})
			}
			ports.Buckets[r] = slot
		}
	}
	slices.SortFunc(ports.Backends, func(a, b steering.Backend) int { return cmp.Compare(a.Slot, b.Slot) })
	return ports
}

func steeredEndpoint(s desired.State, vip model.VIP, e model.Endpoint) steering.Endpoint {
	mux := MuxEndpoint(s, vip, e)
	steered := steering.Endpoint{
		Key: mux.Key, Buckets: mux.Buckets, Previous: mux.Previous, Cookies: mux.Cookies, Affinity: mux.Affinity,
		LocalUDP: e.Protocol == model.UDP && vip.Hardware != nil && vip.Hardware.UDP == model.UDPLocal,
	}
	for _, b := range mux.Backends {
		steered.Backends = append(steered.Backends, steering.Backend{Slot: b.Slot, Tunnel: b.Tunnel, Down: b.Down})
	}
	return steered
}
