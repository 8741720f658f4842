package placement

import (
	"cmp"
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
// Every switch holds a route for each VIP, so VIPs beyond the host tables, those of least traffic, stay in software.
// Of the others the highest tier can hold what its tunnel entries allow; the best choice, which may cut a VIP, is by
// traffic for each backend. The rest is in containers, of which the fullest has at least its equal share, or is in
// software, which costs more. Sets that span containers escape the bound: with twins only the host tables count.
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
	type density struct {
		rate     traffic.Rate
		backends int64
	}
	var vips []density
	for _, d := range demands {
		v := density{rate: d.Rate()}
		for _, g := range d.Backends {
			v.backends += int64(g.Backends)
		}
		vips = append(vips, v)
	}
	slices.SortFunc(vips, func(a, b density) int { return cmp.Compare(b.rate, a.rate) })
	var least, rest traffic.Rate
	for i := len(vips) - 1; i >= 0 && int64(i) >= hosts; i-- {
		least += vips[i].rate
		vips = vips[:i]
	}
	if spread >= Twins || containers == 0 {
		return least
	}
	slices.SortFunc(vips, func(a, b density) int {
		return cmp.Compare(float64(b.rate)/float64(max(b.backends, 1)), float64(a.rate)/float64(max(a.backends, 1)))
	})
	for _, v := range vips {
		if v.backends <= entries {
			entries -= v.backends
			continue
		}
		rest += traffic.Rate(float64(v.rate) * float64(v.backends-entries) / float64(v.backends))
		entries = 0
	}
	return least + rest/traffic.Rate(containers)
}
