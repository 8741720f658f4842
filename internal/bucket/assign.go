package bucket

import (
	"cmp"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// Member is a backend that takes new flows. Slots are unique among members.
type Member struct {
	Slot   model.Slot
	Weight uint32 // 0: in no bucket, as if it were no member
}

// Assign computes the table of size buckets that follows old. The sizes are powers of two; size
// is at least len(old). moved counts the buckets that name another slot than before (all of them
// if old is empty). Without a member of positive weight there is no table: nil.
func Assign(old []model.Slot, members []Member, size int) (table []model.Slot, moved int) {
	shares := share(members, size)
	if len(shares) == 0 {
		return nil, len(old)
	}
	table = double(old, size)
	settle(shares, table)

	// Each member keeps its first buckets up to its target, and what is free is dealt out in
	// order to the members that lack some.
	room := make([]int, shares[len(shares)-1].slot+1)
	for _, s := range shares {
		room[s.slot] = s.target
	}
	var free []int
	for i, slot := range table {
		if int(slot) < len(room) && room[slot] > 0 {
			room[slot]--
		} else {
			free = append(free, i)
		}
	}
	next := 0
	for _, i := range free {
		for room[shares[next].slot] == 0 {
			next++
		}
		table[i] = shares[next].slot
		room[table[i]]--
	}
	return table, len(free)
}

// stake is what a member may hold: target is the floor of its exact share until settle decides
// who gets the ceiling.
type stake struct {
	slot      model.Slot
	target    int
	remainder uint64 // of the exact share, in units of 1 / the sum of weights
}

// share returns the stakes of the members with a weight, by slot.
func share(members []Member, size int) []stake {
	var sum uint64
	for _, m := range members {
		sum += uint64(m.Weight)
	}
	var shares []stake
	for _, m := range members {
		if m.Weight > 0 {
			exact := uint64(m.Weight) * uint64(size)
			shares = append(shares, stake{m.Slot, int(exact / sum), exact % sum})
		}
	}
	slices.SortFunc(shares, func(a, b stake) int { return cmp.Compare(a.slot, b.slot) })
	return shares
}

// double repeats old until it has size buckets; with no old table all name slot 0.
func double(old []model.Slot, size int) []model.Slot {
	table := make([]model.Slot, size)
	for i := range table {
		if len(old) > 0 {
			table[i] = old[i&(len(old)-1)]
		}
	}
	return table
}

// settle raises targets from floor to ceiling until they sum to the table's size. A ceiling saves
// a move exactly where the member holds more than its floor already, so those come first; then
// the largest remainder, then the lowest slot.
func settle(shares []stake, table []model.Slot) {
	held := make([]int, shares[len(shares)-1].slot+1)
	for _, slot := range table {
		if int(slot) < len(held) {
			held[slot]++
		}
	}
	left := len(table)
	var fractional []*stake
	for i := range shares {
		left -= shares[i].target
		if shares[i].remainder > 0 {
			fractional = append(fractional, &shares[i])
		}
	}
	saves := func(s *stake) int {
		if held[s.slot] > s.target {
			return 1
		}
		return 0
	}
	slices.SortFunc(fractional, func(a, b *stake) int {
		return cmp.Or(
			-cmp.Compare(saves(a), saves(b)),
			-cmp.Compare(a.remainder, b.remainder),
			cmp.Compare(a.slot, b.slot),
		)
	})
	for _, s := range fractional[:left] {
		s.target++
	}
}
