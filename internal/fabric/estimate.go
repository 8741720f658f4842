package fabric

import (
	"encoding/binary"
	"slices"
)

// Usage is the load and the inverse of the capacity of each link, in loads.
type Usage struct {
	Load    []Load
	Inverse []float64 // 1 / Capacity; unusable where there is none
}

// unusable makes the utilisation of a link without capacity enormous, yet finite.
const unusable = 1e18

// NewUsage is that of an idle fabric.
func (f *Fabric) NewUsage() *Usage {
	u := &Usage{Load: make([]Load, len(f.Links)), Inverse: make([]float64, len(f.Links))}
	for i := range f.Links {
		u.Inverse[i] = unusable
		if c := f.Capacity(int32(i)); c > 0 {
			u.Inverse[i] = 1 / float64(c)
		}
	}
	return u
}

// Utilisation is that of a link with some more load. The same on every machine: nothing here can be fused.
func (u *Usage) Utilisation(link int32, more float64) float64 {
	return (float64(u.Load[link]) + more) * u.Inverse[link]
}

// weighted is a link and the fraction of a load that takes it.
type weighted struct {
	link   int32
	weight float64
}

// bundle is links that carry traffic of one class alone, with the fraction of each. Many sets share it.
type bundle struct {
	class int32
	out   bool
	links []weighted
	worst float64 // of the flow in hand
	round int     // flow for which worst was computed
}

// edges is one way in which leaves of a class split over their links. Many sets share it.
type edges struct {
	parts       []float64
	in, out     float64 // worst of the flow in hand
	inAt, outAt int32   // leaves where that is
}

// joint is a link near a set that carries traffic of many classes: the same fraction of each, but for some.
type joint struct {
	link    int32
	common  float64
	others  []weighted // class instead of link: what it has more than common
	outside float64
}

// outline is what is estimated of a set's routes.
type outline struct {
	inEdges, outEdges   []int32 // by class: index of edges of that class
	inBundle, outBundle []int32 // by class: index of bundles, -1 for none
	inJoints, outJoints []joint
	inArrive, outDepart [][]float64 // by class: leaf's own links
	outsideArrive       []float64
	class               int32 // of the leaves that share it, -1 for a set
}

// Estimator finds, for many sets of switches at once, a utilisation that the most used link touched by a flow has at
// least. It adds up what one link carries of several classes only near the set; elsewhere it takes each class alone.
// In a regular Clos little else is possible, and most estimates are exact. Members that receive unevenly are taken as
// if they did not: there alone an estimate can be too high.
type Estimator struct {
	f        *Fabric
	edges    [][]edges // by class
	bundles  []bundle
	outlines []outline // of the sets, then of the classes
	sets     int
	members  [][]int32 // leaves by class
	leafIn   []float64 // of the flow in hand
	leafOut  []float64
	classIn  []float64
	classOut []float64
	sorted   []float64
	round    int
	byKey    map[string]int32
}

// NewEstimator prepares estimates for sets, which hold no leaf, and for each leaf.
func NewEstimator(f *Fabric, router *Router, sets []*Routes) *Estimator {
	e := &Estimator{
		f: f, edges: make([][]edges, len(f.classes)), sets: len(sets), members: make([][]int32, len(f.classes)),
		leafIn: make([]float64, len(f.leaves)), leafOut: make([]float64, len(f.leaves)),
		classIn: make([]float64, len(f.classes)), classOut: make([]float64, len(f.classes)), byKey: map[string]int32{},
	}
	for i, l := range f.leaves {
		if l.ways != nil {
			e.members[l.class] = append(e.members[l.class], int32(i))
		}
	}
	for _, r := range sets {
		e.outlines = append(e.outlines, e.outline(r, r.even, -1))
	}
	for c := range f.classes {
		o := outline{class: int32(c)}
		if len(e.members[c]) > 0 {
			r := router.Routes([]int32{f.leaves[e.members[c][0]].sw})
			o = e.outline(r, r.even, int32(c))
		}
		e.outlines = append(e.outlines, o)
	}
	return e
}

func fraction(p part) float64 { return float64(p) / float64(whole) }

func fractions(parts []part) []float64 {
	out := make([]float64, len(parts))
	for i, p := range parts {
		out[i] = fraction(p)
	}
	return out
}

func (e *Estimator) outline(r *Routes, ways []path, own int32) outline {
	o := outline{class: own}
	in, out := make([]*path, len(r.in)), make([]*path, len(ways))
	for c := range r.in {
		in[c], out[c] = &r.in[c], &ways[c]
		down := ways[c].edge
		if own >= 0 {
			down = ways[c].down
			o.inArrive = append(o.inArrive, fractions(e.f.classes[own].down(r.in[c].arrive)))
			o.outDepart = append(o.outDepart, fractions(ways[c].edge))
		}
		o.inEdges = append(o.inEdges, e.edgesOf(c, r.in[c].edge))
		o.outEdges = append(o.outEdges, e.edgesOf(c, down))
	}
	if own >= 0 {
		o.outsideArrive = fractions(e.f.classes[own].down(r.outside.arrive))
	}
	o.inBundle, o.inJoints = e.sort(in, &r.outside, false)
	o.outBundle, o.outJoints = e.sort(out, &path{}, true)
	return o
}

// edgesOf is the index of one way to split among those of a class.
func (e *Estimator) edgesOf(c int, parts []part) int32 {
	p := fractions(parts)
	for i := range e.edges[c] {
		if slices.Equal(e.edges[c][i].parts, p) {
			return int32(i)
		}
	}
	e.edges[c] = append(e.edges[c], edges{parts: p})
	return int32(len(e.edges[c]) - 1)
}

// sort divides the links of paths into those of one class and joint ones.
func (e *Estimator) sort(paths []*path, outside *path, out bool) ([]int32, []joint) {
	byLink := map[int32][]weighted{}
	var order []int32
	note := func(link, class int32, p part) {
		if byLink[link] == nil {
			order = append(order, link)
		}
		byLink[link] = append(byLink[link], weighted{class, fraction(p)})
	}
	for c, p := range paths {
		for _, l := range p.links {
			note(l.link, int32(c), l.part)
		}
	}
	for _, l := range outside.links {
		note(l.link, -1, l.part)
	}
	alone := make([][]weighted, len(paths))
	var joints []joint
	for _, link := range order {
		if by := byLink[link]; len(by) == 1 && by[0].link >= 0 {
			alone[by[0].link] = append(alone[by[0].link], weighted{link, by[0].weight})
		} else {
			joints = append(joints, e.joint(link, by))
		}
	}
	bundles := make([]int32, len(paths))
	for c := range bundles {
		bundles[c] = e.bundleOf(int32(c), out, alone[c])
	}
	return bundles, joints
}

// joint finds the fraction that most classes have.
func (e *Estimator) joint(link int32, by []weighted) joint {
	j := joint{link: link}
	weights := make([]float64, len(e.f.classes))
	for _, w := range by {
		if w.link < 0 {
			j.outside += w.weight
		} else {
			weights[w.link] += w.weight
		}
	}
	count, best := map[float64]int{}, 0
	for _, w := range weights {
		count[w]++
		if count[w] > best {
			best, j.common = count[w], w
		}
	}
	for c, w := range weights {
		if w != j.common {
			j.others = append(j.others, weighted{int32(c), w - j.common})
		}
	}
	return j
}

// bundleOf is the index of links of a class among all bundles, -1 for no links.
func (e *Estimator) bundleOf(c int32, out bool, links []weighted) int32 {
	if len(links) == 0 {
		return -1
	}
	slices.SortFunc(links, func(a, b weighted) int { return int(a.link) - int(b.link) })
	key := binary.AppendVarint(nil, int64(c))
	if out {
		key = append(key, 1)
	}
	for _, l := range links {
		key = binary.AppendVarint(key, int64(l.link))
		key = binary.AppendVarint(key, int64(l.weight*(1<<40)))
	}
	i, ok := e.byKey[string(key)]
	if !ok {
		i = int32(len(e.bundles))
		e.byKey[string(key)] = i
		e.bundles = append(e.bundles, bundle{class: c, out: out, links: links})
	}
	return i
}
