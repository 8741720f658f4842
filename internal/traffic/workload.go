package traffic

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Workload describes traffic that is generated. Its zero fields take the values of DefaultWorkload.
//
// It is fitted to Figure 15 of Duet (SIGCOMM 2014), of which the text tells the 30 000 VIPs, that few of them have most
// of the traffic, and that 16 384 VIPs have nearly all. The rest is assumed:
//
//   - rates are lognormal by exact quantiles, and no VIP has more than MaxShare of the traffic;
//   - backends are lognormal, correlated with the rate, and at least so many that none is above a 16th of the mean rate of a
//     rack; they lie in runs of neighbouring racks;
//   - 30 % of the VIPs receive 90 % from outside, as in section 2 of the paper 30 % of the traffic does; the others'
//     clients are in 3 racks to all, with exponential shares;
//   - no rack sends or receives more than 4 times what racks do in the mean.
type Workload struct {
	VIPs     int
	Racks    int
	Total    Rate
	Skew     float64 // standard deviation of the rate's logarithm
	MaxShare float64 // of one VIP
	Seed     uint64
}

// DefaultWorkload is the data center of the paper's section 8.1 at 10 Tbit/s.
var DefaultWorkload = Workload{VIPs: 30_000, Racks: 1600, Total: 10e9, Skew: 2.5, MaxShare: 0.015, Seed: 1}

// Bounds of a workload.
const (
	maxWorkloadVIPs  = 1 << 20
	maxWorkloadRacks = 1 << 17
	maxSkew          = 5
)

// Constants of the fit.
const (
	backendsLog      = 0.9   // mean of the logarithm of a VIP's backends
	backendsSkew     = 1.3   // its standard deviation
	backendsToRate   = 0.6   // its correlation with the rate's
	backendShare     = 0.064 // most of the mean rate of a rack that one backend receives
	maxVIPBackends   = 512
	rackLimit        = 4.0 // rate of a rack to the mean of all
	externalVIPs     = 0.3
	externalShare    = 0.9
	meanSourceRacks  = 40
	leastSourceRacks = 3
	maxRunBackends   = 4 // backends of a VIP in one rack
)

// withDefaults fills the fields that are not set.
func (w Workload) withDefaults() Workload {
	w.VIPs = cmp.Or(w.VIPs, DefaultWorkload.VIPs)
	w.Racks = cmp.Or(w.Racks, DefaultWorkload.Racks)
	w.Total = cmp.Or(w.Total, DefaultWorkload.Total)
	w.Skew = cmp.Or(w.Skew, DefaultWorkload.Skew)
	w.MaxShare = cmp.Or(w.MaxShare, DefaultWorkload.MaxShare)
	w.Seed = cmp.Or(w.Seed, DefaultWorkload.Seed)
	return w
}

func (w Workload) validate() error {
	switch {
	case w.VIPs < 1 || w.VIPs > maxWorkloadVIPs:
		return fmt.Errorf("generate traffic: %d VIPs are not from 1 to %d", w.VIPs, maxWorkloadVIPs)
	case w.Racks < 1 || w.Racks > maxWorkloadRacks:
		return fmt.Errorf("generate traffic: %d racks are not from 1 to %d", w.Racks, maxWorkloadRacks)
	case w.Total < 1 || w.Total > MaxRate:
		return fmt.Errorf("generate traffic: %d kbit/s are not from 1 to %d", w.Total, MaxRate)
	case !(w.Skew > 0 && w.Skew <= maxSkew):
		return fmt.Errorf("generate traffic: a skew of %v is not above 0 and at most %d", w.Skew, maxSkew)
	case !(w.MaxShare > 0 && w.MaxShare <= 1):
		return fmt.Errorf("generate traffic: a share of %v is not above 0 and at most 1", w.MaxShare)
	}
	return nil
}

// Generate returns the demand of each VIP, ascending by VIP. Names are vip-00000 and so on, the largest first.
func (w Workload) Generate() ([]Demand, error) {
	w = w.withDefaults()
	if err := w.validate(); err != nil {
		return nil, err
	}
	shares := w.shares()
	g := newGenerator(w)
	all := make([]Demand, w.VIPs)
	for i := range all {
		all[i] = g.demand(fmt.Sprintf("vip-%05d", i), w.quantile(i), shares[i])
	}
	slices.SortFunc(all, func(a, b Demand) int { return cmp.Compare(a.VIP, b.VIP) })
	return all, nil
}

// quantile returns the normal quantile of the i-th largest VIP.
func (w Workload) quantile(i int) float64 {
	return -math.Sqrt2 * math.Erfinv(2*(float64(i)+0.5)/float64(w.VIPs)-1)
}

// shares returns the part of all traffic that each VIP has, the largest first.
func (w Workload) shares() []float64 {
	shares := make([]float64, w.VIPs)
	for i := range shares {
		shares[i] = math.Exp(float64(w.Skew * w.quantile(i)))
	}
	capShares(shares, w.MaxShare)
	return shares
}

// capShares scales the shares so that they sum to 1 and none is above most. What is cut off goes to the others.
func capShares(shares []float64, most float64) {
	most = max(most, 1/float64(len(shares)))
	capped := make([]bool, len(shares))
	for left, again := 1.0, true; again; {
		var sum float64
		for i, s := range shares {
			if !capped[i] {
				sum += s
			}
		}
		if sum == 0 {
			return
		}
		again = false
		scale := left / sum
		for i := range shares {
			if capped[i] {
				continue
			}
			shares[i] = float64(shares[i] * scale)
			if shares[i] > most {
				shares[i], capped[i], again = most, true, true
				left -= most
			}
		}
	}
}

// generator holds what each rack sends and receives so far, as parts of all traffic.
type generator struct {
	Workload
	random   *rand.Rand
	sent     []float64
	received []float64
	limit    float64 // of a rack
	mark     []int32 // VIP that last chose the rack as a source
	vip      int32
}

func newGenerator(w Workload) *generator {
	return &generator{
		Workload: w,
		random:   rand.New(rand.NewPCG(w.Seed, 0x77656972)),
		sent:     make([]float64, w.Racks), received: make([]float64, w.Racks), mark: make([]int32, w.Racks),
		limit: rackLimit / float64(w.Racks),
	}
}

// demand draws the demand of a VIP whose rate is at the normal quantile.
func (g *generator) demand(name string, quantile, share float64) Demand {
	g.vip++
	noise := float64(g.random.NormFloat64() * math.Sqrt(1-backendsToRate*backendsToRate))
	y := float64(backendsToRate*quantile) + noise
	backends := int(math.Exp(backendsLog + float64(backendsSkew*y)))
	least := int(math.Ceil(share * float64(g.Racks) / backendShare))
	d := Demand{VIP: name}
	d.Backends = g.backends(min(max(1, backends, least), maxVIPBackends), share)
	rate := int64(math.Round(share * float64(g.Total)))
	if g.random.Float64() < externalVIPs {
		d.External = Rate(math.Round(externalShare * float64(rate)))
	}
	d.Sources = g.sources(Rate(rate)-d.External, share)
	for _, s := range d.Sources {
		rate -= int64(s.Rate)
	}
	d.External = Rate(rate) // and what racks may not send any more
	return d
}

// backends lays so many backends into a run of racks that begins anywhere, past racks that receive enough.
func (g *generator) backends(count int, share float64) []Group {
	each := share / float64(count)
	groups := map[int32]int32{}
	rack := g.random.IntN(g.Racks)
	run := 1 + g.random.IntN(maxRunBackends)
	for skipped := 0; count > 0; rack = (rack + 1) % g.Racks {
		n := min(count, run)
		if g.received[rack]+float64(float64(n)*each) > g.limit && skipped < g.Racks {
			skipped++
			continue
		}
		g.received[rack] += float64(float64(n) * each)
		groups[int32(rack)] += int32(n)
		count -= n
	}
	list := make([]Group, 0, len(groups))
	for at, n := range groups {
		list = append(list, Group{Rack: at, Backends: n})
	}
	slices.SortFunc(list, func(a, b Group) int { return cmp.Compare(a.Rack, b.Rack) })
	return list
}

// sources spreads a rate over racks by exponential shares. What racks may not send any more is left out.
func (g *generator) sources(rate Rate, share float64) []Share {
	count := leastSourceRacks + int(g.random.ExpFloat64()*meanSourceRacks)
	count += int(math.Ceil(share * float64(g.Racks) / backendShare)) // a VIP with much traffic has many clients
	count = min(count, g.Racks)
	weights := make([]float64, count)
	racks := make([]int32, count)
	var sum float64
	for i := range racks {
		racks[i] = g.freshRack()
		weights[i] = g.random.ExpFloat64()
		sum += weights[i]
	}
	var list []Share
	var done Rate
	before := 0.0
	for i, rack := range racks {
		before += weights[i]
		sent := Rate(math.Round(before/sum*float64(rate))) - done
		done += sent
		load := float64(sent) / float64(g.Total)
		if sent <= 0 || g.sent[rack]+load > g.limit {
			continue
		}
		g.sent[rack] += load
		list = append(list, Share{Rack: rack, Rate: sent})
	}
	slices.SortFunc(list, func(a, b Share) int { return cmp.Compare(a.Rack, b.Rack) })
	return list
}

// freshRack draws a rack that the VIP has not chosen yet.
func (g *generator) freshRack() int32 {
	rack := g.random.IntN(g.Racks)
	for g.mark[rack] == g.vip {
		rack = (rack + 1) % g.Racks
	}
	g.mark[rack] = g.vip
	return int32(rack)
}
