package rate

import (
	"slices"
	"time"
)

// Keep is how many samples a Ring has at most.
const Keep = 180

// Ring has the newest samples, by when they ended. The zero value has none.
type Ring struct{ samples []*Sample }

// Put adds a sample. One of an interval that the ring has is added to that one; one older than all that it keeps is dropped.
func (r *Ring) Put(s *Sample) {
	i, there := slices.BinarySearchFunc(r.samples, s.At, func(a *Sample, at time.Time) int { return a.At.Compare(at) })
	switch {
	case there:
		r.samples[i] = Merge(r.samples[i], s)
		return
	case i == 0 && len(r.samples) == Keep:
		return
	}
	r.samples = slices.Insert(r.samples, i, s)
	if len(r.samples) > Keep {
		r.samples = slices.Delete(r.samples, 0, 1)
	}
}

// Since are the samples that ended after a time, and not after another one.
func (r *Ring) Since(after, until time.Time) []*Sample {
	i := r.after(after)
	return slices.Clone(r.samples[i:max(i, r.after(until))])
}

// Has says whether the ring has a sample of an interval.
func (r *Ring) Has(at time.Time) bool {
	i := r.after(at)
	return i > 0 && r.samples[i-1].At.Equal(at)
}

// after is how many samples ended at a time or before.
func (r *Ring) after(at time.Time) int {
	i, there := slices.BinarySearchFunc(r.samples, at, func(a *Sample, at time.Time) int { return a.At.Compare(at) })
	if there {
		i++
	}
	return i
}
