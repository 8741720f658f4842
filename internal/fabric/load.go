package fabric

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/traffic"
)

// Flow is a demand by leaf and class, made for its evaluation at many sets of switches.
type Flow struct {
	Total    Load
	Outside  Load
	Backends int64
	Leaves   []LeafFlow  // ascending
	Classes  []ClassFlow // ascending
}

// LeafFlow is what the racks below a switch send to a VIP and receive from it.
type LeafFlow struct {
	Leaf, Class int32
	In, Out     Load
}

// ClassFlow is the sum over the leaves of a class.
type ClassFlow struct {
	Class   int32
	In, Out Load
}

// maxDemand bounds the rate of a VIP, so that sums of loads stay within 64 bits: 1 Pbit/s.
const maxDemand traffic.Rate = 1e12

// NewFlow checks a demand and sums it up.
func (f *Fabric) NewFlow(d traffic.Demand) (*Flow, error) {
	if d.External < 0 || d.External > maxDemand {
		return nil, fmt.Errorf("vip %q: %d kbit/s from outside: must be from 0 to %d", d.VIP, d.External, maxDemand)
	}
	flow := &Flow{Outside: LoadOf(d.External)}
	sum := d.External
	parts := make([]LeafFlow, 0, len(d.Sources)+len(d.Backends)) // Out counts backends so far
	for _, s := range d.Sources {
		if s.Rack < 0 || int(s.Rack) >= len(f.Racks) {
			return nil, fmt.Errorf("vip %q: source rack %d: the fabric has racks 0 to %d", d.VIP, s.Rack, len(f.Racks)-1)
		}
		if s.Rate < 0 || s.Rate > maxDemand || sum+s.Rate > maxDemand {
			return nil, fmt.Errorf("vip %q: %d kbit/s from rack %q: must be from 0 to %d in all", d.VIP, s.Rate, f.Racks[s.Rack].Name, maxDemand)
		}
		sum += s.Rate
		parts = append(parts, LeafFlow{Leaf: f.Racks[s.Rack].Leaf, In: LoadOf(s.Rate)})
	}
	flow.Total = LoadOf(sum)
	for _, g := range d.Backends {
		if g.Rack < 0 || int(g.Rack) >= len(f.Racks) {
			return nil, fmt.Errorf("vip %q: backends in rack %d: the fabric has racks 0 to %d", d.VIP, g.Rack, len(f.Racks)-1)
		}
		if g.Backends < 1 {
			return nil, fmt.Errorf("vip %q: %d backends in rack %q: must be at least one", d.VIP, g.Backends, f.Racks[g.Rack].Name)
		}
		flow.Backends += int64(g.Backends)
		parts = append(parts, LeafFlow{Leaf: f.Racks[g.Rack].Leaf, Out: Load(g.Backends)})
	}
	f.gather(flow, parts)
	return flow, nil
}

// gather adds up parts by leaf and by class, both in ascending order.
func (f *Fabric) gather(flow *Flow, parts []LeafFlow) {
	slices.SortFunc(parts, func(a, b LeafFlow) int { return cmp.Compare(a.Leaf, b.Leaf) })
	flow.Leaves = make([]LeafFlow, 0, len(parts))
	for len(parts) > 0 {
		leaf, out := LeafFlow{Leaf: parts[0].Leaf, Class: f.leaves[parts[0].Leaf].class}, Load(0)
		for len(parts) > 0 && parts[0].Leaf == leaf.Leaf {
			leaf.In, out, parts = leaf.In+parts[0].In, out+parts[0].Out, parts[1:]
		}
		if leaf.In == 0 && out == 0 {
			continue
		}
		leaf.Out = partOf(out, Load(flow.Backends)).of(flow.Total)
		flow.Leaves = append(flow.Leaves, leaf)
	}
	flow.Classes = make([]ClassFlow, len(flow.Leaves))
	for i, l := range flow.Leaves {
		flow.Classes[i] = ClassFlow{l.Class, l.In, l.Out}
	}
	slices.SortFunc(flow.Classes, func(a, b ClassFlow) int { return cmp.Compare(a.Class, b.Class) })
	n := 0
	for _, c := range flow.Classes {
		if n > 0 && flow.Classes[n-1].Class == c.Class {
			flow.Classes[n-1].In += c.In
			flow.Classes[n-1].Out += c.Out
		} else {
			flow.Classes[n] = c
			n++
		}
	}
	flow.Classes = flow.Classes[:n]
}

// Loads sums up loads by link. Its zero value is not ready: use NewLoads.
type Loads struct {
	f       *Fabric
	ByLink  []Load
	Touched []int32 // links with a load
}

// NewLoads has no load on any link.
func (f *Fabric) NewLoads() *Loads { return &Loads{f: f, ByLink: make([]Load, len(f.Links))} }

// Clear takes all loads away.
func (l *Loads) Clear() {
	for _, link := range l.Touched {
		l.ByLink[link] = 0
	}
	l.Touched = l.Touched[:0]
}

func (l *Loads) add(link int32, load Load) {
	if load == 0 {
		return
	}
	if l.ByLink[link] == 0 {
		l.Touched = append(l.Touched, link)
	}
	l.ByLink[link] += load
}

func (l *Loads) addPath(p *path, load Load) {
	if load != 0 {
		for _, s := range p.segments {
			for _, x := range s.links {
				l.add(x.link, x.part.of(load))
			}
		}
	}
}

// Add puts a flow on its way over the announcing switches, and returns what each of them receives.
func (l *Loads) Add(flow *Flow, r *Routes) []Load {
	ways := r.even
	received := []Load{flow.Total}
	if r.leaf < 0 {
		received = r.received(flow)
		if r.uneven {
			ways = r.mix(l.f, flow, received)
		}
	}
	l.addPath(&r.outside, flow.Outside)
	var ownIn, ownOut Load // the leaf's own racks stay below it
	for _, x := range flow.Leaves {
		if x.Leaf == r.leaf {
			ownIn, ownOut = x.In, x.Out
			continue
		}
		out := ways[x.Class].edge
		if r.leaf >= 0 {
			out = ways[x.Class].down
		}
		for i, h := range l.f.leaves[x.Leaf].ways {
			if x.In != 0 {
				l.add(h.link, r.in[x.Class].edge[i].of(x.In))
			}
			if x.Out != 0 {
				l.add(h.link^1, out[i].of(x.Out))
			}
		}
	}
	for _, c := range flow.Classes {
		if r.leaf >= 0 && c.Class == l.f.leaves[r.leaf].class {
			c.In, c.Out = c.In-ownIn, c.Out-ownOut
		}
		l.addPath(&r.in[c.Class], c.In)
		l.addPath(&ways[c.Class], c.Out)
	}
	if r.leaf >= 0 {
		l.addLeaf(flow, r, ownIn, ownOut)
	}
	return received
}

// addLeaf adds the links of the announcing leaf itself.
func (l *Loads) addLeaf(flow *Flow, r *Routes, ownIn, ownOut Load) {
	own := l.f.leaves[r.leaf]
	c := &l.f.classes[own.class]
	down := func(p *path, load Load) {
		for i, n := range c.uplinks {
			l.add(own.ways[i].link^1, p.arrive[n].split(int(c.parallel[n])).of(load))
		}
	}
	down(&r.outside, flow.Outside)
	for _, x := range flow.Classes {
		if x.Class == own.class {
			x.In, x.Out = x.In-ownIn, x.Out-ownOut
		}
		down(&r.in[x.Class], x.In)
		for i, e := range r.even[x.Class].edge {
			l.add(own.ways[i].link, e.of(x.Out))
		}
	}
}

// received is what each member gets from all sources.
func (r *Routes) received(flow *Flow) []Load {
	received := make([]Load, len(r.Members))
	for m := range r.Members {
		received[m] = r.outside.arrive[m].of(flow.Outside)
		for _, c := range flow.Classes {
			received[m] += r.in[c.Class].arrive[m].of(c.In)
		}
	}
	return received
}

// mix joins the ways out of members that receive unevenly.
func (r *Routes) mix(f *Fabric, flow *Flow, received []Load) []path {
	ways := make([]path, len(f.classes))
	for _, c := range flow.Classes {
		if c.Out == 0 {
			continue
		}
		w := &ways[c.Class]
		w.edge = make([]part, len(f.classes[c.Class].uplinks))
		var links []linkPart
		for m := range r.Members {
			share := partOf(received[m], flow.Total)
			p := &r.out[m][c.Class]
			for i, e := range p.edge {
				w.edge[i] += part(e.of(Load(share)))
			}
			for x := range p.links() {
				links = append(links, linkPart{x.link, part(x.part.of(Load(share)))})
			}
		}
		w.segments = []*segment{{links}}
	}
	return ways
}
