package desired

import (
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/sorted"
)

// Usage is what a tenant has.
type Usage struct {
	VIPs, Endpoints, Backends, Ports, Prefixes uint32
	// SwitchHosts are places of VIPs in switches that their owners name, or that managers may choose, SwitchTunnels the tunnels
	// of these.
	SwitchHosts, SwitchTunnels uint32
}

// Add adds what vip has.
func (u *Usage) Add(vip model.VIP) { u.count(vip, 1) }

// Remove takes away what vip has.
func (u *Usage) Remove(vip model.VIP) { u.count(vip, -1) }

// count adds what vip has n times; n is 1 or -1.
func (u *Usage) count(vip model.VIP, n int) {
	each := uint32(n) // of -1: one less
	u.VIPs += each
	for _, e := range vip.Endpoints {
		u.Endpoints += each
		u.Backends += each * uint32(len(e.Backends))
		if e.Port == model.AllPorts {
			u.Ports += each * model.AllPortsCount
		} else {
			u.Ports += each
		}
	}
	switch places := uint32(switches(vip)); {
	case vip.InHardware() && len(vip.Hardware.TIPs) > 0: // members that a cut goes through are in two parts
		tips := uint32(len(vip.Hardware.TIPs))
		u.SwitchHosts += each * (places + tips)
		u.SwitchTunnels += each * (places*tips + uint32(tunnels(vip)) + tips - 1)
	case places > 0:
		u.SwitchHosts += each * places
		u.SwitchTunnels += each * places * uint32(tunnels(vip))
	}
}

// switches counts those that have the VIP at once, or may.
func switches(vip model.VIP) int {
	switch {
	case vip.InHardware():
		return len(vip.Hardware.Switches)
	case vip.ChosenSwitches():
		return max(vip.Hardware.Spread, 1)
	}
	return 0
}

// tunnels counts the tunnels to a VIP's backends.
func tunnels(vip model.VIP) int {
	all := map[netip.Addr]bool{}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			all[b.TunnelAddress()] = true
		}
	}
	return len(all)
}

// usage is that of tenants, by name, but for prefixes and parts of switches.
type usage struct{ sorted.Map[string, Usage] }

// ReplaceVIP notes that its tenant has vip, and that of old has that no more.
func (u *usage) ReplaceVIP(old, vip model.VIP) {
	u.count(old, -1)
	u.count(vip, 1)
}

func (u *usage) count(vip model.VIP, n int) {
	if vip.Name == "" {
		return // there is no such VIP
	}
	has := u.At(vip.Tenant)
	if has.count(vip, n); has == (Usage{}) {
		u.Delete(vip.Tenant)
	} else {
		u.Set(vip.Tenant, has)
	}
}

// AddSplit adds what a VIP takes beyond what its owner asks for while the switches that managers chose for it have parts.
func (u *Usage) AddSplit(s State, vip model.VIP) { u.countSplit(s, vip, 1) }

// RemoveSplit takes that away.
func (u *Usage) RemoveSplit(s State, vip model.VIP) { u.countSplit(s, vip, -1) }

func (u *Usage) countSplit(s State, vip model.VIP, n int) {
	if !vip.ChosenSwitches() {
		return
	}
	each, more := uint32(n), split(s.Placements.At(vip.Address), askOf(vip))
	u.SwitchHosts += each * more.SwitchHosts
	u.SwitchTunnels += each * more.SwitchTunnels
}

func askOf(vip model.VIP) ask { return ask{vip.Tenant, switches(vip), tunnels(vip)} }

// split is what a VIP with these places takes beyond what is asked for.
func split(state placementpolicy.State, asked ask) (more Usage) {
	if !state.Split {
		return Usage{}
	}
	has := len(state.Chosen)
	parts := asked.tunnels + has - 1 // members that a cut goes through are in two
	return Usage{
		SwitchHosts:   uint32(max(has-asked.switches, 0)),
		SwitchTunnels: uint32(max(parts-asked.switches*asked.tunnels, 0)),
	}
}

// Usage is what the tenant has. It is counted as VIPs, their places and prefix lists change.
func (s State) Usage(tenant string) Usage {
	u, split := s.usage.At(tenant), s.Placements.splits.At(tenant)
	u.SwitchHosts += split.SwitchHosts
	u.SwitchTunnels += split.SwitchTunnels
	u.Prefixes = uint32(s.PrefixLists.Count(tenant))
	return u
}
