package placement

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// drawFabric is a small Clos of random shape, with small tables and some dead links.
func drawFabric(t *testing.T, r *rand.Rand) *fabric.Fabric {
	t.Helper()
	aggs := 1 + r.IntN(3)
	limits := &fabric.Limits{Hosts: int32(10 + r.IntN(40)), ECMP: 4096, Tunnels: int32(8 + r.IntN(40)), Reserve: int32(r.IntN(20))}
	for {
		spec, err := fabric.Clos{
			Containers: 2 + r.IntN(3), TorsPerContainer: 1 + r.IntN(4), AggsPerContainer: aggs,
			Cores: aggs * (1 + r.IntN(3)), TorUplink: 10e6, AggUplink: 40e6, Limits: limits,
		}.Spec()
		if err != nil {
			t.Fatal(err)
		}
		for i := range spec.Links {
			spec.Links[i].Down = r.IntN(20) == 0
			spec.Links[i].Background = traffic.Rate(r.IntN(1_000_000))
		}
		if f, err := fabric.New(spec); err == nil {
			return f
		}
	}
}

func drawDemands(r *rand.Rand, f *fabric.Fabric, n int) []traffic.Demand {
	var demands []traffic.Demand
	for i := range n {
		d := traffic.Demand{VIP: fmt.Sprintf("vip-%d", i)}
		scale := 1 << r.IntN(23)
		if r.IntN(2) == 0 {
			d.External = traffic.Rate(r.IntN(scale))
		}
		for rack := range int32(len(f.Racks)) {
			if r.IntN(3) == 0 {
				d.Sources = append(d.Sources, traffic.Share{Rack: rack, Rate: traffic.Rate(r.IntN(scale))})
			}
			if r.IntN(4) == 0 {
				d.Backends = append(d.Backends, traffic.Group{Rack: rack, Backends: int32(1 + r.IntN(6))})
			}
		}
		demands = append(demands, d)
	}
	return demands
}

func drawPolicy(r *rand.Rand) Policy {
	p := Policy{Algorithm: Algorithm(r.IntN(5)), Spread: Spread(r.IntN(3)), Delta: 0.05, Seed: r.Uint64(), ExchangeWork: 200_000}
	if r.IntN(2) == 0 {
		p.FailureBudget = int64(50_000 + r.IntN(500_000))
	}
	return p
}

func place(t *testing.T, f *fabric.Fabric, demands []traffic.Demand, current Where, p Policy) *Result {
	t.Helper()
	p.ExchangeWork = cmp.Or(p.ExchangeWork, 20_000) // not the usual, which takes a second
	r, err := Place(context.Background(), f, demands, current, p)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// ledger adds up what placed VIPs use, VIP by VIP, without the engine.
type ledger struct {
	t       *testing.T
	f       *fabric.Fabric
	router  *fabric.Router
	demands map[string]traffic.Demand
	loads   []fabric.Load
	entries []int64
	hosts   int64
}

func newLedger(t *testing.T, f *fabric.Fabric, demands []traffic.Demand) *ledger {
	l := &ledger{
		t: t, f: f, router: fabric.NewRouter(f), demands: map[string]traffic.Demand{},
		loads: make([]fabric.Load, len(f.Links)), entries: make([]int64, len(f.Switches)),
	}
	for _, d := range demands {
		l.demands[d.VIP] = d
	}
	return l
}

func (l *ledger) add(vip string, switches []int32, sign int64) {
	l.t.Helper()
	d := l.demands[vip]
	flow, err := l.f.NewFlow(d)
	if err != nil {
		l.t.Fatal(err)
	}
	sum := l.f.NewLoads()
	sum.Add(flow, l.router.Routes(switches))
	for _, link := range sum.Touched {
		l.loads[link] += fabric.Load(sign) * sum.ByLink[link]
	}
	backends := int64(0)
	for _, g := range d.Backends {
		backends += int64(g.Backends)
	}
	n := int64(len(switches))
	for _, sw := range switches {
		l.entries[sw] += sign * ((backends + n - 1) / n)
	}
	l.hosts += sign
}

// overfull says what is used beyond its size, or nothing. VIPs announced for a moment only take entries.
func (l *ledger) overfull() string {
	for link, load := range l.loads {
		if load > 0 && load > l.f.Capacity(int32(link)) {
			return fmt.Sprintf("link %s carries %d of %d", l.f.LinkName(int32(link)), load, l.f.Capacity(int32(link)))
		}
	}
	for sw, n := range l.entries {
		s := l.f.Switches[sw]
		if n > s.Tunnels() || n > s.ECMP() || l.hosts > s.Hosts() && !s.Down {
			return fmt.Sprintf("switch %s has %d of %d tunnels, %d of %d routes", s.Name, n, s.Tunnels(), l.hosts, s.Hosts())
		}
	}
	return ""
}

// check fails if something is used beyond its size.
func (l *ledger) check(what string) {
	l.t.Helper()
	if over := l.overfull(); over != "" {
		l.t.Fatalf("%s: %s", what, over)
	}
}

func TestNothingIsOverfilled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	placed, unplaced := 0, 0
	for range 60 {
		f := drawFabric(t, r)
		demands, policy := drawDemands(r, f, 60), drawPolicy(r)
		current := place(t, f, demands, nil, Policy{Spread: Twins}).Where(f)
		result := place(t, f, demands, current, policy)
		l := newLedger(t, f, demands)
		for _, p := range result.Placed {
			l.add(p.VIP, p.Switches, 1)
		}
		l.check(policy.Algorithm.String())
		for _, u := range result.Unplaced {
			if u.Reason == "" {
				t.Errorf("%v: vip %s is unplaced without a reason", policy.Algorithm, u.VIP)
			}
		}
		if policy.FailureBudget > 0 {
			budget := result.Total/1_000_000*traffic.Rate(policy.FailureBudget) + 1_000_000
			if got := FindFailures(f, result.Placed, 0, 0).Worst(); got > budget {
				t.Errorf("a failure costs %d, the budget is %d", got, budget)
			}
		}
		placed, unplaced = placed+len(result.Placed), unplaced+len(result.Unplaced)
	}
	if placed < 500 || unplaced < 200 {
		t.Errorf("%d VIPs placed, %d not: the draws test one side only", placed, unplaced)
	}
}

func TestTheOrderOfInputDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 1))
	for range 30 {
		f := drawFabric(t, r)
		demands, policy := drawDemands(r, f, 40), drawPolicy(r)
		current := place(t, f, demands, nil, Policy{Spread: Twins, Seed: 7}).Where(f)
		want, err := json.Marshal(place(t, f, demands, current, policy))
		if err != nil {
			t.Fatal(err)
		}
		r.Shuffle(len(demands), func(i, j int) { demands[i], demands[j] = demands[j], demands[i] })
		got, err := json.Marshal(place(t, f, demands, current, policy))
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Fatalf("%v: another order gives another placement", policy.Algorithm)
		}
	}
}

// A placement that fits as a whole stays; and of one that does not, only VIPs move that do not fit at their turn, unless
// an exchange gains by it.
func TestRepairNeverMovesWhatFits(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	for range 40 {
		f := drawFabric(t, r)
		demands := drawDemands(r, f, 50)
		policy := Policy{Spread: Spread(r.IntN(3)), ExchangeWork: -1}
		first := place(t, f, demands, nil, policy)
		second := place(t, f, demands, first.Where(f), policy)
		where := second.Where(f)
		for vip, switches := range first.Where(f) {
			if !slices.Equal(where[vip], switches) {
				t.Fatalf("vip %s moved from %v to %v", vip, switches, where[vip])
			}
		}
		for i := range demands { // other traffic: what Keep keeps, Repair keeps
			demands[i].External = traffic.Rate(r.IntN(1 << 21))
		}
		kept := place(t, f, demands, first.Where(f), Policy{Algorithm: Keep, Spread: policy.Spread}).Where(f)
		where = place(t, f, demands, first.Where(f), policy).Where(f)
		for vip, switches := range kept {
			if !slices.Equal(where[vip], switches) {
				t.Fatalf("vip %s fits at %v and moved to %v", vip, switches, where[vip])
			}
		}
	}
}

func TestMigrationOverfillsNothingInAnyStep(t *testing.T) {
	r := rand.New(rand.NewPCG(4, 1))
	steps, detours := 0, 0
	for range 60 {
		f := drawFabric(t, r)
		demands := drawDemands(r, f, 50)
		from := place(t, f, demands, nil, Policy{Spread: Spread(r.IntN(3)), Seed: 1})
		to := place(t, f, demands, nil, Policy{Algorithm: Random, Spread: Spread(r.IntN(3)), Seed: 2})
		order, err := Migrate(context.Background(), f, demands, from.Where(f), to.Where(f), Policy{})
		if err != nil {
			t.Fatal(err)
		}
		l, where := newLedger(t, f, demands), map[string][]int32{}
		for _, p := range from.Placed {
			l.add(p.VIP, p.Switches, 1)
			where[p.VIP] = p.Switches
		}
		for _, s := range order {
			if over := l.step(s); over != "" {
				t.Fatalf("%s %s: %s", s.Kind, s.VIP, over)
			}
			if steps++; s.Kind == ViaSoftware {
				detours++
			}
			if delete(where, s.VIP); s.To != nil {
				where[s.VIP] = s.To
			}
		}
		want := map[string][]int32{}
		for _, p := range to.Placed {
			want[p.VIP] = p.Switches
		}
		if !reflect.DeepEqual(where, want) {
			t.Fatal("the steps do not lead to the new placement")
		}
	}
	if steps < 500 || detours == 0 {
		t.Errorf("%d steps, %d of them via software: the draws test too little", steps, detours)
	}
}

// step takes entries at the new switches before it frees those at the old ones, then moves the traffic. It says what is
// used beyond its size meanwhile, or nothing.
func (l *ledger) step(s Step) string {
	if s.From != nil && s.To != nil {
		entries, loads := slices.Clone(l.entries), slices.Clone(l.loads)
		l.add(s.VIP, s.To, 1)
		l.loads, l.hosts = loads, l.hosts-1
		if over := l.overfull(); over != "" {
			return "both announce: " + over
		}
		l.entries, l.loads = entries, loads
	}
	if s.From != nil {
		l.add(s.VIP, s.From, -1)
	}
	if s.To != nil {
		l.add(s.VIP, s.To, 1)
	}
	return l.overfull()
}

// pair is a fabric of two racks and two cores, with 10 tunnels on each switch.
func pair(t *testing.T) *fabric.Fabric {
	t.Helper()
	spec, err := fabric.Clos{
		Containers: 1, TorsPerContainer: 2, Cores: 2, TorUplink: 10e6,
		Limits: &fabric.Limits{Hosts: 5, ECMP: 100, Tunnels: 10},
	}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func demand(vip string, rate traffic.Rate, backends int32) traffic.Demand {
	return traffic.Demand{VIP: vip, External: rate, Backends: []traffic.Group{{Rack: 0, Backends: backends}}}
}

// Figure 4: two VIPs of 60 % of a table each swap their switches. The smaller one goes via software.
func TestDeadlockOfTablesIsBrokenBySoftware(t *testing.T) {
	f := pair(t)
	demands := []traffic.Demand{demand("v1", 2000, 6), demand("v2", 1000, 6)}
	steps, err := Migrate(context.Background(), f, demands, Where{"v1": {"core-1"}, "v2": {"core-2"}}, Where{"v1": {"core-2"}, "v2": {"core-1"}}, Policy{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range steps {
		got = append(got, s.Kind.String()+" "+s.VIP)
	}
	if want := "via-software v2, move v1, announce v2"; strings.Join(got, ", ") != want {
		t.Errorf("steps %v, want %s", got, want)
	}
	if got := ThroughSoftware(steps); got != 1000 {
		t.Errorf("%d kbit/s through software, want 1000", got)
	}
}

func TestUnplacedVIPsSayWhy(t *testing.T) {
	f := pair(t)
	tests := map[string]struct {
		demands []traffic.Demand
		policy  Policy
		want    string
	}{
		"tunnels":     {[]traffic.Demand{demand("a", 1000, 11)}, Policy{}, "tunnel table of "},
		"link":        {[]traffic.Demand{demand("a", 17_000_000, 2)}, Policy{}, "link "},
		"never":       {[]traffic.Demand{demand("a", 1000, 1)}, Policy{VIPs: map[string]VIPPolicy{"a": {Never: true}}}, "its policy keeps it"},
		"no backends": {[]traffic.Demand{{VIP: "a", External: 1}}, Policy{}, "it has no backends"},
		"budget":      {[]traffic.Demand{demand("a", 1000, 1)}, Policy{FailureBudget: 100}, "failure budget of "},
		"pin":         {[]traffic.Demand{demand("a", 1000, 20)}, Policy{VIPs: map[string]VIPPolicy{"a": {Pin: []string{"core-1"}}}}, "tunnel table of core-1: needs 20 entries more, 0 of 10 are used"},
		"excluded":    {[]traffic.Demand{demand("a", 1000, 1)}, Policy{Exclude: []string{"core-1", "core-2", "tor-1-1", "tor-1-2"}}, "no switch may take it"},
		"keep":        {[]traffic.Demand{demand("a", 1000, 1)}, Policy{Algorithm: Keep}, "it has no place to keep"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			r := place(t, f, test.demands, nil, test.policy)
			if len(r.Unplaced) != 1 || !strings.Contains(r.Unplaced[0].Reason, test.want) {
				t.Errorf("unplaced %+v, want the reason %q", r.Unplaced, test.want)
			}
		})
	}
	var six []traffic.Demand
	for i := range 6 {
		six = append(six, demand(fmt.Sprint("v", i), traffic.Rate(1000-i), 1))
	}
	if r := place(t, f, six, nil, Policy{}); len(r.Unplaced) != 1 || r.Unplaced[0].VIP != "v5" || !strings.HasPrefix(r.Unplaced[0].Reason, "host tables: ") {
		t.Errorf("unplaced %+v, want v5 for the host tables", r.Unplaced)
	}
}

func TestPinsAndRequirementsGoFirst(t *testing.T) {
	f := pair(t)
	demands := []traffic.Demand{demand("large", 9000, 10), demand("pinned", 100, 10), demand("required", 50, 10)}
	policy := Policy{
		Exclude: []string{"tor-1-1", "tor-1-2"},
		VIPs:    map[string]VIPPolicy{"pinned": {Pin: []string{"core-2"}}, "required": {Require: true}},
	}
	for name, current := range map[string]Where{"fresh": nil, "large is there": {"large": {"core-1"}}} {
		where := place(t, f, demands, current, policy).Where(f)
		if want := (Where{"pinned": {"core-2"}, "required": {"core-1"}}); !reflect.DeepEqual(where, want) {
			t.Errorf("%s: placed %v, want %v", name, where, want)
		}
	}
	policy.VIPs["pinned"] = VIPPolicy{Pin: []string{"core-9"}}
	if _, err := Place(context.Background(), f, demands, nil, policy); err == nil || !strings.Contains(err.Error(), `pin of vip "pinned": there is no switch "core-9"`) {
		t.Errorf("a pin to a switch that is not there: %v", err)
	}
	if _, err := Place(context.Background(), f, append(demands, demands[0]), nil, Policy{}); err == nil || !strings.Contains(err.Error(), `vip "large" has two demands`) {
		t.Errorf("a VIP twice: %v", err)
	}
}

// Of a VIP on switches it is said which resource is the most used, of another what it lacks, and for each kind of
// candidates what the best was.
func TestExplainSaysWhatTheChoiceWas(t *testing.T) {
	f := pair(t)
	demands := []traffic.Demand{demand("large", 9000, 10), demand("next", 800, 6), demand("third", 700, 7), demand("wide", 500, 11), demand("no", 1, 1)}
	policy := Policy{
		Spread: Anycast, Exclude: []string{"tor-1-1"},
		VIPs: map[string]VIPPolicy{"no": {Never: true}, "large": {Pin: []string{"core-1", "core-2"}}},
	}
	result := place(t, f, demands, nil, policy).Where(f)
	for vip, want := range map[string]Explanation{
		"large": {Switches: []string{"core-1", "core-2"}, Turn: 1, Rule: "pin", Resource: SwitchTable, Reason: "tunnel table of core-"},
		"next":  {Switches: result["next"], Turn: 2, Resource: SwitchTable, Reason: "entries are used"},
		"wide":  {Turn: 4, Resource: SwitchTable, Reason: "needs "},
		"no":    {Turn: 5, Rule: "never", Reason: "its policy keeps it"},
	} {
		got, err := Explain(t.Context(), f, demands, nil, policy, vip)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.Switches, want.Switches) || got.Turn != want.Turn || got.Of != 5 || got.Rule != want.Rule ||
			got.Resource != want.Resource || !strings.Contains(got.Reason, want.Reason) {
			t.Errorf("%s: %+v, want %+v", vip, got, want)
		}
		var kinds []string
		for _, o := range got.Options {
			kinds = append(kinds, o.Kind)
			if (o.Fit > 0) != (o.Utilisation <= 1) || o.Fit > o.Candidates || o.Reason == "" || len(o.Switches) == 0 {
				t.Errorf("%s: option %+v", vip, o)
			}
		}
		if slices.Sort(kinds); strings.Join(kinds, ", ") != "ToR, core, core of each plane" && strings.Join(kinds, ", ") != "ToR, all cores, core" {
			t.Errorf("%s: options of %v", vip, kinds)
		}
	}
	if _, err := Explain(t.Context(), f, demands, nil, policy, "other"); err == nil || !strings.Contains(err.Error(), `no vip "other"`) {
		t.Errorf("of a VIP that is not there: %v", err)
	}
}
