package switchconfig

import (
	"github.com/weirlb/weir/internal/placementpolicy"
)

// sliver is up to which share of a part, one in so many, a member's piece is left to the part beside it: entries of a group
// are no finer.
const sliver = 32

// Part is a part of the group: the shares are laid end to end and cut into pieces of equal weight, so that routers, who
// bring each switch the same, bring each tunnel its share. A member that a cut goes through is in both parts. When members
// come and go, each cut moves by less than their weight: the parts of other members stay.
func (g Group) Part(p placementpolicy.Part) Group {
	if p.Of < 2 || len(g) == 0 {
		return g
	}
	from, to := g.cut(p.Number-1, p.Of), g.cut(p.Number, p.Of)
	var part Group
	at := uint64(0)
	for _, s := range g {
		begin, end := max(at, from), min(at+s.Weight, to)
		if begin < end {
			part = append(part, Share{s.Tunnel, end - begin})
		}
		at += s.Weight
	}
	return part
}

// weight is that of all members.
func (g Group) weight() (sum uint64) {
	for _, s := range g {
		sum += s.Weight
	}
	return sum
}

// cut is where the n-th part ends: between two members if that is near enough.
func (g Group) cut(n, of uint32) uint64 {
	sum := g.weight()
	exact := sum * uint64(n) / uint64(of)
	at, nearest := uint64(0), uint64(0)
	for _, s := range g {
		if at += s.Weight; distance(at, exact) < distance(nearest, exact) {
			nearest = at
		}
	}
	if distance(nearest, exact) <= sum/uint64(of)/sliver {
		return nearest
	}
	return exact
}

func distance(a, b uint64) uint64 { return max(a, b) - min(a, b) }
