package fabric

import (
	"encoding/binary"
	"iter"
	"math/bits"
	"slices"
)

// part is a fraction in 2^-partBits, rounded up. whole is 1.
type part uint64

const (
	partBits      = 48
	whole    part = 1 << partBits
)

// of is that part of a load, rounded up.
func (p part) of(l Load) Load {
	hi, lo := bits.Mul64(uint64(l), uint64(p))
	lo, carry := bits.Add64(lo, 1<<partBits-1, 0)
	return Load((hi+carry)<<(64-partBits) | lo>>partBits)
}

// partOf is x as a part of all, rounded up.
func partOf(x, all Load) part {
	if all == 0 {
		return 0
	}
	hi, lo := bits.Mul64(uint64(x), uint64(whole))
	q, rest := bits.Div64(hi, lo, uint64(all))
	if rest > 0 {
		q++
	}
	return part(q)
}

// split is a part over n ways, rounded up.
func (p part) split(n int) part { return (p + part(n) - 1) / part(n) }

// linkPart is the part of a load that takes a link.
type linkPart struct {
	link int32
	part part
}

// segment is the links of a path at one distance from its end. Most paths share theirs with many others: the way up from
// a class, and the way down to a switch.
type segment struct{ links []linkPart }

// path is how one unit of load reaches a set of switches.
type path struct {
	edge     []part     // by way out of the source's class; nil if the source is no leaf
	segments []*segment // all other links; the last is one hop from the end
	arrive   []part     // by member of the set
	down     []part     // from a leaf: what arrives, by link down to a leaf of the class
}

// links are all links but those of edge.
func (p *path) links() iter.Seq[linkPart] {
	return func(yield func(linkPart) bool) {
		for _, s := range p.segments {
			for _, l := range s.links {
				if !yield(l) {
					return
				}
			}
		}
	}
}

// walker sends units of load through the fabric. Its scratch space is reused, and paths share what is equal in them.
type walker struct {
	f        *Fabric
	amount   []part // by switch
	states   []state
	byKey    map[string]int32 // states
	segments map[string]*segment
	parts    map[string][]part
	key      []byte
	start    state
}

// state is what switches at the same distance from a goal have to send on.
type state struct {
	switches []int32
	amounts  []part
}

// goal is a set of switches that units are sent to. What was sent on once from a state is not computed again: most ways
// to a goal end alike.
type goal struct {
	targets  []int32
	distance []int32 // of each switch to the nearest target, in hops
	steps    map[int32]step
	arrived  map[int32][]part
}

// step is one hop of all that a state has: the links, and the state that follows.
type step struct {
	segment *segment
	next    int32
}

func newGoal(targets, distance []int32) *goal {
	return &goal{targets: targets, distance: distance, steps: map[int32]step{}, arrived: map[int32][]part{}}
}

func newWalker(f *Fabric) *walker {
	return &walker{
		f: f, amount: make([]part, len(f.Switches)), byKey: map[string]int32{}, segments: map[string]*segment{},
		parts: map[string][]part{},
	}
}

// share is a segment of links, the same for equal ones.
func (w *walker) share(links []linkPart) *segment {
	w.key = w.key[:0]
	for _, l := range links {
		w.key = binary.AppendUvarint(binary.AppendUvarint(w.key, uint64(l.link)), uint64(l.part))
	}
	s, ok := w.segments[string(w.key)]
	if !ok {
		s = &segment{links: append(make([]linkPart, 0, len(links)), links...)}
		w.segments[string(w.key)] = s
	}
	return s
}

// shareParts is parts, the same for equal ones.
func (w *walker) shareParts(parts []part) []part {
	w.key = w.key[:0]
	for _, p := range parts {
		w.key = binary.AppendUvarint(w.key, uint64(p))
	}
	shared, ok := w.parts[string(w.key)]
	if !ok {
		shared = parts
		w.parts[string(w.key)] = shared
	}
	return shared
}

// put adds to what a switch of a state has to send on.
func (w *walker) put(to *state, sw int32, p part) {
	if w.amount[sw] == 0 {
		to.switches = append(to.switches, sw)
	}
	w.amount[sw] += p
}

// intern takes the amounts of a state and returns its index.
func (w *walker) intern(s *state) int32 {
	w.key, s.amounts = w.key[:0], s.amounts[:0]
	for _, sw := range s.switches {
		p := w.amount[sw]
		w.amount[sw] = 0
		s.amounts = append(s.amounts, p)
		w.key = binary.AppendUvarint(binary.AppendUvarint(w.key, uint64(sw)), uint64(p))
	}
	at, ok := w.byKey[string(w.key)]
	if !ok {
		at = int32(len(w.states))
		w.byKey[string(w.key)] = at
		w.states = append(w.states, state{slices.Clone(s.switches), slices.Clone(s.amounts)})
	}
	s.switches = s.switches[:0]
	return at
}

// run sends on what was put at the start until it is at the targets.
func (w *walker) run(g *goal, edge []part) path {
	p := path{}
	if edge != nil {
		p.edge = w.shareParts(edge)
	}
	at := w.intern(&w.start)
	for len(w.states[at].switches) > 0 && g.distance[w.states[at].switches[0]] > 0 {
		s, ok := g.steps[at]
		if !ok {
			s = w.send(g, at)
			g.steps[at] = s
		}
		p.segments, at = append(p.segments, s.segment), s.next
	}
	arrive, ok := g.arrived[at]
	if !ok {
		for i, sw := range w.states[at].switches {
			w.amount[sw] = w.states[at].amounts[i]
		}
		arrive = make([]part, len(g.targets))
		for i, t := range g.targets {
			arrive[i], w.amount[t] = w.amount[t], 0
		}
		arrive = w.shareParts(arrive)
		g.arrived[at] = arrive
	}
	p.arrive = arrive
	return p
}

// send splits what each switch of a state has over the links of its shortest paths.
func (w *walker) send(g *goal, at int32) step {
	var links []linkPart
	from := w.states[at]
	for i, sw := range from.switches {
		nearer, ways := g.distance[sw]-1, 0
		for _, h := range w.f.adjacent[sw] {
			if g.distance[h.peer] == nearer {
				ways++
			}
		}
		each := from.amounts[i].split(ways)
		for _, h := range w.f.adjacent[sw] {
			if g.distance[h.peer] == nearer {
				links = append(links, linkPart{h.link, each})
				w.put(&w.start, h.peer, each)
			}
		}
	}
	return step{w.share(links), w.intern(&w.start)}
}

// fromClass sends a unit from a leaf that is no target itself.
func (w *walker) fromClass(c *class, g *goal) path {
	nearest, ways := int32(-1), 0
	for _, n := range c.uplinks {
		switch d := g.distance[c.neighbours[n]]; {
		case nearest < 0 || d < nearest:
			nearest, ways = d, 1
		case d == nearest:
			ways++
		}
	}
	edge := make([]part, len(c.uplinks))
	for i, n := range c.uplinks {
		if sw := c.neighbours[n]; g.distance[sw] == nearest {
			edge[i] = whole.split(ways)
			w.put(&w.start, sw, edge[i])
		}
	}
	return w.run(g, edge)
}

// fromSwitch sends a unit from a switch.
func (w *walker) fromSwitch(sw int32, g *goal) path {
	w.put(&w.start, sw, whole)
	return w.run(g, nil)
}

// fromOutside sends a unit from outside: it enters at the nearest of the switches for that, evenly.
func (w *walker) fromOutside(g *goal) path {
	nearest, ways := int32(-1), 0
	for _, sw := range w.f.External {
		switch d := g.distance[sw]; {
		case nearest < 0 || d < nearest:
			nearest, ways = d, 1
		case d == nearest:
			ways++
		}
	}
	for _, sw := range w.f.External {
		if g.distance[sw] == nearest {
			w.put(&w.start, sw, whole.split(ways))
		}
	}
	return w.run(g, nil)
}
