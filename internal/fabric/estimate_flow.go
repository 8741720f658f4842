package fabric

import "slices"

// Estimate raises bounds to the least possible utilisation of the most used link: first of each set, then of each leaf.
// Bounds above 1 are left as they are: nothing fits there. If best is not 0, only so many of the lowest bounds are needed,
// and others are estimated roughly. Stubs have no estimate: their switches are sets.
func (e *Estimator) Estimate(flow *Flow, bounds []float64, best int) {
	for _, x := range flow.Leaves {
		e.leafIn[x.Leaf], e.leafOut[x.Leaf] = float64(x.In), float64(x.Out)
	}
	var s sums
	s.outside = float64(flow.Outside)
	for _, c := range flow.Classes {
		e.classIn[c.Class], e.classOut[c.Class] = float64(c.In), float64(c.Out)
		s.in += float64(c.In)
		s.out += float64(c.Out)
	}
	e.estimateEdges(flow)
	e.round++
	e.lowest = e.lowest[:0]
	enough := 1.0
	for i := len(e.sets) - 1; i >= 0; i-- { // those of several switches first: they are often the best
		if bounds[i] <= enough {
			bounds[i] = max(bounds[i], e.estimateOutline(&e.sets[i], flow, s))
			enough = e.keepLowest(bounds[i], best)
		}
	}
	for c := range e.leaves {
		if o := &e.leaves[c]; len(o.members) > 0 {
			e.estimateLeaves(o, int32(c), flow, s, bounds[len(e.sets):], enough)
		}
	}
	for _, x := range flow.Leaves {
		e.leafIn[x.Leaf], e.leafOut[x.Leaf] = 0, 0
	}
	for _, c := range flow.Classes {
		e.classIn[c.Class], e.classOut[c.Class] = 0, 0
	}
}

// keepLowest takes note of a bound, and returns above which one no other is needed.
func (e *Estimator) keepLowest(bound float64, best int) float64 {
	if best == 0 || bound > 1 {
		return 1
	}
	at, _ := slices.BinarySearch(e.lowest, bound)
	e.lowest = slices.Insert(e.lowest, at, bound)
	if len(e.lowest) < best {
		return 1
	}
	e.lowest = e.lowest[:best]
	return e.lowest[best-1]
}

// sums is what all racks of a flow send and receive, and what comes from outside.
type sums struct{ in, out, outside float64 }

// estimateEdges finds the most used link of all leaves of a class for each way to split.
func (e *Estimator) estimateEdges(flow *Flow) {
	for _, c := range flow.Classes {
		for i := range e.edges[c.Class] {
			x := &e.edges[c.Class][i]
			x.in, x.out, x.inAt, x.outAt = 0, 0, -1, -1
		}
	}
	for _, x := range flow.Leaves {
		ways := e.f.leaves[x.Leaf].ways
		in, out := e.leafIn[x.Leaf], e.leafOut[x.Leaf]
		for i := range e.edges[x.Class] {
			s := &e.edges[x.Class][i]
			for j, h := range ways[:min(len(ways), len(s.parts))] {
				p := s.parts[j]
				if p == 0 {
					continue
				}
				if in > 0 {
					if v := e.u.Utilisation(h.link, float64(in*p)); v > s.in {
						s.in, s.inAt = v, x.Leaf
					}
				}
				if out > 0 {
					if v := e.u.Utilisation(h.link^1, float64(out*p)); v > s.out {
						s.out, s.outAt = v, x.Leaf
					}
				}
			}
		}
	}
}

// estimateProfile finds the most used cells.
func (e *Estimator) estimateProfile(p *profile, flow *Flow) {
	none := valueOf{class: -1}
	top := [3]valueOf{none, none, none}
	for _, c := range flow.Classes {
		v := valueOf{c.Class, e.estimateCell(c.Class, p.cells[c.Class])}
		if v.value <= top[2].value {
			continue
		}
		top[2] = v
		if v.value > top[1].value {
			top[1], top[2] = top[2], top[1]
		}
		if v.value > top[0].value {
			top[0], top[1] = top[1], top[0]
		}
	}
	p.top = top
}

// touches says that racks of a class send or receive.
func (e *Estimator) touches(class int32) bool { return e.classIn[class] > 0 || e.classOut[class] > 0 }

// estimateCell is the utilisation of the most used link of a class in a cell.
func (e *Estimator) estimateCell(class, at int32) float64 {
	x := &e.cells[at]
	worst := 0.0
	if x.inEdges >= 0 {
		worst = e.edges[class][x.inEdges].in
	}
	if x.outEdges >= 0 {
		worst = max(worst, e.edges[class][x.outEdges].out)
	}
	if in := e.classIn[class]; in > 0 {
		for _, l := range x.in {
			worst = max(worst, e.u.of(l.group, float64(in*l.part)))
		}
	}
	if out := e.classOut[class]; out > 0 {
		for _, l := range x.out {
			worst = max(worst, e.u.of(l.group, float64(out*l.part)))
		}
	}
	return worst
}

func (e *Estimator) estimateOutline(o *outline, flow *Flow, s sums) float64 {
	worst := e.estimateUsual(o, flow)
	for _, x := range o.exceptions {
		if e.touches(x.class) {
			worst = max(worst, e.estimateCell(x.class, x.cell))
		}
	}
	for i := range o.inJoints {
		j := &o.inJoints[i]
		worst = max(worst, e.estimateJoint(j.group, j.share.of(s.in, s.outside, e.classIn)))
	}
	for i := range o.outJoints {
		j := &o.outJoints[i]
		worst = max(worst, e.estimateJoint(j.group, j.share.of(s.out, 0, e.classOut)))
	}
	return worst
}

// estimateUsual is the most used of a profile's cells but for those that an outline has of its own.
func (e *Estimator) estimateUsual(o *outline, flow *Flow) float64 {
	p := &e.profiles[o.profile]
	if p.round != e.round {
		p.round = e.round
		e.estimateProfile(p, flow)
	}
	for _, top := range p.top {
		if top.class < 0 || !o.excepts(top.class) {
			return top.value
		}
	}
	worst := 0.0
	for _, c := range flow.Classes {
		if !o.excepts(c.Class) {
			worst = max(worst, e.estimateCell(c.Class, p.cells[c.Class]))
		}
	}
	return worst
}

func (o *outline) excepts(class int32) bool {
	for _, x := range o.exceptions {
		if x.class == class {
			return true
		}
	}
	return false
}

// of is the amount that a share of a flow is.
func (s *share) of(sum, outside float64, byClass []float64) float64 {
	amount := float64(sum*s.common) + float64(outside*s.outside)
	for _, x := range s.others {
		amount += float64(byClass[x.class] * x.value)
	}
	return amount
}

// estimateJoint is the utilisation of a group with some more load, unless that is an error of rounding.
func (e *Estimator) estimateJoint(group int32, amount float64) float64 {
	if amount < 1 {
		return 0
	}
	return e.u.of(group, amount)
}

// estimateLeaves adds to what the leaves of a class have in common the links of each.
func (e *Estimator) estimateLeaves(o *leafOutline, class int32, flow *Flow, s sums, bounds []float64, enough float64) {
	shared := e.estimateOutline(&o.outline, flow, s)
	if shared > enough {
		for i := range o.members {
			l := o.members[i].leaf
			bounds[l] = max(bounds[l], shared)
		}
		return
	}
	for i := range o.shares {
		x := &o.shares[i]
		if x.out {
			x.amount = x.of(s.out, 0, e.classOut)
		} else {
			x.amount = x.of(s.in, s.outside, e.classIn)
		}
	}
	in, out := &e.edges[class][o.inEdges], &e.edges[class][o.outEdges]
	touched := e.touches(class)
	for i := range o.members {
		m := &o.members[i]
		if bounds[m.leaf] > enough {
			continue
		}
		worst := max(bounds[m.leaf], shared)
		if touched && in.inAt != m.leaf {
			worst = max(worst, in.in)
		}
		if touched && out.outAt != m.leaf {
			worst = max(worst, out.out)
		}
		for _, x := range m.ends {
			share := &o.shares[x.share]
			own := e.leafIn[m.leaf]
			if share.out {
				own = e.leafOut[m.leaf]
			}
			worst = max(worst, e.estimateJoint(x.group, share.amount-float64(own*share.own)))
		}
		bounds[m.leaf] = worst
	}
}
