// Package ecmp is an oracle of link loads: a slow and exact walk of a graph by equal-cost paths, in fractions.
//
// It shares no code with internal/fabric, not even its types.
package ecmp

import (
	"math/big"
	"slices"
)

// Link is one direction of a link that is up.
type Link struct{ From, To int32 }

// Graph is switches, numbered from 0 on, and links between them. External are the switches where traffic from outside
// enters.
type Graph struct {
	Switches int
	Links    []Link
	External []int32
}

// Demand is the traffic of a VIP by switches with racks, in any unit.
type Demand struct {
	External int64
	Sources  map[int32]int64
	Backends map[int32]int64 // their number
}

// Loads adds up the load of each link of a graph.
type Loads struct {
	graph  Graph
	ByLink []*big.Rat
}

// NewLoads has no load.
func NewLoads(g Graph) *Loads {
	l := &Loads{graph: g}
	for range g.Links {
		l.ByLink = append(l.ByLink, new(big.Rat))
	}
	return l
}

// far is more hops than any way has.
const far = 1 << 20

// hops counts by relaxation of every link until nothing changes: slow, and obviously right.
func (l *Loads) hops(targets ...int32) []int {
	d := make([]int, l.graph.Switches)
	for i := range d {
		d[i] = far
	}
	for _, t := range targets {
		d[t] = 0
	}
	for changed := true; changed; {
		changed = false
		for _, link := range l.graph.Links {
			if d[link.To]+1 < d[link.From] {
				d[link.From], changed = d[link.To]+1, true
			}
		}
	}
	return d
}

// send moves what is at each switch to the nearest targets and returns what arrives at each.
func (l *Loads) send(at map[int32]*big.Rat, targets ...int32) map[int32]*big.Rat {
	d := l.hops(targets...)
	arrived := map[int32]*big.Rat{}
	for level := slices.Max(d); level >= 0; level-- {
		for sw := range int32(l.graph.Switches) {
			amount := at[sw]
			switch {
			case d[sw] != level || amount == nil:
			case level == 0:
				arrived[sw] = amount
			default:
				l.split(at, sw, d)
			}
		}
	}
	return arrived
}

// split sends what is at a switch over the links of its shortest paths, the same over each.
func (l *Loads) split(at map[int32]*big.Rat, sw int32, d []int) {
	var next []int
	for i, link := range l.graph.Links {
		if link.From == sw && d[link.To] == d[sw]-1 {
			next = append(next, i)
		}
	}
	each := new(big.Rat).Mul(at[sw], big.NewRat(1, int64(len(next))))
	for _, i := range next {
		l.ByLink[i].Add(l.ByLink[i], each)
		give(at, l.graph.Links[i].To, each)
	}
}

func give(at map[int32]*big.Rat, sw int32, amount *big.Rat) {
	if at[sw] == nil {
		at[sw] = new(big.Rat)
	}
	at[sw].Add(at[sw], amount)
}

// Add adds the load of a demand whose VIP the members announce: to the nearest of them, and from there to each backend
// its equal part. What comes from outside enters at the nearest entrances.
func (l *Loads) Add(d Demand, members []int32) {
	at := map[int32]*big.Rat{}
	for sw, rate := range d.Sources {
		give(at, sw, big.NewRat(rate, 1))
	}
	hops, nearest := l.hops(members...), far
	var entrances []int32
	for _, sw := range l.graph.External {
		if hops[sw] < nearest {
			nearest, entrances = hops[sw], nil
		}
		if hops[sw] == nearest {
			entrances = append(entrances, sw)
		}
	}
	for _, sw := range entrances {
		give(at, sw, big.NewRat(d.External, int64(len(entrances))))
	}
	all := int64(0)
	for _, n := range d.Backends {
		all += n
	}
	for m, amount := range l.send(at, members...) {
		for sw, n := range d.Backends {
			l.send(map[int32]*big.Rat{m: new(big.Rat).Mul(amount, big.NewRat(n, all))}, sw)
		}
	}
}
