package endpoint

import (
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// hasPrevious marks a bucket that moved lately.
const hasPrevious = uint16(bpf.MuxBucketLayoutBUCKET_HAS_PREVIOUS)

// ReadBuckets reads the buckets and what they named before, if any of them says so.
func ReadBuckets(t *bpf.Tables, from bpf.SlicePair) (buckets, previous []model.Slot, err error) {
	current, marked, err := readSlots(t, from, false)
	if err != nil || !marked {
		return current, nil, err
	}
	previous, _, err = readSlots(t, from, true)
	return current, previous, err
}

// readSlots reads the first half of a slice of buckets, or the previous ones in its second.
func readSlots(t *bpf.Tables, from bpf.SlicePair, previous bool) (slots []model.Slot, marked bool, err error) {
	where, ok := from.BucketSpan(false)
	if !ok {
		return nil, false, nil
	}
	if previous {
		where.First += 1 << where.Bits
	}
	rows := make([]bpf.MuxBucketRow, 1<<where.Bits)
	if err := bpf.ReadRows(t.Buckets, "buckets", where, rows); err != nil {
		return nil, false, err
	}
	slots = make([]model.Slot, 1<<from.BucketBits)
	for i := range slots {
		slot := rows[i/bpf.RowBuckets].Slots[i%bpf.RowBuckets]
		marked = marked || slot&hasPrevious != 0
		slots[i] = model.Slot(slot &^ hasPrevious)
	}
	return slots, marked, nil
}

// writeBackends fills a slice of backends, the slots without one too.
func (t *Table) writeBackends(to alloc.Span, backends []model.MuxBackend) error {
	rows := make([]bpf.MuxBackend, 1<<to.Bits)
	for _, b := range backends {
		rows[b.Slot] = bpf.MuxBackend{
			Tunnel:  bpf.ToAddress(b.Tunnel),
			NextHop: t.Hops.ID(b.Tunnel),
			Flags:   bpf.BackendFlags(b),
		}
	}
	return bpf.WriteRows(t.Tables.Backends, "backends", to, rows)
}

// ReadBackends gives the rows that hold a backend, by slot.
func ReadBackends(t *bpf.Tables, from alloc.Span) (map[model.Slot]bpf.MuxBackend, error) {
	rows := make([]bpf.MuxBackend, 1<<from.Bits)
	if err := bpf.ReadRows(t.Backends, "backends", from, rows); err != nil {
		return nil, err
	}
	valid := map[model.Slot]bpf.MuxBackend{}
	for slot, row := range rows {
		if row.Flags&bpf.MuxBackendFlagBACKEND_VALID != 0 {
			valid[model.Slot(slot)] = row
		}
	}
	return valid, nil
}

// FromBackend is what a backend's row says.
func FromBackend(slot model.Slot, row bpf.MuxBackend) model.MuxBackend {
	return model.MuxBackend{
		Slot: slot, Tunnel: bpf.FromAddress(row.Tunnel), Down: row.Flags&bpf.MuxBackendFlagBACKEND_DOWN != 0,
		Host: uint32(row.Flags >> bpf.MuxBackendFlagBACKEND_HOST_SHIFT),
	}
}
