package placement

import (
	"context"
	"fmt"
	"math"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/traffic"
)

// engine holds what is used of each resource. What was applied can be subtracted without rest.
type engine struct {
	f         *fabric.Fabric
	policy    Policy
	router    *fabric.Router
	estimator *fabric.Estimator
	cands     []candidate // the sets, one for each leaf, then sets that are only known from a current place or a pin
	estimated int         // of cands have estimates
	byKey     map[string]int
	byName    map[string]int32

	usage     *fabric.Usage
	trials    [2]trial
	better    int     // index of the trial to keep
	entries   []int64 // tunnel and ECMP entries used, by switch
	groups    []int64 // entries of a VIP at most
	sizes     []int64 // of the smaller of the two tables
	inverses  []float64
	hosts     int64 // VIPs placed
	hostsSize int64

	switchLoss, containerLoss       []fabric.Load // traffic that a failure sends to software
	switchBudget, containerBudget   fabric.Load
	switchInverse, containerInverse float64 // 0 without a budget
	highest                         float64 // utilisation of any resource; only ever raised
	bounds                          []float64
	divided                         bool        // VIPs between the highest tier and containers
	before                          func(*item) // called when it is an item's turn; nil for nobody
}

// item is a VIP to place.
type item struct {
	vip     string
	rate    traffic.Rate
	flow    *fabric.Flow
	policy  VIPPolicy
	avoid   []int32 // switches that it can't be on, ascending
	hash    uint64
	pin     int // candidate, -1 for none
	current int
	at      int
	swapped bool    // by an exchange
	highest bool    // it is to go to the highest tier if there is room
	why     *misfit // that it has no place
}

const unlimited = fabric.Load(math.MaxInt64)

func newEngine(ctx context.Context, f *fabric.Fabric, policy Policy, total traffic.Rate) (*engine, error) {
	e := &engine{
		f: f, policy: policy, router: fabric.NewRouter(f), byKey: map[string]int{}, byName: map[string]int32{},
		usage: f.NewUsage(), entries: make([]int64, len(f.Switches)), hostsSize: math.MaxInt64,
		switchLoss: make([]fabric.Load, len(f.Switches)), containerLoss: make([]fabric.Load, len(f.Switches)),
		switchBudget: unlimited, containerBudget: unlimited,
	}
	for i := range e.trials {
		e.trials[i].loads = f.NewLoads()
	}
	for i, s := range f.Switches {
		e.byName[s.Name] = int32(i)
		size := min(s.Tunnels(), s.ECMP())
		e.sizes = append(e.sizes, size)
		e.inverses = append(e.inverses, 1/max(float64(size), 1e-9))
		group, bounded := policy.Groups[s.Name]
		if !bounded {
			group = math.MaxInt64
		}
		e.groups = append(e.groups, group)
		if !s.Down {
			e.hostsSize = min(e.hostsSize, s.Hosts())
		}
	}
	if policy.FailureBudget > 0 {
		budget := fabric.LoadOf(total) / 1_000_000 * fabric.Load(policy.FailureBudget)
		e.containerBudget, e.switchBudget = max(budget, 1), max(budget/smallSet, 1)
		e.containerInverse, e.switchInverse = 1/float64(e.containerBudget), 1/float64(e.switchBudget)
	}
	excluded := make([]bool, len(f.Switches))
	for _, name := range policy.Exclude {
		sw, ok := e.byName[name]
		if !ok {
			return nil, fmt.Errorf("exclude: there is no switch %q in the fabric: correct the name", name)
		}
		excluded[sw] = true
	}
	return e, e.addCandidates(ctx, excluded)
}

func (e *engine) addCandidates(ctx context.Context, excluded []bool) (err error) {
	var routes []*fabric.Routes
	for _, s := range candidateSets(e.f, e.policy.Spread) {
		if err := ctx.Err(); err != nil {
			return err
		}
		c := newCandidate(e.f, e.router, s.members)
		c.kind = s.kind
		routes = append(routes, c.routes)
		e.addCandidate(c, slices.ContainsFunc(s.members, func(m int32) bool { return excluded[m] }))
	}
	for _, sw := range e.f.LeafSwitches() {
		if sw < 0 {
			e.cands = append(e.cands, candidate{closed: true})
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		c := newCandidate(e.f, e.router, []int32{sw})
		c.kind = "ToR"
		e.addCandidate(c, excluded[sw])
	}
	e.estimated = len(e.cands)
	e.bounds = make([]float64, len(e.cands))
	e.estimator, err = fabric.NewEstimator(ctx, e.f, e.router, e.usage, routes)
	return err
}

func (e *engine) addCandidate(c candidate, closed bool) int {
	c.closed = closed
	e.byKey[keyOf(names(e.f, c.members))] = len(e.cands)
	e.cands = append(e.cands, c)
	return len(e.cands) - 1
}

// find is the candidate of named switches. It says why there is none.
func (e *engine) find(switches []string) (int, error) {
	if i, ok := e.byKey[keyOf(switches)]; ok {
		return i, nil
	}
	var members []int32
	for _, name := range switches {
		sw, ok := e.byName[name]
		switch {
		case !ok:
			return -1, fmt.Errorf("there is no switch %q in the fabric", name)
		case e.f.Switches[sw].Down:
			return -1, fmt.Errorf("switch %q is down", name)
		case len(switches) > 1 && e.f.Switches[sw].Leaf >= 0:
			return -1, fmt.Errorf("switch %q has racks below: it can only announce a VIP alone", name)
		case slices.Contains(members, sw):
			return -1, fmt.Errorf("switch %q is named twice", name)
		}
		members = append(members, sw)
	}
	if len(members) == 0 {
		return -1, fmt.Errorf("no switch is named")
	}
	return e.addCandidate(newCandidate(e.f, e.router, members), true), nil
}

// need is the entries that a VIP takes on each of its switches.
func need(flow *fabric.Flow, c *candidate, whole int64) int64 {
	n := int64(len(c.members))
	if n == 1 || flow.Backends <= whole { // by far most candidates: a division would be felt
		return flow.Backends
	}
	part := (flow.Backends + n - 1) / n
	if whole > 0 {
		part = min(part+1, flow.Backends)
	}
	return part
}

// smallSet is the most switches that may fail at once, besides a container.
const smallSet = 3

// loss is what the failure of one member among three switches sends to software.
func loss(flow *fabric.Flow, c *candidate) fabric.Load {
	switch n := fabric.Load(len(c.members)); {
	case n == 1:
		return flow.Total
	case n <= smallSet:
		return (flow.Total + n - 1) / n
	}
	return 0
}

// apply adds a VIP's use of resources, or, with sign -1, takes it away.
func (e *engine) apply(flow *fabric.Flow, at int, sign int64) {
	c := &e.cands[at]
	t := e.trial(flow, at)
	for _, link := range t.loads.Touched {
		e.usage.Add(link, fabric.Load(sign)*t.loads.ByLink[link])
		e.highest = max(e.highest, e.usage.Utilisation(link, 0))
	}
	e.applyTables(flow, c, sign)
	for _, m := range c.members {
		e.highest = max(e.highest, float64(e.entries[m])*e.inverses[m])
	}
}

// applyTables is apply without links.
func (e *engine) applyTables(flow *fabric.Flow, c *candidate, sign int64) {
	e.hosts += sign
	n, lost := sign*need(flow, c, e.policy.Whole), fabric.Load(sign)*loss(flow, c)
	for _, m := range c.members {
		e.entries[m] += n
		e.switchLoss[m] += lost
	}
	if c.container >= 0 {
		e.containerLoss[c.container] += fabric.Load(sign) * flow.Total
	}
}

// place applies a VIP at a candidate.
func (e *engine) place(it *item, at int) {
	e.apply(it.flow, at, 1)
	it.at, it.why = at, nil
}
