package snatport

import (
	"iter"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// QuarantineTime is how long a released range is allocated to no other workload: late packets of its connections are
// dropped and reach no other workload.
const QuarantineTime = 2 * time.Minute

// Allocation is the port ranges that a workload, or a host for its workloads, has of a VIP.
type Allocation struct {
	Host        string        // of the workload, or itself
	Ranges      []model.Range // in order
	Reclaim     []model.Range // of Ranges, those that take no new flow, in order
	Quarantined []Quarantined // released by it, and not free yet
}

// Quarantined are ranges that were released at one time.
type Quarantined struct {
	Since  time.Time
	Ranges []model.Range
}

// Equal says whether both are the same.
func (h Allocation) Equal(other Allocation) bool {
	return h.Host == other.Host && slices.Equal(h.Ranges, other.Ranges) && slices.Equal(h.Reclaim, other.Reclaim) &&
		slices.EqualFunc(h.Quarantined, other.Quarantined, func(a, b Quarantined) bool {
			return a.Since.Equal(b.Since) && slices.Equal(a.Ranges, b.Ranges)
		})
}

// Empty says whether it has no range, nor any in quarantine.
func (h Allocation) Empty() bool { return len(h.Ranges) == 0 && len(h.Quarantined) == 0 }

// Active is how many ranges take new flows.
func (h Allocation) Active() int { return len(h.Ranges) - len(h.Reclaim) }

// Has says whether it has a range, also in quarantine.
func (h Allocation) Has(r model.Range) bool {
	for own := range h.allRanges() {
		if own == r {
			return true
		}
	}
	return false
}

// allRanges are the ranges of h, those in quarantine included.
func (h Allocation) allRanges() iter.Seq[model.Range] {
	return func(yield func(model.Range) bool) {
		for _, r := range h.Ranges {
			if !yield(r) {
				return
			}
		}
		for _, quarantined := range h.Quarantined {
			for _, r := range quarantined.Ranges {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// within returns h with what is above the limit, or must not be given out any more, to be reclaimed.
func (h Allocation) within(limit int, blocked *snat.Set) Allocation {
	over := slices.Clone(h.Reclaim)
	for _, r := range h.Ranges {
		if blocked.Has(r) && !slices.Contains(over, r) {
			over = append(over, r)
		}
	}
	for _, r := range slices.Backward(h.Ranges) {
		if len(h.Ranges)-len(over) <= limit {
			break
		}
		if !slices.Contains(over, r) {
			over = append(over, r)
		}
	}
	slices.Sort(over)
	h.Reclaim = over
	return h
}

// Release returns h without some of its ranges, which go into quarantine.
func (h Allocation) Release(ranges []model.Range, now time.Time) Allocation {
	left := func(from []model.Range) []model.Range {
		var kept []model.Range
		for _, r := range from {
			if !slices.Contains(ranges, r) {
				kept = append(kept, r)
			}
		}
		return kept
	}
	quarantined := Quarantined{Since: now}
	for _, r := range h.Ranges {
		if slices.Contains(ranges, r) {
			quarantined.Ranges = append(quarantined.Ranges, r)
		}
	}
	h.Ranges, h.Reclaim = left(h.Ranges), left(h.Reclaim)
	if len(quarantined.Ranges) > 0 {
		h.Quarantined = append(slices.Clone(h.Quarantined), quarantined)
	}
	return h
}

// EndQuarantine returns h without the ranges whose quarantine is over, and whether there are any.
func (h Allocation) EndQuarantine(isOver func(Quarantined) bool) (Allocation, bool) {
	var left []Quarantined
	for _, r := range h.Quarantined {
		if !isOver(r) {
			left = append(left, r)
		}
	}
	some := len(left) < len(h.Quarantined)
	h.Quarantined = left
	return h, some
}

// without returns h without a range, held or in quarantine.
func (h Allocation) without(r model.Range) Allocation {
	is := func(other model.Range) bool { return other == r }
	h.Ranges, h.Reclaim = slices.DeleteFunc(slices.Clone(h.Ranges), is), slices.DeleteFunc(slices.Clone(h.Reclaim), is)
	var quarantined []Quarantined
	for _, one := range h.Quarantined {
		if one.Ranges = slices.DeleteFunc(slices.Clone(one.Ranges), is); len(one.Ranges) > 0 {
			quarantined = append(quarantined, one)
		}
	}
	h.Quarantined = quarantined
	return h
}

// difference are those of some ranges that are not among others.
func difference(some, others iter.Seq[model.Range]) []model.Range {
	var among snat.Set
	for r := range others {
		among.Add(r)
	}
	var left []model.Range
	for r := range some {
		if !among.Has(r) {
			left = append(left, r)
		}
	}
	return left
}
