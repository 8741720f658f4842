package placement

import (
	"math"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
)

// choice is a candidate with its cost.
type choice struct {
	at   int // -1 for none
	cost float64
	hash uint64
}

func (a choice) before(b choice) bool {
	return b.at < 0 || a.cost < b.cost || a.cost == b.cost && a.hash < b.hash
}

// tables is the cost of a candidate without its links.
func (e *engine) tables(flow *fabric.Flow, c *candidate) float64 {
	n, lost, cost := need(flow, c, e.policy.Whole), loss(flow, c), 0.0
	for _, m := range c.members {
		cost = max(cost, float64(e.entries[m]+n)*e.inverses[m], float64(e.switchLoss[m]+lost)*e.switchInverse)
	}
	if c.container >= 0 {
		cost = max(cost, float64(e.containerLoss[c.container]+flow.Total)*e.containerInverse)
	}
	return cost
}

// unevenness is how much more than its equal share a member of a set may receive: 1/10.
const unevenness = 10

// isUneven says that one of n members of a set would receive too much of all.
func isUneven(received, all fabric.Load, n int) bool {
	share := all / fabric.Load(n)
	return received > share+1+share/unevenness
}

// try is the cost of a candidate, and the resource that has no room, if there is one.
func (e *engine) try(it *item, at int) (float64, *misfit) {
	c, flow := &e.cands[at], it.flow
	if why := e.tryTables(flow, c); why != nil {
		return why.cost, why
	}
	t := e.trial(flow, at)
	for i, r := range t.received {
		if isUneven(r, flow.Total, len(c.members)) {
			return 2, &misfit{resource: EqualShares, at: c.members[i], cost: 2, need: int64(r), size: int64(flow.Total)}
		}
	}
	cost := e.tables(flow, c)
	worst, over := int32(-1), 0.0
	for _, link := range t.loads.Touched {
		u := e.usage.Utilisation(link, float64(t.loads.ByLink[link]))
		cost = max(cost, u)
		if e.usage.Load[link]+t.loads.ByLink[link] > e.f.Capacity(link) && (worst < 0 || u > over || u == over && link < worst) {
			worst, over = link, u
		}
	}
	if worst >= 0 {
		return cost, newMisfit(LinkBandwidth, worst, t.loads.ByLink[worst], e.usage.Load[worst], e.f.Capacity(worst))
	}
	return cost, nil
}

// mayUse says that the VIP's policy allows a candidate.
func (it *item) mayUse(c *candidate) bool {
	if it.policy.Most > 0 && len(c.members) > it.policy.Most {
		return false
	}
	return !slices.ContainsFunc(c.members, func(m int32) bool {
		_, avoided := slices.BinarySearch(it.avoid, m)
		return avoided
	})
}

// trial is what a flow puts on links at a candidate.
type trial struct {
	flow     *fabric.Flow
	at       int
	loads    *fabric.Loads
	received []fabric.Load
}

// trial computes a trial, unless it is one of the last two. The better one so far is not overwritten.
func (e *engine) trial(flow *fabric.Flow, at int) *trial {
	for i := range e.trials {
		if t := &e.trials[i]; t.flow == flow && t.at == at {
			return t
		}
	}
	t := &e.trials[1-e.better]
	t.loads.Clear()
	t.flow, t.at, t.received = flow, at, t.loads.Add(flow, e.cands[at].routes)
	return t
}

// keepTrial makes a trial the better one.
func (e *engine) keepTrial(flow *fabric.Flow, at int) {
	for i := range e.trials {
		if t := &e.trials[i]; t.flow == flow && t.at == at {
			e.better = i
		}
	}
}

func (e *engine) tryTables(flow *fabric.Flow, c *candidate) *misfit {
	n, lost := need(flow, c, e.policy.Whole), loss(flow, c)
	for _, m := range c.members {
		if n > e.groups[m] {
			return newMisfit(GroupSize, m, n, 0, e.groups[m])
		}
		if e.entries[m]+n > e.sizes[m] {
			return newMisfit(SwitchTable, m, n, e.entries[m], e.sizes[m])
		}
		if lost > e.switchBudget-e.switchLoss[m] {
			return newMisfit(SwitchBudget, m, lost, e.switchLoss[m], e.switchBudget)
		}
	}
	if k := c.container; k >= 0 && flow.Total > e.containerBudget-e.containerLoss[k] {
		return newMisfit(ContainerBudget, c.members[0], flow.Total, e.containerLoss[k], e.containerBudget)
	}
	return nil
}

// moreTries bounds how many candidates Repair tries after one that fits: a better one would hardly be better.
const moreTries = 2

// choose finds the candidate of least cost that fits. Costs below the floor tie. Estimates, which are hardly ever above
// the cost, decide in which order candidates are tried, and when no better one is left.
func (e *engine) choose(it *item, floor float64) (choice, *misfit) {
	if e.divided {
		if best, _ := e.chooseAmong(it, floor, func(c *candidate) bool { return c.container < 0 == it.highest }); best.at >= 0 {
			return best, nil
		}
	}
	return e.chooseAmong(it, floor, func(*candidate) bool { return true })
}

// chooseAmong chooses among some of the candidates.
func (e *engine) chooseAmong(it *item, floor float64, among func(*candidate) bool) (choice, *misfit) {
	for i := range e.bounds {
		if c := &e.cands[i]; c.closed || !among(c) || !it.mayUse(c) {
			e.bounds[i] = math.Inf(1)
		} else {
			e.bounds[i] = max(floor, e.tables(it.flow, c))
		}
	}
	tries := 0
	if e.policy.Algorithm == Repair {
		tries = 1 + moreTries
	}
	e.estimator.Estimate(it.flow, e.bounds, tries)
	best, more := choice{at: -1}, 0
	var nearest *misfit
	for {
		if best.at >= 0 && e.policy.Algorithm == Repair {
			if more++; more > moreTries {
				return best, nearest
			}
		}
		next := e.lowest(it.hash)
		if next.at < 0 || !next.before(best) || next.cost > 1+1e-9 && (best.at >= 0 || nearest != nil) {
			return best, nearest
		}
		e.bounds[next.at] = math.Inf(1)
		cost, why := e.try(it, next.at)
		if why != nil {
			if nearest == nil || why.cost < nearest.cost {
				nearest = why
			}
			continue
		}
		next.cost = max(floor, cost)
		if next.before(best) {
			best = next
			e.keepTrial(it.flow, next.at)
		}
	}
}

// lowest is the candidate of the lowest bound.
func (e *engine) lowest(hash uint64) choice {
	best := choice{at: -1, cost: math.Inf(1)}
	for i, bound := range e.bounds {
		if bound > best.cost || math.IsInf(bound, 1) {
			continue
		}
		if h := mix(hash ^ e.cands[i].hash); bound < best.cost || h < best.hash {
			best = choice{i, bound, h}
		}
	}
	return best
}
