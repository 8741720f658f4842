package desired

import (
	"cmp"
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/sorted"
)

// Placements say by the address of a VIP where it is of switches. One outlives its VIP: hosts take what a switch sends
// until the switch has nothing of it. A copy that was not made by Clone is read only.
type Placements struct {
	sorted.Map[netip.Addr, placementpolicy.State]
	bySwitch sorted.Map[switchPlace, none]
	byTIP    sorted.Map[tipPlace, none]
	required sorted.Map[string, none]   // VIPs that are to be in hardware, by name
	auto     sorted.Map[string, none]   // VIPs whose switches managers choose, by name
	asks     sorted.Map[autoPlace, ask] // of these
	splits   sorted.Map[string, Usage]  // what they take beyond what they ask for, by tenant
}

// autoPlace is a VIP whose switches managers choose. While VIPs change their addresses two may have one.
type autoPlace struct {
	vip  netip.Addr
	name string
}

// Compare orders them by address.
func (p autoPlace) Compare(other autoPlace) int {
	return cmp.Or(p.vip.Compare(other.vip), cmp.Compare(p.name, other.name))
}

var _ = sorted.Register(autoPlace.Compare)

// ask is what its owner asks for.
type ask struct {
	tenant            string
	switches, tunnels int
}

// ReplaceVIP takes over whether vip is to be in hardware, and who says where, in the place of old.
func (p *Placements) ReplaceVIP(old, vip model.VIP) {
	if is := vip.InHardware(); is != old.InHardware() || old.Name != vip.Name {
		if p.required.Delete(old.Name); is {
			p.required.Set(vip.Name, none{})
		}
	}
	if is := vip.ChosenSwitches(); is != old.ChosenSwitches() || old.Name != vip.Name {
		if p.auto.Delete(old.Name); is {
			p.auto.Set(vip.Name, none{})
		}
	}
	if old.ChosenSwitches() {
		p.countSplit(old.Address, askOf(old), -1)
		p.asks.Delete(autoPlace{old.Address, old.Name})
	}
	if vip.ChosenSwitches() {
		p.asks.Set(autoPlace{vip.Address, vip.Name}, askOf(vip))
		p.countSplit(vip.Address, askOf(vip), 1)
	}
}

// countSplits is countSplit for whoever has the address.
func (p *Placements) countSplits(vip netip.Addr, n int) {
	for at, asked := range p.asks.From(autoPlace{vip: vip}) {
		if at.vip != vip {
			return
		}
		p.countSplit(vip, asked, n)
	}
}

// countSplit adds what a VIP takes beyond what it asks for to what its tenant does, n times; n is 1 or -1.
func (p *Placements) countSplit(vip netip.Addr, asked ask, n int) {
	more := split(p.At(vip), asked)
	if more == (Usage{}) {
		return
	}
	each, has := uint32(n), p.splits.At(asked.tenant) // of -1: one less
	has.SwitchHosts += each * more.SwitchHosts
	has.SwitchTunnels += each * more.SwitchTunnels
	if has == (Usage{}) {
		p.splits.Delete(asked.tenant)
	} else {
		p.splits.Set(asked.tenant, has)
	}
}

// Auto are the names of the VIPs whose switches managers choose, in order.
func (p Placements) Auto() iter.Seq[string] { return p.auto.Keys() }

// Required are the names of the VIPs that are to be in hardware, in order.
func (p Placements) Required() iter.Seq[string] { return p.required.Keys() }

type switchPlace struct {
	name string
	vip  netip.Addr
}

// Compare orders them by switch.
func (p switchPlace) Compare(other switchPlace) int {
	return cmp.Or(cmp.Compare(p.name, other.name), p.vip.Compare(other.vip))
}

var _ = sorted.Register(switchPlace.Compare)

type tipPlace struct{ tip, vip netip.Addr }

// Compare orders them by TIP.
func (p tipPlace) Compare(other tipPlace) int {
	return cmp.Or(p.tip.Compare(other.tip), p.vip.Compare(other.vip))
}

var _ = sorted.Register(tipPlace.Compare)

// Clone returns Placements that may be written to.
func (p Placements) Clone() Placements {
	return Placements{p.Map.Clone(), p.bySwitch.Clone(), p.byTIP.Clone(), p.required.Clone(), p.auto.Clone(), p.asks.Clone(), p.splits.Clone()}
}

// Put takes over where a VIP is; an empty State is forgotten.
func (p *Placements) Put(vip netip.Addr, state placementpolicy.State) {
	for name, place := range p.At(vip).Places {
		p.bySwitch.Delete(switchPlace{name, vip})
		p.byTIP.Delete(tipPlace{place.TIP, vip})
	}
	p.countSplits(vip, -1)
	p.Delete(vip)
	if state.Empty() {
		return
	}
	p.Set(vip, state)
	p.countSplits(vip, 1)
	for name, place := range state.Places {
		p.bySwitch.Set(switchPlace{name, vip}, none{})
		if place.TIP.IsValid() {
			p.byTIP.Set(tipPlace{place.TIP, vip}, none{})
		}
	}
}

// HoldersOf are the addresses of the VIPs whose entry in a switch may have the address, in order: of one with this TIP, and
// of the VIP of that address. Its owner may have given it up since.
func (p Placements) HoldersOf(address netip.Addr) (vips []netip.Addr) {
	holds := func(place placementpolicy.Place) bool {
		return place.Phase.Occupies() || place.Phase == placementpolicy.Preparing
	}
	for _, place := range p.At(address).Places {
		if !place.TIP.IsValid() && holds(place) {
			vips = append(vips, address)
			break
		}
	}
	for at := range p.byTIP.From(tipPlace{tip: address}) {
		if at.tip != address {
			break
		}
		for _, place := range p.At(at.vip).Places {
			if place.TIP == address && holds(place) {
				vips = append(vips, at.vip)
				break
			}
		}
	}
	return vips
}

// VIPsOf are the addresses of the VIPs that have a place in the switch, in order.
func (p Placements) VIPsOf(name string) iter.Seq[netip.Addr] {
	return func(yield func(netip.Addr) bool) {
		for at := range p.bySwitch.From(switchPlace{name: name}) {
			if at.name != name || !yield(at.vip) {
				return
			}
		}
	}
}

// SwitchesAt are the names of the switches that may send packets of the VIP of an address, in order: those that it names
// while it is to be in hardware, and those that it has a place in. Hosts take what comes from them.
func (s State) SwitchesAt(address netip.Addr) []string {
	names := s.Placements.At(address).Switches()
	if vip, there := s.VIPAt(address); there {
		names = append(names, hardware.Named(vip)...)
	}
	slices.Sort(names)
	return slices.Compact(names)
}
