package mux

import (
	"fmt"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/model"
)

// hasPrevious marks a bucket that moved lately.
const hasPrevious = uint16(muxBucketLayoutBUCKET_HAS_PREVIOUS)

// writeBuckets fills the rows of a slice of buckets, and those of previous behind them.
func (d *Datapath) writeBuckets(to span, buckets, previous []model.Slot) error {
	if len(buckets) == 0 {
		return nil
	}
	rows := make([]muxBucketRow, 1<<to.bits)
	for i, slot := range buckets {
		rows[i/rowBuckets].Slots[i%rowBuckets] = uint16(slot)
	}
	for i, slot := range previous {
		if slot != 0 {
			rows[i/rowBuckets].Slots[i%rowBuckets] |= hasPrevious
			rows[len(rows)/2+i/rowBuckets].Slots[i%rowBuckets] = uint16(slot)
		}
	}
	return writeRows(d.tables.Buckets, "buckets", to, rows)
}

// readBuckets reads the buckets and what they named before, if any of them says so.
func (t *tables) readBuckets(from slicePair) (buckets, previous []model.Slot, err error) {
	current, marked, err := t.readSlots(from, false)
	if err != nil || !marked {
		return current, nil, err
	}
	previous, _, err = t.readSlots(from, true)
	return current, previous, err
}

// readSlots reads the first half of a slice of buckets, or the previous ones in its second.
func (t *tables) readSlots(from slicePair, previous bool) (slots []model.Slot, marked bool, err error) {
	where, ok := from.bucketSpan(false)
	if !ok {
		return nil, false, nil
	}
	if previous {
		where.first += 1 << where.bits
	}
	rows := make([]muxBucketRow, 1<<where.bits)
	if err := readRows(t.Buckets, "buckets", where, rows); err != nil {
		return nil, false, err
	}
	slots = make([]model.Slot, 1<<from.bucketBits)
	for i := range slots {
		slot := rows[i/rowBuckets].Slots[i%rowBuckets]
		marked = marked || slot&hasPrevious != 0
		slots[i] = model.Slot(slot &^ hasPrevious)
	}
	return slots, marked, nil
}

// writeBackends fills a slice of backends, the slots without one too.
func (d *Datapath) writeBackends(to span, backends []model.MuxBackend) error {
	rows := make([]muxBackend, 1<<to.bits)
	for _, b := range backends {
		rows[b.Slot] = muxBackend{
			Tunnel:  toAddress(b.Tunnel),
			NextHop: d.hops.id(b.Tunnel),
			Flags:   backendFlags(b),
		}
	}
	return writeRows(d.tables.Backends, "backends", to, rows)
}

func backendFlags(b model.MuxBackend) muxBackendFlag {
	flags := muxBackendFlagBACKEND_VALID
	if b.Tunnel.Is4() {
		flags |= muxBackendFlagBACKEND_V4
	}
	if b.Down {
		flags |= muxBackendFlagBACKEND_DOWN
	}
	return flags
}

// readBackends gives the rows that hold a backend, by slot.
func (t *tables) readBackends(from span) (map[model.Slot]muxBackend, error) {
	rows := make([]muxBackend, 1<<from.bits)
	if err := readRows(t.Backends, "backends", from, rows); err != nil {
		return nil, err
	}
	valid := map[model.Slot]muxBackend{}
	for slot, row := range rows {
		if row.Flags&muxBackendFlagBACKEND_VALID != 0 {
			valid[model.Slot(slot)] = row
		}
	}
	return valid, nil
}

func fromBackend(slot model.Slot, row muxBackend) model.MuxBackend {
	return model.MuxBackend{
		Slot: slot, Tunnel: fromAddress(row.Tunnel), Down: row.Flags&muxBackendFlagBACKEND_DOWN != 0,
	}
}

func indices(of span) []uint32 {
	keys := make([]uint32, 1<<of.bits)
	for i := range keys {
		keys[i] = of.first + uint32(i)
	}
	return keys
}

func writeRows[T any](m *ebpf.Map, table string, to span, rows []T) error {
	if _, err := m.BatchUpdate(indices(to), rows, nil); err != nil {
		return fmt.Errorf("write rows of %s: %w", table, err)
	}
	return nil
}

// readRows reads one by one: the kernel's batch lookup can't start in the middle of an array.
func readRows[T any](m *ebpf.Map, table string, from span, rows []T) error {
	for i, key := range indices(from) {
		if err := m.Lookup(key, &rows[i]); err != nil {
			return fmt.Errorf("read row %d of %s: %w", key, table, err)
		}
	}
	return nil
}
