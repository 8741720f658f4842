package overlay

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"
)

// tenantRow is struct overlay_tenant.
type tenantRow struct {
	rows, halfOpen               int32
	own, most, halfOpenMost, pad uint32
	refused, resetTAT            uint64
}

const tenantSize = 40

// Quotas are what tenants have and may have of the session table: counts that the programs share. Row 0 counts what
// tenants have beyond their own.
type Quotas struct {
	memory []byte
	rows   []tenantRow
}

func mapQuotas(m *ebpf.Map) (*Quotas, error) {
	if m.ValueSize() != tenantSize {
		return nil, fmt.Errorf("map tenants: rows have %d bytes, not %d", m.ValueSize(), tenantSize)
	}
	memory, err := unix.Mmap(m.FD(), 0, int(m.MaxEntries())*tenantSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map tenants: %w", err)
	}
	return &Quotas{memory: memory, rows: unsafe.Slice((*tenantRow)(unsafe.Pointer(&memory[0])), m.MaxEntries())}, nil
}

func (q *Quotas) unmap() error {
	q.rows = nil
	return unix.Munmap(q.memory)
}

func excess(rows int32, own uint32) int32 { return max(rows-int32(own), 0) }

// SetTenant sets how many sessions a tenant has of its own and at most, and how many half-open ones. Of tenant 0 own is
// what all may borrow together. Counts go on beside it.
func (q *Quotas) SetTenant(number, own, most, halfOpen uint32) error {
	if int(number) >= len(q.rows) {
		return fmt.Errorf("set tenant %d: there is room for %d", number, len(q.rows)-1)
	}
	row := &q.rows[number]
	was := atomic.SwapUint32(&row.own, own)
	if number != 0 {
		rows := atomic.LoadInt32(&row.rows)
		atomic.AddInt32(&q.rows[0].rows, excess(rows, own)-excess(rows, was))
	}
	atomic.StoreUint32(&row.most, most)
	atomic.StoreUint32(&row.halfOpenMost, halfOpen)
	return nil
}

// Usage is what a tenant has of the table.
type Usage struct {
	Rows, HalfOpen int
	Refused        uint64
}

// Usage reads a tenant's counts; of tenant 0, what all have borrowed.
func (q *Quotas) Usage(number uint32) Usage {
	if int(number) >= len(q.rows) {
		return Usage{}
	}
	row := &q.rows[number]
	return Usage{
		Rows: int(atomic.LoadInt32(&row.rows)), HalfOpen: int(atomic.LoadInt32(&row.halfOpen)),
		Refused: atomic.LoadUint64(&row.refused),
	}
}

// pressed are the tenants that have used up most of their half-open sessions, and how many are too many.
func (q *Quotas) pressed() map[uint32]int {
	tenants := map[uint32]int{}
	for i := range q.rows {
		used, most := int(atomic.LoadInt32(&q.rows[i].halfOpen)), int(atomic.LoadUint32(&q.rows[i].halfOpenMost))
		if i > 0 && used > most/4*3 {
			tenants[uint32(i)] = used - most/2
		}
	}
	return tenants
}

// remove counts a session down, as quota_count() in C.
func (q *Quotas) remove(number uint32, halfOpen bool) {
	if number == 0 || int(number) >= len(q.rows) {
		return
	}
	row := &q.rows[number]
	if halfOpen {
		atomic.AddInt32(&row.halfOpen, -1)
	}
	rows := atomic.AddInt32(&row.rows, -1)
	own := atomic.LoadUint32(&row.own)
	if lent := excess(rows, own) - excess(rows+1, own); lent != 0 {
		atomic.AddInt32(&q.rows[0].rows, lent)
	}
}

// recount sets the counts of tenants to what the table has. A count that moves meanwhile is left for the next time.
func (q *Quotas) recount(t *Table, tenantOf func(Session) uint32) {
	type count struct{ rows, halfOpen int32 }
	before, found := make([]count, len(q.rows)), make([]count, len(q.rows))
	for i := range q.rows {
		before[i] = count{atomic.LoadInt32(&q.rows[i].rows), atomic.LoadInt32(&q.rows[i].halfOpen)}
	}
	for s := range t.All() {
		tenant := tenantOf(s)
		if tenant == 0 || int(tenant) >= len(q.rows) {
			continue
		}
		found[tenant].rows++
		if s.Events&ClientACK == 0 {
			found[tenant].halfOpen++
		}
	}
	lent := int32(0)
	for i := range q.rows {
		row := &q.rows[i]
		if i == 0 {
			continue
		}
		atomic.CompareAndSwapInt32(&row.rows, before[i].rows, found[i].rows)
		atomic.CompareAndSwapInt32(&row.halfOpen, before[i].halfOpen, found[i].halfOpen)
		lent += excess(atomic.LoadInt32(&row.rows), atomic.LoadUint32(&row.own))
	}
	atomic.CompareAndSwapInt32(&q.rows[0].rows, before[0].rows, lent)
}
