package endpoint

import (
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// A bucket that moved is marked as long as a flow may be remembered at another slot than it names, for then packets may not
// leave out the look into the flow table. A cell lasts for the idle timeout unless a packet finds it, and packets that find
// one elsewhere say so. So the mark goes when nobody said so for as long as a cell lasts.

// move is how far a bucket is on the way to lose its mark.
type move uint8

const (
	settled  move = iota
	watched       // moved before the watch began
	movedNow      // moved since
)

// moves are those of an endpoint's buckets, and the watch over them, which begins anew when it ends.
type moves struct {
	buckets []move // as long as the endpoint's; nil: all are settled
	since   uint32 // tick at which the watch began
	watches bool
}

// elsewhereParts are those that packets tell of an endpoint's buckets.
const elsewhereParts = int(bpf.MuxBucketLayoutELSEWHERE_PARTS)

// watchSlack is ticks that a watch has beyond a cell's life: the program rounds, and clocks are read at their edges.
const watchSlack = 3

// watchTicks is how long no flow elsewhere may be seen: a cell's life, flow_ttl() in bpf/mux/flow_table.h.
func watchTicks(idle uint32) uint32 { return idle + idle/16 + watchSlack }

// marks says whether the bucket is marked as moved.
func (m moves) marks(bucket int) bool { return m.buckets != nil && m.buckets[bucket] != settled }

// nextMoves are the moves of next, whose buckets take the place of old's. An endpoint without buckets that had some may be
// remembered with them.
func nextMoves(old, next *Live) moves {
	if old == nil || len(next.Buckets) == 0 {
		return moves{}
	}
	m := moves{since: old.moves.since, watches: old.moves.watches, buckets: make([]move, len(next.Buckets))}
	if len(old.Buckets) == 0 {
		if old.Row.Flags&bpf.MuxEndpointFlagENDPOINT_REMAPPED == 0 {
			return moves{}
		}
		for i := range m.buckets {
			m.buckets[i] = movedNow
		}
		return m
	}
	if rehashes(old, next) {
		for i := range m.buckets {
			m.buckets[i] = movedNow
		}
		return m
	}
	// Both sizes are powers of two: the larger one tells all buckets of both apart.
	for i := range max(len(old.Buckets), len(next.Buckets)) {
		from, to := i%len(old.Buckets), i%len(next.Buckets)
		switch {
		case old.Buckets[from] != next.Buckets[to]:
			m.buckets[to] = movedNow
		case old.moves.marks(from):
			m.buckets[to] = max(m.buckets[to], old.moves.buckets[from])
		}
	}
	return m.orNone()
}

// orNone forgets the watch where there is nothing to watch.
func (m moves) orNone() moves {
	if !slices.ContainsFunc(m.buckets, func(of move) bool { return of != settled }) {
		return moves{}
	}
	return m
}

// readMoves are those that a slice of adopted tables has. Since when is not known.
func readMoves(t *bpf.Tables, from bpf.SlicePair) (moves, error) {
	words, err := readWords(t, from, false)
	if err != nil {
		return moves{}, err
	}
	m := moves{buckets: make([]move, len(words))}
	for i, word := range words {
		if word&hasMoved != 0 {
			m.buckets[i] = movedNow
		}
	}
	return m.orNone(), nil
}

// afterWatch is what is left once a watch ended in which flows elsewhere were seen of these parts.
func (m moves) afterWatch(seen uint64) moves {
	next := moves{buckets: slices.Clone(m.buckets)}
	parts := min(len(m.buckets), elsewhereParts)
	for i, of := range m.buckets {
		elsewhere := false // of small tables several parts are one bucket's
		for part := i % parts; part < elsewhereParts; part += parts {
			elsewhere = elsewhere || seen>>part&1 != 0
		}
		if of == movedNow || of == watched && elsewhere {
			next.buckets[i] = watched
		} else {
			next.buckets[i] = settled
		}
	}
	return next.orNone()
}

// Marks are those of buckets that moved.
type Marks struct{ *Table }

// Settle takes the marks from buckets whose flows are all where they say, at a tick of the flow table's clock.
func (t Marks) Settle(now uint32) error {
	var due []*Live
	for _, live := range t.Live {
		switch m := &live.moves; {
		case m.buckets == nil:
		case !m.watches:
			m.watches, m.since = true, now // what was said before does not matter: all have moved since
		case now-m.since >= watchTicks(max(live.longest, live.Settings.idle)):
			due = append(due, live)
		}
	}
	if len(due) == 0 {
		return nil
	}
	var raw [][]byte
	rows, err := abi.MapRows[uint64](&raw, t.Tables.FlowsElsewhere)
	if err != nil {
		return fmt.Errorf("map table flows_elsewhere: %w", err)
	}
	defer abi.Unmap(&raw)
	seen := make([]uint64, len(due))
	for i, live := range due {
		live.moves.since = now // should anything fail below, the watch is done again
		seen[i] = atomic.SwapUint64(&rows[live.Row.Id], 0)
	}
	if err := abi.Quiesce(); err != nil { // a packet may have found a flow in this watch and say so now
		return err
	}
	for i, live := range due {
		if err := t.settle(live, seen[i]|atomic.LoadUint64(&rows[live.Row.Id]), now); err != nil {
			return err
		}
	}
	return nil
}

// settle ends a watch over an endpoint, and begins the next one if that needs one.
func (t Marks) settle(live *Live, seen uint64, now uint32) error {
	before := live.moves
	live.moves = before.afterWatch(seen)
	if live.moves.buckets != nil {
		live.moves.since, live.moves.watches = now, true
	}
	if slices.Equal(before.buckets, live.moves.buckets) {
		return nil
	}
	pair := bpf.UnpackSlices(live.Row.Slices)
	span, ok := pair.BucketSpan(len(live.Previous) > 0)
	if !ok {
		return nil
	}
	if err := t.room.writeBuckets(span, live); err != nil {
		return fmt.Errorf("take marks from buckets that moved: %w", err)
	}
	return nil
}
