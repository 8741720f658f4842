package placechoice

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// World is what a choice is made of.
type World struct {
	Fabric   *fabric.Fabric
	Switches map[string]Switch // that take VIPs, by name; those that the fabric does not have are left aside
	VIPs     []VIP

	sizes sizes
}

// Switch is a switch that takes VIPs. Sizes of tables are as it reports them; 0: it did not.
type Switch struct {
	Hosts, ECMP, Tunnels uint32
	Members              uint32 // of a group at most
	InPlace              bool   // it changes a group where it stands, without room for both
	Four, Six            bool   // families of tunnels that it has a source of
}

// largestGroup is how many rows of table ECMP a group may have: while it is changed, both stand there.
func (s Switch) largestGroup() uint32 {
	if s.InPlace {
		return s.ECMP
	}
	return s.ECMP / 2
}

// VIP is a VIP of placement auto, or require.
type VIP struct {
	Name     string
	Required []string // of placement require: its switches, each with the VIP whole
	Split    bool     // of placement require: each of its switches has a part of the tunnels
	Behind   []string // of placement require: switches behind its TIPs, each with a part of the tunnels; Required have the TIPs
	Most     int      // so many switches at once at most; 0: as many as it needs, which is one unless that can't hold it
	Rate     traffic.Rate
	Measured bool            // Rate is known; else the VIP counts as the mean of those whose is
	Sources  []traffic.Share // what of Rate comes from racks; the rest is from outside
	Tunnels  []netip.Addr    // that a switch has to hold
	Rows     uint32          // of the ECMP group
	Unfit    string          // why it can't be in any switch; empty: it can
	Avoid    []string        // switches that it can't be in
	At
}

// At is where a VIP is.
type At struct {
	Chosen []string // by the leader
	Held   []string // switches that have it still, and were not chosen
	Moves  bool     // it is on its way to Chosen
}

// from is where it is, but for where it is on its way to.
func (a At) from() []string {
	if a.Moves {
		return a.Held
	}
	return a.Chosen
}

// unmeasuredRate is what VIPs have of which no traffic is known, if that of none is: 1 Mbit/s.
const unmeasuredRate = 1000

// model is the World as package placement has it.
type model struct {
	fabric  *fabric.Fabric // with the room that there is
	demands []traffic.Demand
	current placement.Where
	policy  placement.Policy
	rates   map[string]traffic.Rate
	unfit   map[string]string // VIPs of placement auto that are not in demands, and why
}

func newModel(w World) model {
	w.sizes = w.sizesOf()
	m := model{
		fabric: w.Fabric.WithLimits(w.limits()), current: placement.Where{}, rates: map[string]traffic.Rate{}, unfit: map[string]string{},
		policy: placement.Policy{
			Spread: placement.Anycast, Whole: int64(w.sizes.whole), Groups: w.groups(), ExchangeWork: -1, VIPs: map[string]placement.VIPPolicy{},
		},
	}
	for _, s := range w.Fabric.Switches {
		if _, takes := w.Switches[s.Name]; !takes {
			m.policy.Exclude = append(m.policy.Exclude, s.Name)
		}
	}
	slices.Sort(m.policy.Exclude)
	mean := w.meanRate()
	for _, vip := range w.VIPs {
		if !vip.Measured {
			vip.Rate, vip.Sources = mean, nil
		}
		m.rates[vip.Name] = vip.Rate
		backends, stray := w.backends(vip)
		switch {
		case vip.Unfit != "":
			m.unfit[vip.Name] = vip.Unfit
		case stray.IsValid():
			m.unfit[vip.Name] = fmt.Sprintf("tunnel %s is in no rack of the fabric", stray)
		case len(vip.Required) > 0:
			m.addRequired(w, vip)
		default:
			m.demands = append(m.demands, demand(vip.Name, vip, backends, 1))
			m.policy.VIPs[vip.Name] = placement.VIPPolicy{Most: w.most(vip), Avoid: w.avoided(vip)}
			m.current[vip.Name] = vip.Chosen
		}
	}
	return m
}

// addRequired adds a VIP of placement require: a demand at each of its switches, which has it whole or a part of it.
func (m *model) addRequired(w World, vip VIP) {
	for i, name := range slices.Concat(vip.Required, vip.Behind) {
		part, among := vip, len(vip.Required)
		switch behind := i - among; {
		case behind >= 0:
			among = len(vip.Behind)
			part.Tunnels = partOf(vip.Tunnels, behind, among)
		case len(vip.Behind) > 0: // where TIPs are is not known: as near as some backends
			part.Tunnels = vip.Tunnels[:min(len(vip.Behind), len(vip.Tunnels))]
		case vip.Split:
			part.Tunnels = partOf(vip.Tunnels, i, among)
		}
		backends, _ := w.backends(part)
		at := slices.IndexFunc(m.fabric.Switches, func(s fabric.Switch) bool { return s.Name == name })
		if at < 0 || m.fabric.Switches[at].Down {
			continue // it is not of the fabric: nothing is reckoned with there
		}
		one := vip.Name + "@" + name // no VIP has such a name
		m.demands = append(m.demands, demand(one, vip, backends, among))
		m.policy.VIPs[one] = placement.VIPPolicy{Require: true, Pin: []string{name}}
		m.current[one] = []string{name}
	}
}

// partOf is one of so many parts.
func partOf(tunnels []netip.Addr, i, of int) (part []netip.Addr) {
	for ; i < len(tunnels); i += of {
		part = append(part, tunnels[i])
	}
	return part
}

// demand is what a VIP brings to one of several sets of switches.
func demand(name string, vip VIP, backends []traffic.Group, of int) traffic.Demand {
	d := traffic.Demand{VIP: name, External: vip.Rate / traffic.Rate(of), Backends: backends}
	for _, s := range vip.Sources {
		if s.Rate /= traffic.Rate(of); s.Rate > 0 && s.Rate <= d.External {
			d.Sources = append(d.Sources, s)
			d.External -= s.Rate
		}
	}
	return d
}

// backends counts the VIP's tunnels by rack. stray is one that is in none.
func (w World) backends(vip VIP) (groups []traffic.Group, stray netip.Addr) {
	counts := make(map[int32]int32, len(vip.Tunnels))
	for _, tunnel := range vip.Tunnels {
		rack, there := w.Fabric.RackOf(tunnel)
		if !there {
			return nil, tunnel
		}
		counts[rack]++
	}
	for rack, n := range counts {
		groups = append(groups, traffic.Group{Rack: rack, Backends: n})
	}
	slices.SortFunc(groups, func(a, b traffic.Group) int { return int(a.Rack) - int(b.Rack) })
	return groups, netip.Addr{}
}

// avoided are the switches that can't hold the VIP: those that it avoids, those that have no source of its family, and those
// whose groups are too small.
func (w World) avoided(vip VIP) []string {
	avoid := slices.Clone(vip.Avoid)
	for name, s := range w.Switches {
		has := s.Six
		if len(vip.Tunnels) > 0 && vip.Tunnels[0].Is4() {
			has = s.Four
		}
		if members, rows := w.least(vip); !has || s.Members > 0 && members > s.Members || s.ECMP > 0 && rows > s.largestGroup() {
			avoid = append(avoid, name)
		}
	}
	slices.Sort(avoid)
	return slices.Compact(avoid)
}

// meanRate is that of the VIPs whose is known.
func (w World) meanRate() traffic.Rate {
	var sum, n traffic.Rate
	for _, vip := range w.VIPs {
		if vip.Measured {
			sum += vip.Rate
			n++
		}
	}
	if n == 0 {
		return unmeasuredRate
	}
	return sum / n
}

// limits are the sizes of tables that may be filled, of the switches that report them. Package placement counts a tunnel as
// one row of each table: where shares differ, a group has more rows of table ECMP.
func (w World) limits() map[string]fabric.Limits {
	limits := map[string]fabric.Limits{}
	for _, s := range w.Fabric.Switches {
		device, takes := w.Switches[s.Name]
		if !takes {
			continue
		}
		l := s.Limits
		largest, each := uint32(0), uint32(1) // of the VIPs that may be there: others take no room from them
		for _, vip := range w.VIPs {
			members, rows := w.least(vip)
			if vip.Unfit == "" && members > 0 && (device.ECMP == 0 || rows <= device.largestGroup()) {
				largest, each = max(largest, rows), max(each, (rows+members-1)/members)
			}
		}
		for _, table := range []struct {
			to       *int32
			reported uint32
		}{{&l.Hosts, device.Hosts}, {&l.ECMP, device.ECMP}, {&l.Tunnels, device.Tunnels}} {
			if table.reported > 0 {
				*table.to = int32(min(uint32(*table.to), table.reported))
			}
		}
		if !device.InPlace { // both groups stand there while one is changed
			l.ECMP = max(l.ECMP-int32(min(largest, 1<<30)), 0)
		}
		l.ECMP /= int32(each)
		limits[s.Name] = l
	}
	return limits
}
