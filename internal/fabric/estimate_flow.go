package fabric

import (
	"math"
	"slices"
)

// Estimate raises bounds to the least possible utilisation of the most used link: first of each set, then of each leaf.
// Bounds above 1 are left as they are: nothing fits there. If best is not 0, only so many of the lowest bounds are needed,
// and leaves that can't be among them are estimated roughly. Stubs have no estimate: their switches are sets.
func (e *Estimator) Estimate(flow *Flow, u *Usage, bounds []float64, best int) {
	e.round++
	for _, x := range flow.Leaves {
		e.leafIn[x.Leaf], e.leafOut[x.Leaf] = float64(x.In), float64(x.Out)
	}
	for _, c := range flow.Classes {
		e.classIn[c.Class], e.classOut[c.Class] = float64(c.In), float64(c.Out)
	}
	e.estimateEdges(flow, u)
	for i := range e.outlines[:e.sets] {
		if bounds[i] <= 1 {
			bounds[i] = max(bounds[i], e.estimateOutline(&e.outlines[i], flow, u))
		}
	}
	enough := math.Inf(1)
	if best > 0 && best <= e.sets {
		e.sorted = append(e.sorted[:0], bounds[:e.sets]...)
		slices.Sort(e.sorted)
		enough = e.sorted[best-1]
	}
	for c := range e.members {
		if len(e.members[c]) > 0 {
			e.estimateLeaves(&e.outlines[e.sets+c], flow, u, bounds[e.sets:], enough)
		}
	}
	for _, x := range flow.Leaves {
		e.leafIn[x.Leaf], e.leafOut[x.Leaf] = 0, 0
	}
	for _, c := range flow.Classes {
		e.classIn[c.Class], e.classOut[c.Class] = 0, 0
	}
}

// estimateEdges finds the most used link of all leaves of a class for each way to split.
func (e *Estimator) estimateEdges(flow *Flow, u *Usage) {
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
					if v := u.Utilisation(h.link, float64(in*p)); v > s.in {
						s.in, s.inAt = v, x.Leaf
					}
				}
				if out > 0 {
					if v := u.Utilisation(h.link^1, float64(out*p)); v > s.out {
						s.out, s.outAt = v, x.Leaf
					}
				}
			}
		}
	}
}

func (e *Estimator) estimateOutline(o *outline, flow *Flow, u *Usage) float64 {
	worst := 0.0
	var in, out float64
	for _, c := range flow.Classes {
		in += float64(c.In)
		out += float64(c.Out)
		if c.Class != o.class { // leaves of the own class are looked at one by one
			edges := e.edges[c.Class]
			worst = max(worst, edges[o.inEdges[c.Class]].in, edges[o.outEdges[c.Class]].out)
		}
		if b := o.inBundle[c.Class]; b >= 0 && c.In > 0 {
			worst = max(worst, e.estimateBundle(b, float64(c.In), u))
		}
		if b := o.outBundle[c.Class]; b >= 0 && c.Out > 0 {
			worst = max(worst, e.estimateBundle(b, float64(c.Out), u))
		}
	}
	outside := float64(flow.Outside)
	return max(worst, e.estimateJoints(o.inJoints, in, outside, e.classIn, u), e.estimateJoints(o.outJoints, out, 0, e.classOut, u))
}

func (e *Estimator) estimateBundle(i int32, amount float64, u *Usage) float64 {
	b := &e.bundles[i]
	if b.round == e.round {
		return b.worst
	}
	b.round, b.worst = e.round, 0
	if amount > 0 {
		for _, l := range b.links {
			b.worst = max(b.worst, u.Utilisation(l.link, float64(amount*l.weight)))
		}
	}
	return b.worst
}

func (e *Estimator) estimateJoints(joints []joint, sum, outside float64, byClass []float64, u *Usage) float64 {
	worst := 0.0
	for i := range joints {
		j := &joints[i]
		amount := float64(sum*j.common) + float64(outside*j.outside)
		for _, x := range j.others {
			amount += float64(byClass[x.link] * x.weight)
		}
		if amount >= 1 { // less is an error of rounding
			worst = max(worst, u.Utilisation(j.link, amount))
		}
	}
	return worst
}

// estimateLeaves adds to what the leaves of a class have in common the links of each.
func (e *Estimator) estimateLeaves(o *outline, flow *Flow, u *Usage, leaves []float64, enough float64) {
	shared := e.estimateOutline(o, flow, u)
	if shared > enough {
		for _, l := range e.members[o.class] {
			leaves[l] = max(leaves[l], shared)
		}
		return
	}
	n := len(o.outsideArrive)
	arrive, depart := make([]float64, n), make([]float64, n)
	for i := range n {
		arrive[i] = float64(float64(flow.Outside) * o.outsideArrive[i])
		for _, c := range flow.Classes {
			arrive[i] += float64(float64(c.In) * o.inArrive[c.Class][i])
			depart[i] += float64(float64(c.Out) * o.outDepart[c.Class][i])
		}
	}
	inEdges, outEdges := &e.edges[o.class][o.inEdges[o.class]], &e.edges[o.class][o.outEdges[o.class]]
	touched := e.classIn[o.class] > 0 || e.classOut[o.class] > 0
	for _, l := range e.members[o.class] {
		if leaves[l] > min(1, enough) {
			continue
		}
		worst := max(leaves[l], shared)
		if touched && inEdges.inAt != l {
			worst = max(worst, inEdges.in)
		}
		if touched && outEdges.outAt != l {
			worst = max(worst, outEdges.out)
		}
		for i, h := range e.f.leaves[l].ways {
			if in := arrive[i] - float64(e.leafIn[l]*o.inArrive[o.class][i]); in >= 1 {
				worst = max(worst, u.Utilisation(h.link^1, in))
			}
			if out := depart[i] - float64(e.leafOut[l]*o.outDepart[o.class][i]); out >= 1 {
				worst = max(worst, u.Utilisation(h.link, out))
			}
		}
		leaves[l] = worst
	}
}
