package fabric

import (
	"encoding/binary"
	"iter"
	"math/bits"
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
	amount   []part
	levels   [][]int32
	segments map[string]*segment
	parts    map[string][]part
	key      []byte
	links    []linkPart
}

func newWalker(f *Fabric) *walker {
	return &walker{f: f, amount: make([]part, len(f.Switches)), segments: map[string]*segment{}, parts: map[string][]part{}}
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

// put adds to what a switch has to send on.
func (w *walker) put(sw int32, p part, distance []int32) {
	if w.amount[sw] == 0 {
		d := int(distance[sw])
		for len(w.levels) <= d {
			w.levels = append(w.levels, nil)
		}
		w.levels[d] = append(w.levels[d], sw)
	}
	w.amount[sw] += p
}

// run sends on what was put until it is at the targets, to which distance counts hops.
func (w *walker) run(targets []int32, distance []int32, edge []part) path {
	p := path{}
	if edge != nil {
		p.edge = w.shareParts(edge)
	}
	for d := len(w.levels) - 1; d > 0; d-- {
		if len(w.levels[d]) == 0 {
			continue
		}
		w.links = w.links[:0]
		for i := 0; i < len(w.levels[d]); i++ {
			w.links = w.send(w.levels[d][i], distance, w.links)
		}
		w.levels[d] = w.levels[d][:0]
		p.segments = append(p.segments, w.share(w.links))
	}
	arrive := make([]part, len(targets))
	for i, t := range targets {
		arrive[i], w.amount[t] = w.amount[t], 0
	}
	p.arrive = w.shareParts(arrive)
	if len(w.levels) > 0 {
		w.levels[0] = w.levels[0][:0]
	}
	return p
}

// send splits what a switch has over the links of its shortest paths.
func (w *walker) send(sw int32, distance []int32, links []linkPart) []linkPart {
	ways := 0
	for _, h := range w.f.adjacent[sw] {
		if distance[h.peer] == distance[sw]-1 {
			ways++
		}
	}
	each := w.amount[sw].split(ways)
	w.amount[sw] = 0
	for _, h := range w.f.adjacent[sw] {
		if distance[h.peer] == distance[sw]-1 {
			links = append(links, linkPart{h.link, each})
			w.put(h.peer, each, distance)
		}
	}
	return links
}

// fromClass sends a unit from a leaf that is no target itself.
func (w *walker) fromClass(c *class, targets []int32, distance []int32) path {
	nearest, ways := int32(-1), 0
	for _, n := range c.uplinks {
		switch d := distance[c.neighbours[n]]; {
		case nearest < 0 || d < nearest:
			nearest, ways = d, 1
		case d == nearest:
			ways++
		}
	}
	edge := make([]part, len(c.uplinks))
	for i, n := range c.uplinks {
		if sw := c.neighbours[n]; distance[sw] == nearest {
			edge[i] = whole.split(ways)
			w.put(sw, edge[i], distance)
		}
	}
	return w.run(targets, distance, edge)
}

// fromSwitch sends a unit from a switch.
func (w *walker) fromSwitch(sw int32, targets []int32, distance []int32) path {
	w.put(sw, whole, distance)
	return w.run(targets, distance, nil)
}

// fromOutside sends a unit from outside: it enters at the nearest of the switches for that, evenly.
func (w *walker) fromOutside(targets []int32, distance []int32) path {
	nearest, ways := int32(-1), 0
	for _, sw := range w.f.External {
		switch d := distance[sw]; {
		case nearest < 0 || d < nearest:
			nearest, ways = d, 1
		case d == nearest:
			ways++
		}
	}
	for _, sw := range w.f.External {
		if distance[sw] == nearest {
			w.put(sw, whole.split(ways), distance)
		}
	}
	return w.run(targets, distance, nil)
}
