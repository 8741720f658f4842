package endpoint

import (
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// What is marked beside a bucket's slot.
const (
	hasPrevious = uint16(bpf.MuxBucketLayoutBUCKET_HAS_PREVIOUS)
	hasMoved    = uint16(bpf.MuxBucketLayoutBUCKET_MOVED)
)

// ReadBuckets reads the buckets and what they named before, if any of them says so.
func ReadBuckets(t *bpf.Tables, from bpf.SlicePair) (buckets, previous []model.Slot, err error) {
	words, err := readWords(t, from, false)
	if err != nil {
		return nil, nil, err
	}
	buckets, marks := slotsOf(words)
	if marks&hasPrevious == 0 {
		return buckets, nil, nil
	}
	if words, err = readWords(t, from, true); err != nil {
		return nil, nil, err
	}
	previous, _ = slotsOf(words)
	return buckets, previous, nil
}

// slotsOf are the slots of buckets, and what is marked beside any of them.
func slotsOf(words []uint16) (slots []model.Slot, marks uint16) {
	for _, word := range words {
		marks |= word
		slots = append(slots, model.Slot(word&^(hasPrevious|hasMoved)))
	}
	return slots, marks
}

// readWords reads the first half of a slice of buckets, or the previous ones in its second.
func readWords(t *bpf.Tables, from bpf.SlicePair, previous bool) ([]uint16, error) {
	where, ok := from.BucketSpan(false)
	if !ok {
		return nil, nil
	}
	if previous {
		where.First += 1 << where.Bits
	}
	rows := make([]bpf.MuxBucketRow, 1<<where.Bits)
	if err := bpf.ReadRows(t.Buckets, "buckets", where, rows); err != nil {
		return nil, err
	}
	words := make([]uint16, 1<<from.BucketBits)
	for i := range words {
		words[i] = rows[i/bpf.RowBuckets].Slots[i%bpf.RowBuckets]
	}
	return words, nil
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
