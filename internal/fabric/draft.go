package fabric

import (
	"cmp"
	"encoding/binary"
	"math"
	"slices"
)

// drafter makes the outlines of an Estimator.
type drafter struct {
	e       *Estimator
	cells   map[string]int32
	rows    [][]int32 // cells by class of each outline, in the order in which they were made
	carries []int32   // paths that use a link, of the routes in hand
	slots   []int32   // by link: where its crossings are
	weights []float64 // by class
}

func newDrafter(e *Estimator) *drafter {
	return &drafter{
		e: e, cells: map[string]int32{}, carries: make([]int32, len(e.f.Links)), slots: make([]int32, len(e.f.Links)),
		weights: make([]float64, len(e.f.classes)),
	}
}

func fraction(p part) float64 { return float64(p) / float64(whole) }

func fractions(parts []part) []float64 {
	out := make([]float64, len(parts))
	for i, p := range parts {
		out[i] = fraction(p)
	}
	return out
}

// outline is that of routes of a set or, if own is not -1, of any leaf of that class. Its profile is found later.
func (d *drafter) outline(r *Routes, own int32) outline {
	var o outline
	in, out := d.sort(r.in, &r.outside), d.sort(r.even, nil)
	row := make([]int32, len(r.in))
	for c := range r.in {
		x := cell{inEdges: -1, outEdges: -1, in: in.alone[c], out: out.alone[c]}
		if int32(c) != own { // leaves of the own class are looked at one by one
			down := r.even[c].edge
			if own >= 0 {
				down = r.even[c].down
			}
			x.inEdges, x.outEdges = d.edgesOf(c, r.in[c].edge), d.edgesOf(c, down)
		}
		row[c] = d.cellOf(int32(c), x)
	}
	d.rows = append(d.rows, row)
	o.inJoints, o.outJoints = in.joints, out.joints
	return o
}

// edgesOf is the index of one way to split among those of a class.
func (d *drafter) edgesOf(c int, parts []part) int32 {
	p := fractions(parts)
	for i := range d.e.edges[c] {
		if slices.Equal(d.e.edges[c][i].parts, p) {
			return int32(i)
		}
	}
	d.e.edges[c] = append(d.e.edges[c], edges{parts: p})
	return int32(len(d.e.edges[c]) - 1)
}

// cellOf is the index of a cell of a class among all cells.
func (d *drafter) cellOf(c int32, x cell) int32 {
	var key []byte
	for _, n := range []int32{c, x.inEdges, x.outEdges, int32(len(x.in))} {
		key = binary.AppendVarint(key, int64(n))
	}
	for _, l := range slices.Concat(x.in, x.out) {
		key = binary.AppendUvarint(binary.AppendVarint(key, int64(l.group)), math.Float64bits(l.part))
	}
	i, ok := d.cells[string(key)]
	if !ok {
		i = int32(len(d.e.cells))
		d.cells[string(key)] = i
		d.e.cells = append(d.e.cells, x)
	}
	return i
}

// sorted is links of paths: by class those that carry it alone, and all others.
type sorted struct {
	alone  [][]end
	joints []joint
}

// crossing is a class, or -1 for outside, that takes a link.
type crossing struct {
	link, class int32
	part        part
}

// sort divides the links of paths, one of each class and one from outside, into those of one class and joint ones.
func (d *drafter) sort(paths []path, outside *path) sorted {
	for c := range paths {
		for l := range paths[c].links() {
			d.carries[l.link]++
		}
	}
	var near []crossing
	if outside != nil {
		for l := range outside.links() {
			d.carries[l.link] += 2 // never alone
			near = append(near, crossing{l.link, -1, l.part})
		}
	}
	s := sorted{alone: make([][]end, len(paths))}
	for c := range paths {
		var alone []crossing
		for l := range paths[c].links() {
			if x := (crossing{l.link, int32(c), l.part}); d.carries[l.link] == 1 {
				alone = append(alone, x)
			} else {
				near = append(near, x)
			}
		}
		s.alone[c] = d.ends(alone)
	}
	s.joints = d.joints(near)
	for c := range paths {
		for l := range paths[c].links() {
			d.carries[l.link] = 0
		}
	}
	if outside != nil {
		for l := range outside.links() {
			d.carries[l.link] = 0
		}
	}
	return s
}

// ends groups the links of a class by their parts.
func (d *drafter) ends(alone []crossing) []end {
	slices.SortFunc(alone, func(a, b crossing) int { return cmp.Or(cmp.Compare(a.part, b.part), cmp.Compare(a.link, b.link)) })
	var ends []end
	for len(alone) > 0 {
		var links []int32
		p := alone[0].part
		for len(alone) > 0 && alone[0].part == p {
			links, alone = append(links, alone[0].link), alone[1:]
		}
		for _, g := range d.e.u.groups(links) {
			ends = append(ends, end{g, fraction(p)})
		}
	}
	return ends
}

// joints groups links by the share of a flow that they carry. Links that the same crossings take are many.
func (d *drafter) joints(near []crossing) []joint {
	var shares []share
	var links [][]int32
	var key []byte
	byKey := map[string]int{}
	near = d.orderByLink(near)
	for len(near) > 0 {
		n := 1
		for n < len(near) && near[n].link == near[0].link {
			n++
		}
		key = key[:0]
		for _, x := range near[:n] {
			key = binary.AppendUvarint(binary.AppendVarint(key, int64(x.class)), uint64(x.part))
		}
		i, known := byKey[string(key)]
		if !known {
			s := d.share(near[:n])
			if i = slices.IndexFunc(shares, s.equals); i < 0 {
				i = len(shares)
				shares, links = append(shares, s), append(links, nil)
			}
			byKey[string(key)] = i
		}
		links[i] = append(links[i], near[0].link)
		near = near[n:]
	}
	var joints []joint
	for i, s := range shares {
		for _, g := range d.e.u.groups(links[i]) {
			joints = append(joints, joint{g, s})
		}
	}
	return joints
}

// orderByLink orders crossings, which are in the order of their classes, by link.
func (d *drafter) orderByLink(near []crossing) []crossing {
	var links []int32
	for _, x := range near {
		if d.slots[x.link] == 0 {
			links = append(links, x.link)
		}
		d.slots[x.link]++
	}
	slices.Sort(links)
	at := int32(0)
	for _, link := range links {
		at, d.slots[link] = at+d.slots[link], at
	}
	ordered := make([]crossing, len(near))
	for _, x := range near {
		ordered[d.slots[x.link]] = x
		d.slots[x.link]++
	}
	for _, link := range links {
		d.slots[link] = 0
	}
	return ordered
}

// share sums up what takes a link.
func (d *drafter) share(crossings []crossing) share {
	clear(d.weights)
	var s share
	for _, x := range crossings {
		if x.class < 0 {
			s.outside += float64(fraction(x.part))
		} else {
			d.weights[x.class] += float64(fraction(x.part))
		}
	}
	s.split(d.weights)
	return s
}

// split finds the part that most classes have.
func (s *share) split(weights []float64) {
	count, best := map[float64]int{}, 0
	for _, w := range weights {
		count[w]++
		if count[w] > best {
			best, s.common = count[w], w
		}
	}
	for c, w := range weights {
		if w != s.common {
			s.others = append(s.others, valueOf{int32(c), w - s.common})
		}
	}
}

func (s *share) equals(other share) bool {
	return s.common == other.common && s.outside == other.outside && slices.Equal(s.others, other.others)
}

// addOwn adds what the own links of leaves carry when one announces a VIP.
func (d *drafter) addOwn(o *leafOutline, r *Routes, own int32) {
	class := &d.e.f.classes[own]
	o.inEdges, o.outEdges = d.edgesOf(int(own), r.in[own].edge), d.edgesOf(int(own), r.even[own].down)
	outside := fractions(class.down(r.outside.arrive))
	arrive, depart := make([][]float64, len(r.in)), make([][]float64, len(r.in))
	for c := range r.in {
		arrive[c], depart[c] = fractions(class.down(r.in[c].arrive)), fractions(r.even[c].edge)
	}
	byShare := map[int32][]int{} // ways out
	for way := range class.uplinks {
		in, out := ownShare{share: share{outside: outside[way]}}, ownShare{out: true}
		in.take(d, arrive, way, own)
		out.take(d, depart, way, own)
		for _, s := range []ownShare{in, out} {
			i := slices.IndexFunc(o.shares, func(x ownShare) bool { return x.out == s.out && x.own == s.own && x.equals(s.share) })
			if i < 0 {
				i = len(o.shares)
				o.shares = append(o.shares, s)
			}
			byShare[int32(i)] = append(byShare[int32(i)], way)
		}
	}
	for m := range o.members {
		ways := d.e.f.leaves[o.members[m].leaf].ways
		for i := range o.shares {
			var links []int32
			for _, way := range byShare[int32(i)] {
				link := ways[way].link
				if !o.shares[i].out {
					link ^= 1
				}
				links = append(links, link)
			}
			for _, g := range d.e.u.groups(links) {
				o.members[m].ends = append(o.members[m].ends, ownEnd{g, int32(i)})
			}
		}
	}
}

// take fills a share with the parts of all classes that take a way.
func (s *ownShare) take(d *drafter, parts [][]float64, way int, own int32) {
	for c := range parts {
		d.weights[c] = parts[c][way]
	}
	s.split(d.weights)
	s.own = parts[own][way]
}
