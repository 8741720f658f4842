package switchconfig

import (
	"container/heap"
	"math"
	"net/netip"

	"github.com/weirlb/weir/internal/placementpolicy"
)

// Member is a tunnel of an entry, with its entries of the ECMP group.
type Member struct {
	Tunnel  netip.Addr
	Entries uint32
}

// entriesEach is how many entries of a group a member has on average at most, where shares differ: the error of a share is
// half an entry.
const entriesEach = 4

// Members are those of the entry, in order of address, with at most so many entries in all, if they are not more themselves;
// most 0: the bound is not known.
func (g Group) Members(most uint32) []Member {
	if len(g) == 0 {
		return []Member{}
	}
	n := uint64(len(g))
	total := n
	for _, s := range g {
		if s.Weight != g[0].Weight {
			total = n * entriesEach
		}
	}
	if most > 0 {
		total = min(total, max(uint64(most), n))
	}
	members := g.divide(total)
	reduce(members)
	all := float64(g.weight())
	if few, fits := g.multiples(total); fits && shareError(g, few, all) <= max(shareError(g, members, all), closeEnough) {
		return few
	}
	return members
}

// closeEnough is by which part of its share a member may be off to save entries.
const closeEnough = 0.01

// multiples gives the member of the least weight one entry, and each other one as many as its weight is of that. It returns
// false if these are more than total.
func (g Group) multiples(total uint64) ([]Member, bool) {
	least := uint64(math.MaxUint64)
	for _, s := range g {
		least = min(least, s.Weight)
	}
	members, rows := make([]Member, len(g)), uint64(0)
	for i, s := range g {
		entries := (s.Weight + least/2) / least
		if rows += entries; rows > total {
			return nil, false
		}
		members[i] = Member{s.Tunnel, uint32(entries)}
	}
	return members, true
}

// divide gives each member at least one of so many entries.
func (g Group) divide(total uint64) []Member {
	members, n, sum, left := make([]Member, len(g)), uint64(len(g)), g.weight(), total
	for i, s := range g {
		entries := 1 + (total-n)*s.Weight/sum
		members[i] = Member{s.Tunnel, uint32(entries)}
		left -= entries
	}
	if left == 0 {
		return members
	}
	// Each that is left over goes to the member that has the least of its share.
	need := make(needs, len(g))
	for i := range g {
		need[i] = shortfall{i, int64(total*g[i].Weight) - int64(uint64(members[i].Entries)*sum)}
	}
	heap.Init(&need)
	for ; left > 0; left-- {
		members[need[0].member].Entries++
		need[0].lacks -= int64(sum)
		heap.Fix(&need, 0)
	}
	return members
}

// shortfall is what a member lacks of its share.
type shortfall struct {
	member int
	lacks  int64
}

// needs is a heap whose first lacks most; of equal ones it is the first member.
type needs []shortfall

func (n needs) Len() int      { return len(n) }
func (n needs) Swap(i, j int) { n[i], n[j] = n[j], n[i] }
func (n needs) Less(i, j int) bool {
	return n[i].lacks > n[j].lacks || n[i].lacks == n[j].lacks && n[i].member < n[j].member
}
func (n *needs) Push(x any) { *n = append(*n, x.(shortfall)) }
func (n *needs) Pop() any {
	last := (*n)[len(*n)-1]
	*n = (*n)[:len(*n)-1]
	return last
}

// reduce divides the entries by what all have in common.
func reduce(members []Member) {
	common := uint32(0)
	for _, m := range members {
		for a, b := m.Entries, common; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	for i := range members {
		members[i].Entries /= common
	}
}

// shareError is how far the share of a member is at most from that of its weight in all, as a part of it.
func shareError(g Group, members []Member, all float64) (worst float64) {
	rows := uint64(0)
	for _, m := range members {
		rows += uint64(m.Entries)
	}
	for i, m := range members {
		is, asked := float64(m.Entries)/float64(rows), float64(g[i].Weight)/all
		worst = max(worst, math.Abs(is/asked-1))
	}
	return worst
}

// Size is what an entry takes of a switch's tables, and how near it comes to what is asked for.
type Size struct {
	Members, Entries uint32
	ShareError       float64 // of the tunnel that is off by most: by which part of its share
}

// SizeOf is that of the entry that a switch has of a part of the group. One without weights gives each member the same.
func (g Group) SizeOf(p placementpolicy.Part, most uint32, weights bool) Size {
	part := g.Part(p)
	members := part.Members(most)
	size := Size{Members: uint32(len(members))}
	for i := range members {
		if !weights {
			members[i].Entries = 1
		}
		size.Entries += members[i].Entries
	}
	size.ShareError = shareError(part, members, float64(g.weight())/float64(max(p.Of, 1)))
	return size
}
