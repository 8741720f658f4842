package faults

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// checkTime bounds the search for an order of one history.
const checkTime = time.Minute

// history is what clients asked and were answered, with times.
type history struct {
	number uint64 // no other history has its values
	began  time.Time

	mu    sync.Mutex
	calls []entry
}

// entry is one call, from when it was sent to when its answer came.
type entry struct {
	call
	answer
	From, To time.Duration
	// Current: the read asked what is there now, not what the manager knows.
	Current bool
}

var histories atomic.Uint64

func newHistory() *history { return &history{number: histories.Add(1), began: time.Now()} }

// add notes a call that was sent at from and is answered now.
func (h *history) add(e entry, from time.Time) {
	e.From, e.To = from.Sub(h.began), time.Since(h.began)
	h.mu.Lock()
	defer h.mu.Unlock()
	h.calls = append(h.calls, e)
}

// entries are the calls so far.
func (h *history) entries() []entry {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.calls)
}

// operations is what porcupine orders: the writes, and the reads of what was there. Managers answer other reads
// from what they know, which may be old: these are looked at by themselves. A write whose outcome is unknown may
// be done at any later time, or never; once somebody has read its value, it was done before that.
func operations(entries []entry) []porcupine.Operation {
	read := map[string]time.Duration{} // when a value was first read
	for _, e := range entries {
		if value := e.answer.Value; e.Kind == get && value != "" {
			if first, known := read[value]; !known || e.To < first {
				read[value] = e.To
			}
		}
	}
	ops := make([]porcupine.Operation, 0, len(entries))
	for _, e := range entries {
		if e.Kind == get && !e.Current {
			continue
		}
		op := porcupine.Operation{ClientId: e.Client, Input: e.call, Output: e.answer, Call: int64(e.From), Return: int64(e.To)}
		if e.Outcome == unknown {
			op.Return = math.MaxInt64
			if first, known := read[e.call.Value]; known {
				op.Return = int64(max(first, e.From))
			}
		}
		ops = append(ops, op)
	}
	return ops
}

// inconsistencies says what of the history no correct store could have answered.
func inconsistencies(entries []entry) []string {
	var wrong []string
	switch porcupine.CheckOperationsTimeout(register, operations(entries), checkTime) {
	case porcupine.Illegal:
		wrong = append(wrong, "the calls have no order in which each has its answer")
	case porcupine.Unknown:
		wrong = append(wrong, fmt.Sprintf("found no order of the calls within %v", checkTime))
	}
	wrong = append(wrong, unwritten(entries)...)
	wrong = append(wrong, versions(entries)...)
	wrong = append(wrong, disorder(entries)...)
	return append(wrong, backwards(entries)...)
}

// unwritten says which reads showed what nobody had written yet.
func unwritten(entries []entry) []string {
	written := map[string]time.Duration{}
	for _, e := range entries {
		if e.call.Value != "" {
			written[e.call.Value] = e.From
		}
	}
	var wrong []string
	for _, e := range entries {
		if e.Kind != get || e.answer.Value == "" {
			continue
		}
		if from, known := written[e.answer.Value]; !known || from > e.To {
			wrong = append(wrong, fmt.Sprintf("%s told %s of %s at %v, which nobody had written", e.Manager, e.answer.Value, e.Name, e.To))
		}
	}
	return wrong
}

// disorder says which writes have versions that do not follow their times.
func disorder(entries []entry) []string {
	var wrong []string
	for _, a := range entries {
		for _, b := range entries {
			if a.Kind != get && b.Kind != get && a.Version != 0 && b.Version != 0 && a.To < b.From && a.Version >= b.Version {
				wrong = append(wrong, fmt.Sprintf("%s of %s was acknowledged at %v with version %d, and %s of %s at %v with %d",
					a.call.Value, a.Name, a.To, a.Version, b.call.Value, b.Name, b.To, b.Version))
			}
		}
	}
	return wrong
}

// versions says which values were told with two versions, and which versions with two values.
func versions(entries []entry) []string {
	var wrong []string
	type place struct {
		name    string
		version uint64
	}
	of, values := map[string]uint64{}, map[place]string{}
	for _, e := range entries {
		value := e.answer.Value
		if e.Kind != get && e.Kind != remove {
			value = e.call.Value
		}
		if e.Version == 0 || value == "" {
			continue
		}
		if first, known := of[value]; known && first != e.Version {
			wrong = append(wrong, fmt.Sprintf("%s holds %s at version %d, and at %d", e.Name, value, first, e.Version))
		}
		of[value] = e.Version
		if other, known := values[place{e.Name, e.Version}]; known && other != value {
			wrong = append(wrong, fmt.Sprintf("version %d of %s is %s, and %s", e.Version, e.Name, other, value))
		}
		values[place{e.Name, e.Version}] = value
	}
	return wrong
}

// backwards says where a manager told an older version of a VIP than it had told before, or than the write that
// it had acknowledged.
func backwards(entries []entry) []string {
	var wrong []string
	type place struct{ manager, name string }
	told := map[place][]entry{}
	for _, e := range entries {
		if e.Version != 0 {
			told[place{e.Manager, e.Name}] = append(told[place{e.Manager, e.Name}], e)
		}
	}
	for at, all := range told {
		slices.SortFunc(all, func(a, b entry) int { return int(a.To - b.To) })
		for _, later := range all {
			if later.Kind != get {
				continue
			}
			for _, earlier := range all {
				if earlier.To < later.From && earlier.Version > later.Version {
					wrong = append(wrong, fmt.Sprintf("%s told version %d of %s at %v, and version %d before, at %v",
						at.manager, later.Version, at.name, later.From, earlier.Version, earlier.To))
					break
				}
			}
		}
	}
	return wrong
}

// consistent holds that the history is one that a correct store answers, and leaves a picture of it if not.
func consistent(t *testing.T, entries []entry) {
	t.Helper()
	count := map[string]int{}
	for _, e := range entries {
		count[string(e.Kind)+" "+string(e.Outcome)]++
	}
	t.Logf("%d calls: %v", len(entries), count)
	wrong := inconsistencies(entries)
	for _, w := range wrong {
		t.Error(w)
	}
	if len(wrong) > 0 {
		draw(t, entries)
	}
}
