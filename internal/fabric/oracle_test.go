package fabric

import (
	"fmt"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/weirlb/weir/internal/testkit/ecmp"
	"github.com/weirlb/weir/internal/traffic"
)

// graphOf is the fabric as the oracle has it. Links that are down have no index in it.
func graphOf(f *Fabric) (g ecmp.Graph, links []int32) {
	g = ecmp.Graph{Switches: len(f.Switches), External: f.External}
	for i, l := range f.Links {
		if !l.Down {
			g.Links, links = append(g.Links, ecmp.Link{From: l.From, To: l.To}), append(links, int32(i))
		}
	}
	return g, links
}

// demandOf is a demand as the oracle has it.
func demandOf(f *Fabric, d traffic.Demand) ecmp.Demand {
	of := ecmp.Demand{External: int64(d.External), Sources: map[int32]int64{}, Backends: map[int32]int64{}}
	for _, s := range d.Sources {
		of.Sources[f.RackSwitch(s.Rack)] += int64(s.Rate)
	}
	for _, g := range d.Backends {
		of.Backends[f.RackSwitch(g.Rack)] += int64(g.Backends)
	}
	return of
}

// compare fails unless a load is at least the oracle's and at most 1e-9 of the bandwidth above it.
func compare(t *testing.T, f *Fabric, loads *Loads, links []int32, o *ecmp.Loads) {
	t.Helper()
	for i, want := range o.ByLink {
		link := links[i]
		got := big.NewRat(int64(loads.ByLink[link]), 1<<loadBits)
		diff, _ := new(big.Rat).Sub(got, want).Float64()
		if diff < 0 || diff > 1e-9*float64(f.Links[link].Rate) {
			w, _ := want.Float64()
			t.Fatalf("link %s: load differs by %g kbit/s from %g on %d", f.LinkName(link), diff, w, f.Links[link].Rate)
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
	for range 300 {
		f := drawFabric(r)
		graph, links := graphOf(f)
		loads, o, router := f.NewLoads(), ecmp.NewLoads(graph), NewRouter(f)
		for v := range 6 {
			d, members := randomDemand(r, f, v), drawMembers(r, f)
			flow, err := f.NewFlow(d)
			if err != nil {
				t.Fatal(err)
			}
			routes := router.Routes(members)
			loads.Add(flow, routes)
			o.Add(demandOf(f, d), members)
			compare(t, f, loads, links, o)
		}
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
