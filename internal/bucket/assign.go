package bucket

import (
	"cmp"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// Backend is a backend that takes new flows. Slots are unique among backends.
type Backend struct {
	Slot   model.Slot
	Weight uint32 // 0: in no bucket, as if it were no backend
}

// Assign computes the table of size buckets that follows old. The sizes are powers of two; size
// is at least len(old). Buckets that pinned names (by their number in old; nil: none) keep their
// slot, whoever it is. moved counts the buckets that name another slot than before (all of them if
// old is empty). Without a backend of positive weight there is no table: nil.
func Assign(old []model.Slot, pinned []bool, backends []Backend, size int) (table []model.Slot, moved int) {
	table = double(old, size)
	pins := pins{of: pinned, held: make(map[model.Slot]int)}
	for i, slot := range table {
		if pins.has(i) {
			pins.held[slot]++
		}
	}
	shares, left := share(backends, pins.held, size)
	if len(shares) == 0 {
		return nil, len(old)
	}
	distributeRemainder(shares, table, left)

	// Each backend keeps its pinned buckets and its first others up to its target, and what is free
	// is dealt out in order to the backends that lack some.
	room := make([]int, shares[len(shares)-1].slot+1)
	for _, s := range shares {
		room[s.slot] = s.target - s.pinned
	}
	var free []int
	for i, slot := range table {
		switch {
		case pins.has(i):
		case int(slot) < len(room) && room[slot] > 0:
			room[slot]--
		default:
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

// Grow repeats table until it has size buckets, both powers of two: each flow keeps its slot.
func Grow(table []model.Slot, size int) []model.Slot { return double(table, size) }

// Waiting counts the buckets of table that would move if none of them were pinned.
func Waiting(table []model.Slot, backends []Backend) int {
	_, moved := Assign(table, nil, backends, len(table))
	return moved
}

// pins are the buckets that may not move.
type pins struct {
	of   []bool
	held map[model.Slot]int // how many of them name a slot
}

// has says whether bucket i of a table that may have doubled is one of them.
func (p pins) has(i int) bool { return len(p.of) > 0 && p.of[i&(len(p.of)-1)] }

// stake is what a backend may hold: target is the floor of its exact share until settle decides
// who gets the ceiling.
type stake struct {
	slot      model.Slot
	weight    uint64
	pinned    int // buckets that it keeps in any case
	target    int
	remainder uint64 // of the exact share, in units of which the weight of the level makes a bucket
}

// share returns the stakes of the backends with a weight, by slot, in what pinned buckets of others
// leave of the table, and how many buckets the floors leave over. No floor is below what is pinned to
// the backend: if they are too many together, the level (how many buckets there are for a weight of 1)
// is lowered until they fit.
func share(backends []Backend, pinned map[model.Slot]int, size int) (all []stake, left int) {
	var sum uint64
	room := size
	for _, n := range pinned {
		room -= n
	}
	for _, m := range backends {
		if m.Weight > 0 {
			all = append(all, stake{slot: m.Slot, weight: uint64(m.Weight), pinned: pinned[m.Slot]})
			sum += uint64(m.Weight)
			room += pinned[m.Slot]
		}
	}
	slices.SortFunc(all, func(a, b stake) int { return cmp.Compare(a.slot, b.slot) })
	level := ratio{uint64(room), sum}
	left = room
	for i := range all {
		all[i].target = max(all[i].pinned, int(all[i].weight*level.buckets/sum))
		left -= all[i].target
	}
	for left < 0 {
		level, left = lower(all, left)
	}
	for i := range all {
		if s := &all[i]; s.weight*level.buckets > uint64(s.target)*level.weight {
			s.remainder = s.weight*level.buckets - uint64(s.target)*level.weight
		}
	}
	return all, left
}

// ratio is a level: so many buckets for so much weight.
type ratio struct{ buckets, weight uint64 }

// lower takes one bucket from each backend that has the most of all for its weight, of those that are
// not pinned, and returns the level that they had.
func lower(all []stake, left int) (level ratio, _ int) {
	level = ratio{0, 1}
	for _, s := range all {
		if s.target > s.pinned && uint64(s.target)*level.weight > level.buckets*s.weight {
			level = ratio{uint64(s.target), s.weight}
		}
	}
	for i := range all {
		if s := &all[i]; s.target > s.pinned && uint64(s.target)*level.weight == level.buckets*s.weight {
			s.target--
			left++
		}
	}
	return level, left
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

// distributeRemainder raises targets from floor to ceiling, as many as are left over. A ceiling saves a move
// exactly where the backend holds more than its floor already, so those come first; then the largest
// remainder, then the lowest slot.
func distributeRemainder(shares []stake, table []model.Slot, left int) {
	held := make([]int, shares[len(shares)-1].slot+1)
	for _, slot := range table {
		if int(slot) < len(held) {
			held[slot]++
		}
	}
	var fractional []*stake
	for i := range shares {
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
