package endpoint

import (
	"fmt"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// room is what endpoints take of the tables: slices of buckets and backends, and rows.
type room struct {
	tables            *bpf.Tables
	buckets, backends *alloc.Rows
	ids               *alloc.IDs
}

// reserve finds room for everything that changes write, or for nothing. Room that was given
// back is reused only once no packet can read it any more.
func (r *room) reserve(changes []change) error {
	if err := r.tryReserve(changes); err == nil {
		return nil
	}
	if err := abi.Quiesce(); err != nil {
		return err
	}
	r.buckets.Reclaim()
	r.backends.Reclaim()
	return r.tryReserve(changes)
}

func (r *room) tryReserve(changes []change) error {
	fresh, gone := 0, 0
	for i := range changes {
		c := &changes[i]
		switch {
		case c.next == nil:
			gone++
			continue
		case c.old == nil:
			fresh++
		}
		if err := r.reserveSlices(c); err != nil {
			r.release(changes[:i])
			return err
		}
	}
	if room := len(r.ids.Free); fresh > room {
		r.release(changes)
		return fmt.Errorf("no room in table endpoints: %d new ones, %d rows free, %d to be removed: raise --max-endpoints",
			fresh, room, gone)
	}
	return nil
}

func (r *room) reserveSlices(c *change) error {
	var ok bool
	if c.newBuckets && len(c.next.Buckets) > 0 {
		want := c.next.bucketRowBits()
		if c.buckets, ok = r.buckets.Take(want); !ok {
			return noRoom(r.buckets, c.key, want)
		}
	}
	if c.newBackends {
		want := c.next.slotBits()
		if c.backends, ok = r.backends.Take(want); !ok {
			r.releaseBuckets(c)
			return noRoom(r.backends, c.key, want)
		}
	}
	return nil
}

func noRoom(s *alloc.Rows, key model.EndpointKey, bits int) error {
	return fmt.Errorf("no room in table %s: endpoint %s needs %d rows in a row, %d are free in pieces: raise --max-%[1]s",
		s.Table, key, 1<<bits, s.Room())
}

// release gives back what changes reserved and did not come to use.
func (r *room) release(changes []change) {
	for i := range changes {
		c := &changes[i]
		if c.next == nil {
			continue
		}
		r.releaseBuckets(c)
		if c.newBackends {
			r.backends.Put(c.backends)
		}
	}
}

func (r *room) releaseBuckets(c *change) {
	if c.newBuckets && len(c.next.Buckets) > 0 {
		r.buckets.Put(c.buckets)
	}
}

// writeBuckets fills the rows of a slice of buckets, and those of previous behind them.
func (r *room) writeBuckets(to alloc.Span, e *Live) error {
	if len(e.Buckets) == 0 {
		return nil
	}
	rows := make([]bpf.MuxBucketRow, 1<<to.Bits)
	for i, slot := range e.Buckets {
		word := uint16(slot)
		if e.moves.marks(i) {
			word |= hasMoved
		}
		rows[i/bpf.RowBuckets].Slots[i%bpf.RowBuckets] = word
	}
	for i, slot := range e.Previous {
		if slot != 0 {
			rows[i/bpf.RowBuckets].Slots[i%bpf.RowBuckets] |= hasPrevious
			rows[len(rows)/2+i/bpf.RowBuckets].Slots[i%bpf.RowBuckets] = uint16(slot)
		}
	}
	return bpf.WriteRows(r.tables.Buckets, "buckets", to, rows)
}
