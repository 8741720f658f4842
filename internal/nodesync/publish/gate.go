package publish

import (
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// gate computes the newest generation that muxes may have: the one that hosts have acknowledged, or had HostsGrace for.
// Each manager does so for the hosts whose stream it holds, and reports it to the others.
type gate struct {
	grace  time.Duration
	hosts  int                  // open feeds
	wanted map[*HostFeed][]need // by feed, what it has not acknowledged, in order
	others map[string]behind    // managers whose hosts lack something
	opens  time.Time            // before, hosts may not have connected again; zero: they had their time
}

// behind is the generation at which a manager's hosts stopped, and when.
type behind struct {
	ready model.Generation
	since time.Time
}

// need is a generation that a host must have before muxes do.
type need struct {
	generation model.Generation
	since      time.Time
}

// maxNeeds bounds the needs that are kept of one host.
const maxNeeds = 64

func newGate() *gate {
	return &gate{grace: HostsGrace, wanted: map[*HostFeed][]need{}, others: map[string]behind{}}
}

// begin records that the manager started with s. Hosts may have missed what the manager before it wrote last: they get
// HostsGrace to connect.
func (g *gate) begin(s *store.State, now time.Time) {
	for n := range s.Nodes.Values() {
		if n.Role == model.RoleHost {
			g.opens = now.Add(g.grace)
			return
		}
	}
}

// need records that a host must have a generation.
func (g *gate) need(f *HostFeed, generation model.Generation, now time.Time) {
	needs := g.wanted[f]
	if len(needs) >= maxNeeds {
		needs[len(needs)-1].generation = generation
		return
	}
	g.wanted[f] = append(needs, need{generation, now})
}

// ack records what a host has acknowledged. It says whether the gate waited for the host.
func (g *gate) ack(f *HostFeed) bool {
	needs, waited := g.wanted[f]
	for len(needs) > 0 && needs[0].generation <= f.acked {
		needs = needs[1:]
	}
	if g.wanted[f] = needs; len(needs) == 0 {
		delete(g.wanted, f)
		f.late = false
	}
	return waited
}

// forget ends the wait for a host.
func (g *gate) forget(f *HostFeed) { delete(g.wanted, f) }

// ready is the newest generation that all hosts have, or had the time for: those here, and those of the other
// managers. It says after what time that may change by itself; 0: never.
func (g *gate) ready(s *store.State, now time.Time) (own model.Generation, wait time.Duration) {
	own = s.Generation
	for f, needs := range g.wanted {
		left := g.grace - now.Sub(needs[0].since)
		if f.late = f.late || left <= 0; f.late {
			continue
		}
		if before := needs[0].generation - 1; before < own {
			own = before
		}
		wait = soonest(wait, left)
	}
	if left := g.opens.Sub(now); left > 0 && g.missing(s) {
		own, wait = 0, soonest(wait, left)
	}
	return own, wait
}

// missing says whether a host is not connected here that may connect.
func (g *gate) missing(s *store.State) bool {
	registered := 0
	for n := range s.Nodes.Values() {
		if n.Role == model.RoleHost {
			registered++
		}
	}
	return g.hosts < registered
}

// all is what ready says, bounded by what the other managers say of their hosts.
func (g *gate) all(
	others map[string]model.Generation, own model.Generation, wait time.Duration, now time.Time,
) (model.Generation, time.Duration) {
	all := own
	for manager, ready := range others {
		if ready >= own {
			delete(g.others, manager)
			continue
		}
		at, known := g.others[manager]
		if !known || at.ready != ready {
			at = behind{ready, now}
			g.others[manager] = at
		}
		// Such a manager gives its own hosts no longer than the grace.
		if left := 2*g.grace - now.Sub(at.since); left > 0 {
			all, wait = min(all, ready), soonest(wait, left)
		}
	}
	for manager := range g.others {
		if _, there := others[manager]; !there {
			delete(g.others, manager)
		}
	}
	return all, wait
}

// soonest is the lesser of two waits, of which 0 is none.
func soonest(a, b time.Duration) time.Duration {
	if a == 0 || b < a {
		return b
	}
	return a
}
