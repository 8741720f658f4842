package placement

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// rapidSpec draws a fabric of two or three tiers or of no shape at all, with small tables and dead links.
func rapidSpec(t *rapid.T) fabric.Spec {
	n := func(name string, low, high int) int { return rapid.IntRange(low, high).Draw(t, name) }
	limits := &fabric.Limits{
		Hosts: int32(n("hosts", 1, 40)), ECMP: int32(n("ecmp", 1, 60)), Tunnels: int32(n("tunnels", 0, 40)), Reserve: int32(n("reserve", 0, 30)),
	}
	var s fabric.Spec
	if shape := n("shape", 0, 2); shape < 2 {
		aggs := shape * n("aggs", 1, 3)
		var err error
		if s, err = (fabric.Clos{
			Containers: n("containers", 1, 4), TorsPerContainer: n("tors", 1, 3), AggsPerContainer: aggs,
			Cores: max(1, aggs) * n("cores", 1, 3), TorUplink: 1e7, AggUplink: 4e7, Limits: limits,
		}).Spec(); err != nil {
			t.Fatal(err)
		}
	} else {
		switches := n("switches", 2, 9)
		for i := range switches {
			s.Switches = append(s.Switches, fabric.SwitchSpec{Name: fmt.Sprint("s", i), Limits: limits})
			if i == 0 || n("rack", 0, 1) == 1 {
				s.Racks = append(s.Racks, fabric.RackSpec{Name: fmt.Sprint("r", i), Switch: fmt.Sprint("s", i)})
			}
			for j := range i {
				if j == i-1 || n("link", 0, 3) == 0 {
					s.Links = append(s.Links, fabric.LinkSpec{A: fmt.Sprint("s", i), B: fmt.Sprint("s", j), Rate: 1e7})
				}
			}
		}
	}
	for i := range s.Links {
		s.Links[i].Down = n("dead", 0, 15) == 0
		s.Links[i].Background = traffic.Rate(n("background", 0, int(s.Links[i].Rate)))
	}
	return s
}

func rapidFabric(t *rapid.T) (fabric.Spec, *fabric.Fabric) {
	s := rapidSpec(t)
	f, err := fabric.New(s)
	if err != nil { // in parts, by dead links
		for i := range s.Links {
			s.Links[i].Down = false
		}
		if f, err = fabric.New(s); err != nil {
			t.Fatal(err)
		}
	}
	return s, f
}

func rapidDemands(t *rapid.T, f *fabric.Fabric) []traffic.Demand {
	rate := rapid.Custom(func(t *rapid.T) traffic.Rate {
		return traffic.Rate(rapid.IntRange(0, 1<<rapid.IntRange(1, 24).Draw(t, "bits")).Draw(t, "rate"))
	})
	rack := rapid.Int32Range(0, int32(len(f.Racks))-1)
	demands := make([]traffic.Demand, rapid.IntRange(1, 25).Draw(t, "vips"))
	for i := range demands {
		demands[i] = traffic.Demand{VIP: fmt.Sprint("vip-", i), External: rate.Draw(t, "external")}
		for _, r := range rapid.SliceOfNDistinct(rack, 0, 4, rapid.ID).Draw(t, "sources") {
			demands[i].Sources = append(demands[i].Sources, traffic.Share{Rack: r, Rate: rate.Draw(t, "from")})
		}
		for _, r := range rapid.SliceOfNDistinct(rack, 1, 4, rapid.ID).Draw(t, "racks of backends") {
			demands[i].Backends = append(demands[i].Backends, traffic.Group{Rack: r, Backends: rapid.Int32Range(1, 8).Draw(t, "backends")})
		}
	}
	return demands
}

func rapidPolicy(t *rapid.T) Policy {
	return Policy{
		Algorithm: Algorithm(rapid.IntRange(0, len(algorithms)-1).Draw(t, "algorithm")), Spread: Spread(rapid.IntRange(0, 2).Draw(t, "spread")),
		Delta: 0.05, StopAtMisfit: rapid.Bool().Draw(t, "stop"), FailureBudget: rapid.SampledFrom([]int64{0, 0, 50_000, 400_000}).Draw(t, "budget"),
		Seed: rapid.Uint64().Draw(t, "seed"), ExchangeWork: rapid.SampledFrom([]int64{-1, 1, 20_000}).Draw(t, "exchange"),
	}
}

func rapidPlace(t *rapid.T, f *fabric.Fabric, demands []traffic.Demand, current Where, p Policy) *Result {
	p.ExchangeWork = cmp.Or(p.ExchangeWork, 20_000)
	result, err := Place(t.Context(), f, demands, current, p)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// In any graph: nothing is used beyond its size, and traffic is conserved at every switch.
func TestPlacementsFitAndConserveTraffic(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		_, f := rapidFabric(rt)
		demands := rapidDemands(rt, f)
		result := rapidPlace(rt, f, demands, nil, rapidPolicy(rt))
		if len(result.Placed)+len(result.Unplaced) != len(demands) {
			rt.Fatalf("%d of %d VIPs are placed, %d not", len(result.Placed), len(demands), len(result.Unplaced))
		}
		l := newLedger(t, f, demands)
		for _, p := range result.Placed {
			l.add(p.VIP, p.Switches, 1)
		}
		if over := l.overfull(); over != "" {
			rt.Fatal(over)
		}
		conserved(rt, l, result.Placed)
	})
}

// conserved fails unless what enters a switch leaves it, but for its racks and for what enters from outside.
func conserved(t *rapid.T, l *ledger, placed []Placed) {
	f := l.f
	net, outside := make([]float64, len(f.Switches)), 0.0 // kbit/s that leave a switch and did not enter it
	for i, link := range f.Links {
		load := float64(l.loads[i]) / float64(fabric.LoadOf(1))
		net[link.From] += load
		net[link.To] -= load
	}
	for _, p := range placed {
		d, backends := l.demands[p.VIP], int32(0)
		outside += float64(d.External)
		for _, s := range d.Sources {
			net[f.RackSwitch(s.Rack)] -= float64(s.Rate)
		}
		for _, g := range d.Backends {
			backends += g.Backends
		}
		for _, g := range d.Backends {
			net[f.RackSwitch(g.Rack)] += float64(d.Rate()) * float64(g.Backends) / float64(backends)
		}
	}
	const rounding = 0.01 // kbit/s: parts are rounded up
	for sw, n := range net {
		enters := slices.Contains(f.External, int32(sw))
		if n > rounding && !enters || n < -rounding || n > outside+rounding {
			t.Fatalf("switch %s: %.3f kbit/s more leave than enter, %.0f come from outside", f.Switches[sw].Name, n, outside)
		}
		outside -= n
	}
	if outside > rounding || outside < -rounding {
		t.Fatalf("%.3f kbit/s from outside enter nowhere", outside)
	}
}

// The same input in another order, of demands, switches, links, racks and entrances, gives the same placement byte for byte.
func TestNoOrderOfInputMatters(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, f := rapidFabric(t)
		demands, policy := rapidDemands(t, f), rapidPolicy(t)
		current := rapidPlace(t, f, demands, nil, Policy{Spread: Twins, Seed: 1}).Where(f)
		policy.StopAtMisfit = false
		want := described(t, f, rapidPlace(t, f, demands, current, policy))
		other := fabric.Spec{
			Switches: rapid.Permutation(s.Switches).Draw(t, "switches"), Links: rapid.Permutation(s.Links).Draw(t, "links"),
			Racks: rapid.Permutation(s.Racks).Draw(t, "racks"), External: s.External, LinkShare: s.LinkShare,
		}
		g, err := fabric.New(other)
		if err != nil {
			t.Fatal(err)
		}
		numbers := map[string]int32{}
		for i, r := range g.Racks {
			numbers[r.Name] = int32(i)
		}
		var moved []traffic.Demand
		for _, d := range rapid.Permutation(demands).Draw(t, "demands") {
			d.Sources, d.Backends = slices.Clone(d.Sources), slices.Clone(d.Backends)
			for i := range d.Sources {
				d.Sources[i].Rack = numbers[f.Racks[d.Sources[i].Rack].Name]
			}
			for i := range d.Backends {
				d.Backends[i].Rack = numbers[f.Racks[d.Backends[i].Rack].Name]
			}
			moved = append(moved, d)
		}
		if got := described(t, g, rapidPlace(t, g, moved, current, policy)); got != want {
			t.Fatalf("%v, %d: in another order\n%s\nwant\n%s", policy.Algorithm, policy.Spread, got, want)
		}
	})
}

// described is a result in names.
func described(t *rapid.T, f *fabric.Fabric, r *Result) string {
	for i := range r.HotLinks {
		r.HotLinks[i].Link = 0
	}
	where := r.Where(f)
	for _, switches := range where {
		slices.Sort(switches)
	}
	text, err := json.Marshal([]any{where, r.Unplaced, r.Total, r.Hardware, r.HotLinks, r.Highest})
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Repair never moves what fits: with the same demands nothing moves, with others only what Keep can't keep.
func TestRepairMovesOnlyWhatDoesNotFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		_, f := rapidFabric(t)
		policy := rapidPolicy(t)
		policy.Algorithm, policy.ExchangeWork = Repair, -1
		current := rapidPlace(t, f, rapidDemands(t, f), nil, policy).Where(f)
		demands := rapidDemands(t, f)
		keep := policy
		keep.Algorithm = Keep
		kept, repaired := rapidPlace(t, f, demands, current, keep).Where(f), rapidPlace(t, f, demands, current, policy).Where(f)
		for vip, switches := range kept {
			if !slices.Equal(repaired[vip], switches) {
				t.Fatalf("vip %s fits at %v and moved to %v", vip, switches, repaired[vip])
			}
		}
	})
}

// An exchange moves what fits only for a gain: an eighth of the traffic that it moves or sends to software comes to
// switches. Nothing is overfilled by it, pins stay, and what is required is not sent to software. Without a gain nothing
// changes.
func TestExchangesMoveWhatFitsOnlyForAGain(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		_, f := rapidFabric(rt)
		policy := rapidPolicy(rt)
		policy.Algorithm, policy.ExchangeWork, policy.StopAtMisfit = Repair, -1, false
		current := rapidPlace(rt, f, rapidDemands(rt, f), nil, policy).Where(f)
		demands := rapidDemands(rt, f)
		policy.VIPs = map[string]VIPPolicy{"vip-0": {Require: true}}
		if at := current["vip-1"]; len(at) > 0 {
			policy.VIPs["vip-1"] = VIPPolicy{Pin: at}
		}
		before := rapidPlace(rt, f, demands, current, policy)
		policy.ExchangeWork = 50_000
		after := rapidPlace(rt, f, demands, current, policy)
		was, is := before.Where(f), after.Where(f)
		l, gain, moved := newLedger(t, f, demands), traffic.Rate(0), traffic.Rate(0)
		for _, d := range demands {
			if slices.Equal(was[d.VIP], is[d.VIP]) {
				continue
			}
			if was[d.VIP] != nil && slices.Equal(was[d.VIP], current[d.VIP]) {
				moved += d.Rate()
			}
			if policy.VIPs[d.VIP].Require && is[d.VIP] == nil || policy.VIPs[d.VIP].Pin != nil {
				rt.Fatalf("vip %s moved from %v to %v", d.VIP, was[d.VIP], is[d.VIP])
			}
		}
		for _, p := range after.Placed {
			l.add(p.VIP, p.Switches, 1)
		}
		if over := l.overfull(); over != "" {
			rt.Fatal(over)
		}
		required := is["vip-0"] != nil && was["vip-0"] == nil // brings more than its traffic
		if gain = after.Hardware - before.Hardware; !required && (gain < 0 || 8*gain < moved) {
			rt.Fatalf("%d kbit/s moved for a gain of %d", moved, gain)
		}
		if gain == 0 && !required && fmt.Sprint(was) != fmt.Sprint(is) {
			rt.Fatalf("without a gain the placement became %v, from %v", is, was)
		}
	})
}

// A migration ends, leads to the new placement, and overfills nothing in any intermediate step.
func TestMigrationsFitInEveryStep(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		_, f := rapidFabric(rt)
		demands := rapidDemands(rt, f)
		from, to := rapidPlace(rt, f, demands, nil, rapidPolicy(rt)), rapidPlace(rt, f, demands, nil, rapidPolicy(rt))
		steps, err := Migrate(rt.Context(), f, demands, from.Where(f), to.Where(f), Policy{})
		if err != nil {
			rt.Fatal(err)
		}
		l, where := newLedger(t, f, demands), Where{}
		for _, p := range from.Placed {
			l.add(p.VIP, p.Switches, 1)
			where[p.VIP] = names(f, p.Switches)
		}
		for _, s := range steps {
			if over := l.step(s); over != "" {
				rt.Fatalf("%s %s: %s", s.Kind, s.VIP, over)
			}
			if delete(where, s.VIP); s.To != nil {
				where[s.VIP] = names(f, s.To)
			}
		}
		if got, want := fmt.Sprint(where), fmt.Sprint(to.Where(f)); got != want {
			rt.Fatalf("the steps lead to %s, not to %s", got, want)
		}
	})
}
