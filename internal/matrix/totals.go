package matrix

import (
	"net/netip"
	"slices"
	"sync"
)

// maxTotals bounds the keys that a manager counts: beyond it, what comes from racks is taken for outside.
const maxTotals = 1 << 20

// Totals are the bytes that the agents of a manager have reported since it started. They never fall, but for VIPs that are
// forgotten.
type Totals struct {
	mu    sync.Mutex
	bytes map[netip.Addr]map[netip.Prefix]uint64
	keys  int
}

// NewTotals makes Totals, of nothing.
func NewTotals() *Totals { return &Totals{bytes: map[netip.Addr]map[netip.Prefix]uint64{}} }

// Add adds what an agent reported.
func (t *Totals) Add(rows []Row) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, r := range rows {
		of := t.bytes[r.VIP]
		if of == nil {
			of = map[netip.Prefix]uint64{}
			t.bytes[r.VIP] = of
		}
		if _, there := of[r.From]; !there {
			if t.keys >= maxTotals && r.From.IsValid() {
				r.From = netip.Prefix{}
			}
			if _, there := of[r.From]; !there {
				t.keys++
			}
		}
		of[r.From] += r.Bytes
	}
}

// Keep forgets the VIPs that are not among those of keep.
func (t *Totals) Keep(keep func(vip netip.Addr) bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for vip, of := range t.bytes {
		if !keep(vip) {
			t.keys -= len(of)
			delete(t.bytes, vip)
		}
	}
}

// Rows are all totals, in order.
func (t *Totals) Rows() []Row {
	t.mu.Lock()
	rows := make([]Row, 0, t.keys)
	for vip, of := range t.bytes {
		for from, bytes := range of {
			rows = append(rows, Row{Key{vip, from}, bytes})
		}
	}
	t.mu.Unlock()
	slices.SortFunc(rows, func(a, b Row) int { return a.Compare(b.Key) })
	return rows
}

// Since is what was added between two readings of Totals, each in order. A total that is less than before began anew, at 0.
func Since(before, after []Row) []Row {
	var added []Row
	for _, r := range after {
		i, found := slices.BinarySearchFunc(before, r.Key, func(b Row, k Key) int { return b.Compare(k) })
		if found && before[i].Bytes <= r.Bytes {
			r.Bytes -= before[i].Bytes
		}
		if r.Bytes > 0 {
			added = append(added, r)
		}
	}
	return added
}
