package placement

import (
	"fmt"
	"math"

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

// misfit is a resource that has no room.
type misfit struct {
	cost   float64
	reason string
}

// tables is the cost of a candidate without its links.
func (e *engine) tables(flow *fabric.Flow, c *candidate) float64 {
	n, lost, cost := need(flow, c), loss(flow, c), 0.0
	for _, m := range c.members {
		cost = max(cost, float64(e.entries[m]+n)*e.inverses[m])
		if lost > 0 && e.switchBudget != unlimited {
			cost = max(cost, float64(e.switchLoss[m]+lost)/float64(e.switchBudget))
		}
	}
	if c.container >= 0 && e.containerBudget != unlimited {
		cost = max(cost, float64(e.containerLoss[c.container]+flow.Total)/float64(e.containerBudget))
	}
	return cost
}

// unevenness is how much more than its equal share a member of a set may receive: 1/10.
const unevenness = 10

// try is the cost of a candidate, and the resource that has no room, if there is one.
func (e *engine) try(it *item, at int) (float64, *misfit) {
	c, flow := &e.cands[at], it.flow
	if why := e.tryTables(flow, c); why != nil {
		return why.cost, why
	}
	e.scratch.Clear()
	received := e.scratch.Add(flow, c.routes)
	n := fabric.Load(len(c.members))
	for i, r := range received {
		if r > (flow.Total/n+1)+flow.Total/n/unevenness {
			return 2, &misfit{2, fmt.Sprintf("%s would receive %d kbit/s of %d: sources are too near to one of its switches",
				e.f.Switches[c.members[i]].Name, r.Rate(), flow.Total.Rate())}
		}
	}
	cost := e.tables(flow, c)
	worst, over := int32(-1), 0.0
	for _, link := range e.scratch.Touched {
		u := e.usage.Utilisation(link, float64(e.scratch.ByLink[link]))
		cost = max(cost, u)
		if e.usage.Load[link]+e.scratch.ByLink[link] > e.f.Capacity(link) && (worst < 0 || u > over || u == over && link < worst) {
			worst, over = link, u
		}
	}
	if worst >= 0 {
		return cost, &misfit{cost, fmt.Sprintf("link %s: needs %d kbit/s more, %d of %d are used", e.f.LinkName(worst),
			e.scratch.ByLink[worst].Rate(), e.usage.Load[worst].Rate(), e.f.Capacity(worst).Rate())}
	}
	return cost, nil
}

func (e *engine) tryTables(flow *fabric.Flow, c *candidate) *misfit {
	n, lost := need(flow, c), loss(flow, c)
	for _, m := range c.members {
		name := e.f.Switches[m].Name
		if e.entries[m]+n > e.sizes[m] {
			table := "tunnel"
			if e.f.Switches[m].ECMP() < e.f.Switches[m].Tunnels() {
				table = "ECMP"
			}
			return &misfit{float64(e.entries[m]+n) * e.inverses[m], fmt.Sprintf("%s table of %s: needs %d entries more, %d of %d are used",
				table, name, n, e.entries[m], e.sizes[m])}
		}
		if lost > e.switchBudget-e.switchLoss[m] {
			return &misfit{float64(e.switchLoss[m]+lost) / float64(e.switchBudget), fmt.Sprintf(
				"failure budget of %s: needs %d kbit/s more, %d of %d are used", name, lost.Rate(), e.switchLoss[m].Rate(), e.switchBudget.Rate())}
		}
	}
	if k := c.container; k >= 0 && flow.Total > e.containerBudget-e.containerLoss[k] {
		return &misfit{float64(e.containerLoss[k]+flow.Total) / float64(e.containerBudget), fmt.Sprintf(
			"failure budget of the container of %s: needs %d kbit/s more, %d of %d are used", e.f.Switches[c.members[0]].Name,
			flow.Total.Rate(), e.containerLoss[k].Rate(), e.containerBudget.Rate())}
	}
	return nil
}

// moreTries bounds how many candidates Repair tries after one that fits: a better one would hardly be better.
const moreTries = 2

// choose finds the candidate of least cost that fits. Costs below the floor tie. Estimates, which are hardly ever above
// the cost, decide in which order candidates are tried, and when no better one is left.
func (e *engine) choose(it *item, floor float64) (choice, *misfit) {
	for i := range e.bounds {
		if c := &e.cands[i]; c.closed {
			e.bounds[i] = math.Inf(1)
		} else {
			e.bounds[i] = max(floor, e.tables(it.flow, c))
		}
	}
	tries := 0
	if e.policy.Algorithm == Repair {
		tries = 1 + moreTries
	}
	e.estimator.Estimate(it.flow, e.usage, e.bounds, tries)
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
