package links

import (
	"maps"
	"time"

	"github.com/weirlb/weir/internal/fabric/cabling"
)

// A link flaps when it has gone up or down flapChanges times within flapTime, until it has stayed as it is for that long.
const (
	flapChanges = 6
	flapTime    = 10 * time.Minute
	// flapPause is the time between two events of it: a switch may have links flap as it likes.
	flapPause = time.Minute
)

// flaps are the ports of the fabric's switches, and how often they go up and down.
type flaps map[portKey]*port

type portKey struct{ of, name string }

type port struct {
	changes uint64
	peer    string      // the switch at the other end, as it was heard last: LLDP forgets it with each change
	times   []time.Time // of the last changes, as they were seen, at most flapChanges
	flaps   bool
}

// observe takes over what switches report of their ports, as of now.
func (f flaps) observe(plan *cabling.Plan, reported map[string][]cabling.Port, now time.Time) {
	there := map[portKey]bool{}
	for of, ports := range reported {
		for _, p := range ports {
			key := portKey{of, p.Name}
			there[key] = true
			at, known := f[key]
			if !known {
				at = &port{changes: p.Changes}
				f[key] = at
			}
			if p.Neighbour != "" {
				at.peer, _ = plan.Name(p.Neighbour)
			}
			more := p.Changes - at.changes
			if p.Changes < at.changes { // its daemon restarted, or the port is another one: which changes are new is not known
				more = 0
			}
			at.changes = p.Changes
			for range min(more, flapChanges) {
				at.times = append(at.times, now)
			}
			at.times = at.times[max(len(at.times)-flapChanges, 0):]
		}
	}
	maps.DeleteFunc(f, func(key portKey, _ *port) bool { return len(reported[key.of]) > 0 && !there[key] })
	for _, p := range f {
		n := len(p.times)
		often := n == flapChanges && now.Sub(p.times[0]) <= flapTime
		p.flaps = often || p.flaps && now.Sub(p.times[n-1]) < flapTime
	}
}

// ends are the ports of one switch to another one.
type ends struct {
	ports, flap int
	port        string // one of those that flap
}

// flap is how many links of a pair flap, and one of their ports, with its switch.
type flap struct {
	links int
	port  string
}

// links are those that are declared and flap. Both ends see that; where both report, both must say so, as one may lie.
func (f flaps) links(plan *cabling.Plan) map[cabling.Pair]flap {
	by := map[cabling.Pair]map[string]ends{}
	for key, p := range f {
		pair := cabling.PairOf(key.of, p.peer)
		if !plan.Declares(pair) {
			continue
		}
		if by[pair] == nil {
			by[pair] = map[string]ends{}
		}
		e := by[pair][key.of]
		e.ports++
		if p.flaps {
			e.flap++
			if e.port == "" || key.name < e.port {
				e.port = key.name
			}
		}
		by[pair][key.of] = e
	}
	all := map[cabling.Pair]flap{}
	for pair, of := range by {
		a, b := of[pair.A], of[pair.B]
		n := max(a.flap, b.flap)
		if a.ports > 0 && b.ports > 0 {
			n = min(a.flap, b.flap)
		}
		switch {
		case n == 0:
		case a.flap > 0:
			all[pair] = flap{n, a.port + " of " + pair.A}
		default:
			all[pair] = flap{n, b.port + " of " + pair.B}
		}
	}
	return all
}
