package placement

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// The worst three switches are found without a look at all triples, which the test takes.
func TestWorstSwitchesAreTheWorstOfAllTriples(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 1))
	for range 200 {
		f := pair(t)
		n := int32(len(f.Switches))
		var placed []Placed
		for range 1 + r.IntN(8) {
			p := Placed{Rate: traffic.Rate(r.IntN(1000))}
			for sw := range n {
				if r.IntN(2) == 0 {
					p.Switches = append(p.Switches, sw)
				}
			}
			if len(p.Switches) > 0 {
				placed = append(placed, p)
			}
		}
		var want traffic.Rate
		for a := range n {
			for b := range n {
				for c := range n {
					want = max(want, lost(placed, a, b, c))
				}
			}
		}
		got := FindFailures(f, placed, 20, 1)
		if got.Switches != want || lost(placed, append(got.WorstSwitches, got.WorstSwitches[0], got.WorstSwitches[0])...) != want {
			t.Fatalf("%+v: worst three switches cost %d, want %d", placed, got.Switches, want)
		}
		if got.Random > want {
			t.Fatalf("random switches cost %d, the worst %d", got.Random, want)
		}
	}
}

// lost is the traffic of VIPs of which all switches are dead.
func lost(placed []Placed, dead ...int32) traffic.Rate {
	var sum traffic.Rate
	for _, p := range placed {
		alive := false
		for _, sw := range p.Switches {
			alive = alive || sw != dead[0] && sw != dead[1] && sw != dead[2]
		}
		if !alive {
			sum += p.Rate
		}
	}
	return sum
}

// No placement needs less software than the bound.
func TestSoftwareIsNeverBelowItsBound(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 1))
	for range 40 {
		f := drawFabric(t, r)
		demands, policy := drawDemands(r, f, 40), drawPolicy(r)
		result := place(t, f, demands, nil, policy)
		got, least := result.Software(FindFailures(f, result.Placed, 0, 0)), LeastSoftware(f, demands, policy.Spread)
		if got < least {
			t.Fatalf("%v: %d kbit/s of software are below the bound of %d", policy, got, least)
		}
	}
	for rate, want := range map[traffic.Rate]int64{0: 0, 1: 1, 3600: 1, 3601: 2} {
		if got := Muxes(rate, 3600); got != want {
			t.Errorf("%d kbit/s need %d muxes of 3600, want %d", rate, got, want)
		}
	}
}

// A VIP that the host tables leave no room for by its rate may still be the best one for the core.
func TestBoundOfSoftwareAllowsEveryChoice(t *testing.T) {
	spec, err := fabric.Clos{
		Containers: 10, TorsPerContainer: 1, AggsPerContainer: 1, Cores: 1, TorUplink: 1e7, AggUplink: 1e7,
		Limits: &fabric.Limits{Hosts: 1, ECMP: 4096, Tunnels: 10},
	}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	demands := []traffic.Demand{demand("many", 1000, 100), demand("few", 990, 1)}
	result := place(t, f, demands, nil, Policy{Exclude: []string{"agg-1-1"}, VIPs: map[string]VIPPolicy{"few": {Pin: []string{"core-1"}}}})
	failures := FindFailures(f, result.Placed, 0, 0)
	failures.Switches = 0 // the bound looks at containers alone
	if got, least := result.Software(failures), LeastSoftware(f, demands, One); got != 1000 || least > got {
		t.Errorf("few in the core needs %d of software, the bound is %d", got, least)
	}
}

// A container's failure costs what only its switches announce: sets that span two containers cost nothing.
func TestContainerFailureCostsWhatItAloneAnnounces(t *testing.T) {
	spec, err := fabric.Clos{Containers: 2, TorsPerContainer: 1, AggsPerContainer: 2, Cores: 2, TorUplink: 1e7, AggUplink: 1e7}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	demands := []traffic.Demand{demand("one", 100, 4), demand("both", 200, 4), demand("core", 400, 4)}
	policy := Policy{VIPs: map[string]VIPPolicy{
		"one":  {Pin: []string{"agg-1-1", "agg-1-2"}},
		"both": {Pin: []string{"agg-1-1", "agg-2-1"}}, "core": {Pin: []string{"core-1"}},
	}}
	result, err := Place(context.Background(), f, demands, nil, policy)
	if err != nil {
		t.Fatal(err)
	}
	if len(result.Placed) != 3 {
		t.Fatalf("unplaced %+v", result.Unplaced)
	}
	if got := FindFailures(f, result.Placed, 0, 0); got.Container != 100 || got.Switches != 600 {
		t.Errorf("a container costs %d, three switches cost %d; want 100 and 600", got.Container, got.Switches)
	}
}
