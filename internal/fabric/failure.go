package fabric

import "slices"

// Without is the fabric once switches, and cables by one of their directions, have failed. Switches that have no way
// to most racks any more count as failed too. Switches and links keep their numbers; racks has the new number of each
// rack, -1 for one that is cut off.
func (f *Fabric) Without(switches, links []int32) (left *Fabric, racks []int32, err error) {
	dead := make([]bool, len(f.Links))
	for _, l := range links {
		dead[l], dead[l^1] = true, true
	}
	live := f.largestPart(switches, dead)
	spec := Spec{LinkShare: f.LinkShare}
	for i, s := range f.Switches {
		limits := s.Limits
		spec.Switches = append(spec.Switches, SwitchSpec{Name: s.Name, Limits: &limits, Down: !live[i]})
	}
	for i := 0; i < len(f.Links); i += 2 {
		l, back := f.Links[i], f.Links[i+1]
		spec.Links = append(spec.Links, LinkSpec{
			A: f.Switches[l.From].Name, B: f.Switches[l.To].Name, Rate: l.Rate,
			Background: l.Background, BackgroundBack: back.Background, Down: l.Down || dead[i],
		})
	}
	for i, r := range f.Racks {
		racks = append(racks, -1)
		if sw := f.RackSwitch(int32(i)); live[sw] {
			racks[i] = int32(len(spec.Racks))
			spec.Racks = append(spec.Racks, RackSpec{Name: r.Name, Switch: f.Switches[sw].Name, Prefixes: r.Prefixes})
		}
	}
	for _, sw := range f.External {
		spec.External = append(spec.External, f.Switches[sw].Name)
	}
	left, err = New(spec)
	return left, racks, err
}

// largestPart says of each switch whether it is in the connected part with most racks that failures leave.
func (f *Fabric) largestPart(failed []int32, dead []bool) []bool {
	part := make([]int32, len(f.Switches)) // -1: not seen yet
	for i := range part {
		part[i] = -1
	}
	for _, sw := range failed {
		part[sw] = int32(len(f.Switches)) // in none
	}
	racks := make([]int, len(f.Switches)+1) // by part
	for i, r := range f.Racks {
		start := f.RackSwitch(int32(i))
		if part[start] < 0 {
			part[start] = r.Leaf
			for queue := []int32{start}; len(queue) > 0; queue = queue[1:] {
				for _, h := range f.adjacent[queue[0]] {
					if part[h.peer] < 0 && !dead[h.link] {
						part[h.peer] = r.Leaf
						queue = append(queue, h.peer)
					}
				}
			}
		}
		racks[part[start]]++
	}
	racks = racks[:len(f.Switches)]
	largest := int32(slices.Index(racks, slices.Max(racks)))
	live := make([]bool, len(f.Switches))
	for i, p := range part {
		live[i] = p == largest && racks[largest] > 0
	}
	return live
}

// RackSwitch is the switch above a rack.
func (f *Fabric) RackSwitch(rack int32) int32 { return f.leaves[f.Racks[rack].Leaf].sw }

// Share is an equal share of what flows are together, as each of n that divide them has it. It is rounded up.
func (f *Fabric) Share(flows []*Flow, n int) *Flow {
	share := &Flow{}
	leaves, classes := make([]LeafFlow, len(f.leaves)), make([]ClassFlow, len(f.classes))
	for _, flow := range flows {
		share.Total, share.Outside = share.Total+flow.Total, share.Outside+flow.Outside
		share.Backends += flow.Backends
		for _, x := range flow.Leaves {
			leaves[x.Leaf].In += x.In
			leaves[x.Leaf].Out += x.Out
		}
	}
	each := func(l Load) Load { return (l + Load(n) - 1) / Load(n) }
	share.Total, share.Outside = each(share.Total), each(share.Outside)
	for i, x := range leaves {
		if x.In == 0 && x.Out == 0 {
			continue
		}
		x.Leaf, x.Class, x.In, x.Out = int32(i), f.leaves[i].class, each(x.In), each(x.Out)
		share.Leaves = append(share.Leaves, x)
		classes[x.Class].In += x.In
		classes[x.Class].Out += x.Out
	}
	for c, x := range classes {
		if x.In != 0 || x.Out != 0 {
			share.Classes = append(share.Classes, ClassFlow{Class: int32(c), In: x.In, Out: x.Out})
		}
	}
	return share
}
