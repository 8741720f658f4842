package fabric

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/traffic"
)

// oracle walks the graph switch by switch for every source and every rack, in fractions.
type oracle struct {
	f     *Fabric
	loads []*big.Rat
}

func newOracle(f *Fabric) *oracle {
	o := &oracle{f: f, loads: make([]*big.Rat, len(f.Links))}
	for i := range o.loads {
		o.loads[i] = new(big.Rat)
	}
	return o
}

// hops counts by relaxation of every link until nothing changes: slow, and obviously right.
func (o *oracle) hops(targets ...int32) []int {
	d := make([]int, len(o.f.Switches))
	for i := range d {
		d[i] = 1 << 20
	}
	for _, t := range targets {
		d[t] = 0
	}
	for changed := true; changed; {
		changed = false
		for _, l := range o.f.Links {
			if !l.Down && d[l.To]+1 < d[l.From] {
				d[l.From], changed = d[l.To]+1, true
			}
		}
	}
	return d
}

// send moves what is at each switch to the nearest targets and returns what arrives at each.
func (o *oracle) send(at map[int32]*big.Rat, targets ...int32) map[int32]*big.Rat {
	d := o.hops(targets...)
	arrived := map[int32]*big.Rat{}
	for level := slices.Max(d); level >= 0; level-- {
		for sw := range int32(len(o.f.Switches)) {
			amount := at[sw]
			if d[sw] != level || amount == nil {
				continue
			}
			if level == 0 {
				arrived[sw] = amount
				continue
			}
			var next []int
			for i, l := range o.f.Links {
				if !l.Down && l.From == sw && d[l.To] == level-1 {
					next = append(next, i)
				}
			}
			each := new(big.Rat).Mul(amount, big.NewRat(1, int64(len(next))))
			for _, i := range next {
				o.loads[i].Add(o.loads[i], each)
				give(at, o.f.Links[i].To, each)
			}
		}
	}
	return arrived
}

func give(at map[int32]*big.Rat, sw int32, amount *big.Rat) {
	if at[sw] == nil {
		at[sw] = new(big.Rat)
	}
	at[sw].Add(at[sw], amount)
}

func (o *oracle) add(d traffic.Demand, members []int32) {
	at := map[int32]*big.Rat{}
	for _, s := range d.Sources {
		give(at, o.f.leaves[o.f.Racks[s.Rack].Leaf].sw, big.NewRat(int64(s.Rate), 1))
	}
	// Outside is a switch of its own, with a link to each entrance.
	hops := o.hops(members...)
	nearest := 1 << 20
	var entrances []int32
	for _, sw := range o.f.External {
		if hops[sw] < nearest {
			nearest, entrances = hops[sw], nil
		}
		if hops[sw] == nearest {
			entrances = append(entrances, sw)
		}
	}
	for _, sw := range entrances {
		give(at, sw, big.NewRat(int64(d.External), int64(len(entrances))))
	}
	backends := int64(0)
	for _, g := range d.Backends {
		backends += int64(g.Backends)
	}
	for m, amount := range o.send(at, members...) {
		for _, g := range d.Backends {
			o.send(map[int32]*big.Rat{m: new(big.Rat).Mul(amount, big.NewRat(int64(g.Backends), backends))},
				o.f.leaves[o.f.Racks[g.Rack].Leaf].sw)
		}
	}
}

// compare fails unless a load is at least the oracle's and at most 1e-9 of the bandwidth above it.
func compare(t *testing.T, f *Fabric, loads *Loads, o *oracle) {
	t.Helper()
	for i, want := range o.loads {
		got := big.NewRat(int64(loads.ByLink[i]), 1<<loadBits)
		diff, _ := new(big.Rat).Sub(got, want).Float64()
		if diff < 0 || diff > 1e-9*float64(f.Links[i].Rate) {
			w, _ := want.Float64()
			t.Fatalf("link %s: load differs by %g kbit/s from %g on %d", f.LinkName(int32(i)), diff, w, f.Links[i].Rate)
		}
	}
}

func randomDemand(r *rand.Rand, f *Fabric, n int) traffic.Demand {
	d := traffic.Demand{VIP: fmt.Sprintf("vip-%d", n)}
	if r.IntN(3) > 0 {
		d.External = traffic.Rate(r.IntN(3_000_000))
	}
	for rack := range int32(len(f.Racks)) {
		if r.IntN(3) == 0 {
			d.Sources = append(d.Sources, traffic.Share{Rack: rack, Rate: traffic.Rate(r.IntN(2_000_000))})
		}
		if r.IntN(3) == 0 {
			d.Backends = append(d.Backends, traffic.Group{Rack: rack, Backends: int32(1 + r.IntN(5))})
		}
	}
	if len(d.Backends) == 0 {
		d.Backends = []traffic.Group{{Rack: int32(r.IntN(len(f.Racks))), Backends: 3}}
	}
	return d
}

// oddFabric draws a fabric of one of five shapes, most of them with dead or doubled links.
func oddFabric(r *rand.Rand) Spec {
	var s Spec
	rate := func() traffic.Rate { return traffic.Rate(10_000_000 * (1 + r.IntN(4))) }
	switch r.IntN(5) {
	case 0: // unequal planes: cores of a plane differ in number
		planes := 2 + r.IntN(2)
		for k := range 2 + r.IntN(3) {
			for t := range 1 + r.IntN(4) {
				tor := fmt.Sprintf("tor-%d-%d", k, t)
				s.Switches = append(s.Switches, SwitchSpec{Name: tor})
				s.Racks = append(s.Racks, RackSpec{Name: "rack-" + tor, Switch: tor})
				for p := range planes {
					s.Links = append(s.Links, LinkSpec{A: tor, B: fmt.Sprintf("agg-%d-%d", k, p), Rate: rate()})
				}
			}
			for p := range planes {
				s.Switches = append(s.Switches, SwitchSpec{Name: fmt.Sprintf("agg-%d-%d", k, p)})
				for c := range p + 1 {
					s.Links = append(s.Links, LinkSpec{A: fmt.Sprintf("agg-%d-%d", k, p), B: fmt.Sprintf("core-%d-%d", p, c), Rate: rate()})
				}
			}
		}
		for p := range planes {
			for c := range p + 1 {
				s.Switches = append(s.Switches, SwitchSpec{Name: fmt.Sprintf("core-%d-%d", p, c)})
			}
		}
	case 1: // two tiers
		s, _ = Clos{Containers: 1 + r.IntN(3), TorsPerContainer: 2 + r.IntN(3), Cores: 1 + r.IntN(4), TorUplink: rate()}.Spec()
	case 2, 3: // three tiers
		a := 1 + r.IntN(3)
		s, _ = Clos{
			Containers: 1 + r.IntN(4), TorsPerContainer: 1 + r.IntN(4), AggsPerContainer: a, Cores: a * (1 + r.IntN(3)),
			TorUplink: rate(), AggUplink: rate(),
		}.Spec()
	default: // any graph, racks anywhere
		n := 3 + r.IntN(8)
		for i := range n {
			name := fmt.Sprint("s", i)
			s.Switches = append(s.Switches, SwitchSpec{Name: name})
			if i == 0 || r.IntN(2) == 0 {
				s.Racks = append(s.Racks, RackSpec{Name: "r" + name, Switch: name})
			}
			for range 2 {
				if j := r.IntN(n); j != i {
					s.Links = append(s.Links, LinkSpec{A: name, B: fmt.Sprint("s", j), Rate: rate()})
				}
			}
		}
	}
	for i := range s.Links {
		s.Links[i].Down = r.IntN(12) == 0
		if r.IntN(15) == 0 {
			s.Links = append(s.Links, s.Links[i])
		}
	}
	return s
}

// drawFabric repeats until a fabric is in one part.
func drawFabric(r *rand.Rand) *Fabric {
	for {
		if f, err := New(oddFabric(r)); err == nil {
			return f
		}
	}
}

// drawMembers is a set of switches that may announce a VIP: a leaf is alone.
func drawMembers(r *rand.Rand, f *Fabric) []int32 {
	members := []int32{int32(r.IntN(len(f.Switches)))}
	if f.Switches[members[0]].Leaf >= 0 {
		return members
	}
	for sw, s := range f.Switches {
		if s.Leaf < 0 && int32(sw) != members[0] && r.IntN(3) == 0 {
			members = append(members, int32(sw))
		}
	}
	return members
}

func TestLoadsAreThoseOfAWalkOverTheGraph(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for n := range 300 {
		f := drawFabric(r)
		loads, o, router := f.NewLoads(), newOracle(f), NewRouter(f)
		for v := range 6 {
			d, members := randomDemand(r, f, v), drawMembers(r, f)
			flow, err := f.NewFlow(d)
			if err != nil {
				t.Fatal(err)
			}
			routes := router.Routes(members)
			loads.Add(flow, routes)
			o.add(d, members)
			if t.Failed() {
				return
			}
			compare(t, f, loads, o)
		}
		_ = n
	}
}

// What enters a switch leaves it, but for what its racks send and receive and what enters from outside.
func TestTrafficIsConservedAtEverySwitch(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	for range 200 {
		f := drawFabric(r)
		d := randomDemand(r, f, 0)
		d.External = 0
		flow, err := f.NewFlow(d)
		if err != nil {
			t.Fatal(err)
		}
		loads := f.NewLoads()
		loads.Add(flow, NewRouter(f).Routes(drawMembers(r, f)))
		net := make([]Load, len(f.Switches))
		for i, l := range f.Links {
			net[l.From] -= loads.ByLink[i]
			net[l.To] += loads.ByLink[i]
		}
		for _, x := range flow.Leaves {
			net[f.leaves[x.Leaf].sw] += x.In - x.Out
		}
		for sw, n := range net {
			if n < -1000 || n > 1000 { // 0.001 kbit/s: parts are rounded up
				t.Fatalf("switch %s: %d more enters than leaves", f.Switches[sw].Name, n)
			}
		}
	}
}
