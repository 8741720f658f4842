package snat

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// List is the ranges that a workload or a host has of a VIP, as of a write. The zero value is none: nothing follows it.
type List struct {
	Written model.Generation // one write has one list
	Ranges  []model.Range    // in order; read only
}

// Digest tells lists apart, also those of two clusters at the same write; 0: of none.
func (l List) Digest() uint64 {
	if l.Written == 0 {
		return 0
	}
	base := mix(uint64(l.Written))
	return base ^ sumRanges(base, l.Ranges)
}

// Delta is what differs between a list and the one that it follows. Its ranges are in order.
type Delta struct {
	After, Written model.Generation // of the list that it follows, and of the one that it makes
	Added, Removed []model.Range
}

// Since is what differs between before and l; false: l is to be told whole, as it does not follow before, or is no longer
// than the difference.
func (l List) Since(before List) (Delta, bool) {
	d := Delta{After: before.Written, Written: l.Written}
	if before.Written == 0 || l.Written < before.Written {
		return d, false
	}
	d.Added, d.Removed = beyond(l.Ranges, before.Ranges), beyond(before.Ranges, l.Ranges)
	differ := len(d.Added) + len(d.Removed)
	return d, differ < len(l.Ranges) && (differ == 0 || before.Written < l.Written)
}

// beyond are the ranges of a that b has not; both are in order.
func beyond(a, b []model.Range) (left []model.Range) {
	for _, r := range a {
		for len(b) > 0 && b[0] < r {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != r {
			left = append(left, r)
		}
	}
	return left
}

// Apply returns the list that a delta makes of l, or a FieldError: the delta follows another list, or can't be what
// differs from l.
func (l List) Apply(d Delta) (List, error) {
	switch {
	case l.Written == 0:
		return List{}, refuse("after", "is %d, and there is no list that a delta follows", d.After)
	case d.After != l.Written:
		return List{}, refuse("after", "must be %d, which the list at hand was written at, is %d", l.Written, d.After)
	case d.Written < d.After || d.Written == d.After && len(d.Added)+len(d.Removed) > 0:
		return List{}, refuse("after", "must be before %d, which the list is written at, is %d", d.Written, d.After)
	}
	next := make([]model.Range, 0, max(0, len(l.Ranges)+len(d.Added)-len(d.Removed)))
	has, added, removed := l.Ranges, d.Added, d.Removed
	for len(has)+len(added) > 0 {
		switch {
		case len(has) == 0 || len(added) > 0 && added[0] < has[0]:
			next, added = append(next, added[0]), added[1:]
		case len(added) > 0 && added[0] == has[0]:
			return List{}, refuse("added", "has %d, which the list has already", added[0])
		case len(removed) > 0 && removed[0] == has[0]:
			has, removed = has[1:], removed[1:]
		default:
			next, has = append(next, has[0]), has[1:]
		}
	}
	if len(removed) > 0 {
		return List{}, refuse("removed", "has %d, which the list has not", removed[0])
	}
	return List{Written: d.Written, Ranges: slices.Clip(next)}, nil
}

func refuse(field, format string, args ...any) error {
	return &model.FieldError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
