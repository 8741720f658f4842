package fabric

import "slices"

// Routes are the paths to and from a set of switches that announce a VIP at once. They do not depend on the VIP.
//
// Routes of a leaf are shared by its class: paths lead to its neighbours, and the links below are added by the leaf.
type Routes struct {
	Members []int32 // ascending

	leaf    int32    // -1 unless the only member is a leaf
	in      []path   // by class, to the set
	outside path     // from outside to the set
	even    []path   // by class, from all members to the class's neighbours, if they receive the same
	uneven  bool     // they do not
	out     [][]path // by member and class; nil unless uneven
}

// Router makes Routes and keeps those of classes. It must not be used by two goroutines at once.
type Router struct {
	f       *Fabric
	w       *walker
	goals   []*goal           // the neighbours of each class
	byClass []*Routes         // of any leaf of the class
	bySw    map[int32]*Routes // of single switches that are no leaves
}

// NewRouter makes a Router of a fabric.
func NewRouter(f *Fabric) *Router {
	r := &Router{f: f, w: newWalker(f), byClass: make([]*Routes, len(f.classes)), bySw: map[int32]*Routes{}}
	for i := range f.classes {
		r.goals = append(r.goals, newGoal(f.classes[i].neighbours, f.classes[i].distance))
	}
	return r
}

// Routes are those of a set of switches that are up. A leaf can only be alone in a set.
func (r *Router) Routes(members []int32) *Routes {
	members = slices.Clone(members)
	slices.Sort(members)
	if len(members) > 1 {
		return r.compute(members)
	}
	sw := members[0]
	l := r.f.Switches[sw].Leaf
	if l < 0 {
		if r.bySw[sw] == nil {
			r.bySw[sw] = r.compute(members)
		}
		return r.bySw[sw]
	}
	c := r.f.leaves[l].class
	if r.byClass[c] == nil {
		r.byClass[c] = r.computeClass(c)
	}
	routes := *r.byClass[c]
	routes.Members, routes.leaf = members, l
	return &routes
}

// computeClass makes the routes that leaves of a class share. The way from a leaf to another class is the same
// whether its traffic comes from a source below it or from its tables.
func (r *Router) computeClass(c int32) *Routes {
	routes := &Routes{}
	own := &r.f.classes[c]
	routes.outside = r.w.fromOutside(r.goals[c])
	for i := range r.f.classes {
		other := &r.f.classes[i]
		routes.in = append(routes.in, r.w.fromClass(other, r.goals[c]))
		out := r.w.fromClass(own, r.goals[i])
		out.down = r.w.shareParts(other.down(out.arrive))
		routes.even = append(routes.even, out)
	}
	return routes
}

func (r *Router) compute(members []int32) *Routes {
	routes := &Routes{Members: members, leaf: -1}
	g := newGoal(members, r.f.distances(members))
	routes.outside = r.w.fromOutside(g)
	even := isEven(routes.outside.arrive)
	for i := range r.f.classes {
		p := r.w.fromClass(&r.f.classes[i], g)
		even = even && isEven(p.arrive)
		routes.in = append(routes.in, p)
	}
	for _, m := range members {
		var out []path
		for i := range r.f.classes {
			c := &r.f.classes[i]
			p := r.w.fromSwitch(m, r.goals[i])
			p.edge = r.w.shareParts(c.down(p.arrive))
			out = append(out, p)
		}
		routes.out = append(routes.out, out)
	}
	routes.merge(r.w)
	if routes.uneven = !even; even {
		routes.out = nil
	}
	return routes
}

// Even says that all members receive the same of every flow, so that loads of flows add up to the load of their sum.
func (r *Routes) Even() bool { return !r.uneven }

// isEven says that all members of a set receive the same.
func isEven(arrive []part) bool { return slices.Min(arrive) == slices.Max(arrive) }

// down is what arrives at the neighbours of a leaf, by link down to it.
func (c *class) down(arrive []part) []part {
	edge := make([]part, len(c.uplinks))
	for i, n := range c.uplinks {
		edge[i] = arrive[n].split(int(c.parallel[n]))
	}
	return edge
}

// merge joins the ways out of all members, each with its equal share.
func (r *Routes) merge(w *walker) {
	n := len(r.Members)
	if n == 1 { // nothing to join; most sets are such
		r.even = r.out[0]
		return
	}
	for c := range w.f.classes {
		edge, levels := make([]part, len(w.f.classes[c].uplinks)), [][]linkPart(nil)
		sum := map[int32]part{}
		for m := range r.Members {
			p := &r.out[m][c]
			for i, e := range p.edge {
				edge[i] += e.split(n)
			}
			for len(levels) < len(p.segments) {
				levels = append(levels, nil)
			}
			for i, s := range p.segments { // all lead to the class: a link has the same distance to it in each
				level := &levels[len(p.segments)-1-i]
				for _, l := range s.links {
					if sum[l.link] == 0 {
						*level = append(*level, linkPart{link: l.link})
					}
					sum[l.link] += l.part.split(n)
				}
			}
		}
		all := path{edge: w.shareParts(edge)}
		for i := len(levels) - 1; i >= 0; i-- {
			for j, l := range levels[i] {
				levels[i][j].part = sum[l.link]
			}
			all.segments = append(all.segments, w.share(levels[i]))
		}
		r.even = append(r.even, all)
	}
}
