package placement

import (
	"cmp"
	"math"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// Muxes is how many software muxes of a capacity a rate needs.
func Muxes(rate, capacity traffic.Rate) int64 {
	if rate <= 0 || capacity <= 0 {
		return 0
	}
	return (int64(rate) + int64(capacity) - 1) / int64(capacity)
}

// Software is the traffic that software muxes must be able to carry: what is not on switches, and the worst failure.
func (r *Result) Software(f Failures) traffic.Rate { return r.Total - r.Hardware + f.Worst() }

// LeastSoftware is a lower bound of Software for any placement of the demands. It does not look at links.
//
// Every switch holds a route for each VIP, so at most the VIPs of most traffic that its host table holds are on
// switches. Of all VIPs the switches in no container can hold what their tunnel entries allow; the best choice, which
// may cut a VIP, is by traffic for each backend. The rest is in containers, of which the fullest has at least its equal
// share. Sets that span containers escape the bound: with twins only the host tables count.
func LeastSoftware(f *fabric.Fabric, demands []traffic.Demand, spread Spread) traffic.Rate {
	hosts, entries, containers := int64(1)<<62, int64(0), int32(0)
	for _, s := range f.Switches {
		if s.Down {
			continue
		}
		hosts = min(hosts, s.Hosts())
		containers = max(containers, s.Container+1)
		if s.Container < 0 {
			entries += min(s.Tunnels(), s.ECMP())
		}
	}
	vips := make([]density, len(demands))
	var total, most traffic.Rate // most of it on switches
	for i, d := range demands {
		vips[i].rate = d.Rate()
		for _, g := range d.Backends {
			vips[i].backends += int64(g.Backends)
		}
		total += vips[i].rate
	}
	slices.SortFunc(vips, func(a, b density) int { return cmp.Compare(b.rate, a.rate) })
	for _, v := range vips[:min(int64(len(vips)), hosts)] {
		most += v.rate
	}
	if spread >= Twins || containers == 0 {
		return total - most
	}
	return total - most + max(0, most-held(vips, entries))/traffic.Rate(containers)
}

// density is what a VIP brings and takes.
type density struct {
	rate     traffic.Rate
	backends int64
}

// held is the most traffic of VIPs that so many entries hold, rounded up.
func held(vips []density, entries int64) (most traffic.Rate) {
	slices.SortFunc(vips, func(a, b density) int {
		return cmp.Compare(float64(b.rate)/float64(max(b.backends, 1)), float64(a.rate)/float64(max(a.backends, 1)))
	})
	for _, v := range vips {
		if v.backends > entries {
			return most + traffic.Rate(math.Ceil(float64(v.rate)*float64(entries)/float64(v.backends)))
		}
		entries -= v.backends
		most += v.rate
	}
	return most
}

// twinsBudget is enough in every workload that was looked at: twins take what does not fit into single containers.
const twinsBudget = 5_000

// UsualBudget is a failure budget in millionths of all traffic: twice what the bound of LeastSoftware has in each
// container. Less leaves VIPs unplaced, more is software muxes for failures.
func UsualBudget(f *fabric.Fabric, demands []traffic.Demand, spread Spread) int64 {
	var total traffic.Rate
	for _, d := range demands {
		total += d.Rate()
	}
	if spread >= Twins || total == 0 {
		return twinsBudget
	}
	inContainer := LeastSoftware(f, demands, Anycast) - LeastSoftware(f, demands, Twins)
	return max(twinsBudget, int64(2e6*float64(inContainer)/float64(total)))
}

// favourHighestTier marks the items that are to go to sets outside of containers as long as there is room: as in the
// bound of LeastSoftware those with most traffic for each backend, for as many backends as the highest tier has entries.
// All others are to go into containers. Without the division, both would fill with whatever comes first, and containers
// would have more to lose.
func (e *engine) favourHighestTier(items []*item) {
	var entries int64
	for sw, s := range e.f.Switches {
		if !s.Down && s.Container < 0 {
			entries += e.sizes[sw]
		}
	}
	byRate := slices.Clone(items)
	slices.SortFunc(byRate, func(a, b *item) int { return cmp.Or(cmp.Compare(b.rate, a.rate), cmp.Compare(a.vip, b.vip)) })
	held := byRate[:min(int64(len(byRate)), e.hostsSize)]
	density := func(it *item) float64 { return float64(it.rate) / float64(max(it.flow.Backends, 1)) }
	slices.SortFunc(held, func(a, b *item) int { return cmp.Or(cmp.Compare(density(b), density(a)), cmp.Compare(a.vip, b.vip)) })
	e.divided = true
	for _, it := range held {
		if it.flow.Backends <= entries {
			entries -= it.flow.Backends
			it.highest = true
		}
	}
}
