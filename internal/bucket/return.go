package bucket

import (
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// Return gives buckets back to the slots that they named before (previous; 0: none): from slots that are
// no backends, to backends, in any case; else where that takes from one that has more than its share and
// gives to one that has less, by way of others if need be. Such a move is always possible: a connection
// of the bucket is with one of the two.
func Return(table, previous []model.Slot, backends []Backend) []model.Slot {
	r := &returns{
		table: slices.Clone(table), surplus: map[model.Slot]int{}, lack: map[model.Slot]int{}, ways: map[way][]int{},
		to: map[model.Slot][]model.Slot{},
	}
	var sum int
	weight := make(map[model.Slot]uint32, len(backends))
	for _, m := range backends {
		sum += int(m.Weight)
		weight[m.Slot] = m.Weight
	}
	if sum == 0 {
		return r.table
	}
	for i, slot := range table {
		from := previous[i]
		if weight[slot] == 0 && weight[from] > 0 {
			slot, from = from, 0
			r.table[i] = slot
		}
		r.surplus[slot]++
		r.lack[slot]--
		if from != 0 && from != slot {
			if w := (way{slot, from}); r.ways[w] == nil {
				r.to[slot] = append(r.to[slot], from)
			}
			r.ways[way{slot, from}] = append(r.ways[way{slot, from}], i)
		}
	}
	for _, m := range backends {
		share := int(m.Weight) * len(table)
		r.surplus[m.Slot] -= (share + sum - 1) / sum
		r.lack[m.Slot] += share / sum
	}
	for path := r.path(); path != nil; path = r.path() {
		r.along(path)
	}
	return r.table
}

// returns is a call of Return.
type returns struct {
	table   []model.Slot
	surplus map[model.Slot]int // buckets above the ceiling of the share
	lack    map[model.Slot]int // buckets below its floor
	ways    map[way][]int      // the buckets that can be given back from one slot to another
	to      map[model.Slot][]model.Slot
}

type way struct{ slot, from model.Slot }

// path is the shortest way from a slot with a surplus to one that lacks buckets, nil if there is none.
func (r *returns) path() []model.Slot {
	before := map[model.Slot]model.Slot{}
	var queue []model.Slot
	for _, slot := range slices.Sorted(maps.Keys(r.surplus)) {
		if r.surplus[slot] > 0 && len(r.to[slot]) > 0 {
			before[slot] = slot
			queue = append(queue, slot)
		}
	}
	for len(queue) > 0 {
		slot := queue[0]
		queue = queue[1:]
		if r.lack[slot] > 0 {
			path := []model.Slot{slot}
			for before[slot] != slot {
				slot = before[slot]
				path = append(path, slot)
			}
			slices.Reverse(path)
			return path
		}
		for _, next := range r.to[slot] {
			if _, seen := before[next]; !seen && len(r.ways[way{slot, next}]) > 0 {
				before[next] = slot
				queue = append(queue, next)
			}
		}
	}
	return nil
}

// along gives back as many buckets as go all along the path. Each bucket is given back once.
func (r *returns) along(path []model.Slot) {
	n := min(r.surplus[path[0]], r.lack[path[len(path)-1]])
	for i, slot := range path[1:] {
		n = min(n, len(r.ways[way{path[i], slot}]))
	}
	for i, slot := range path[1:] {
		w := way{path[i], slot}
		for _, bucket := range r.ways[w][:n] {
			r.table[bucket] = slot
		}
		r.ways[w] = r.ways[w][n:]
	}
	r.surplus[path[0]] -= n
	r.lack[path[len(path)-1]] -= n
}
