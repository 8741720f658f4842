// Package quota is what tenants have and may have of a table of sessions: rows that the programs count in, and share
// with this process as memory. See bpf/net/session/quota.h.
package quota

import (
	"fmt"
	"iter"
	"sync/atomic"
)

// Row is struct overlay_tenant.
type Row struct {
	rows, halfOpen             int32
	own, most, halfOpenMost, _ uint32
	refused                    uint64
	ResetTAT                   uint64 // of resets that are let through, in ns: see bpf/net/session/quota.h
}

// Quotas are rows by number of tenant. Row 0 counts what tenants have beyond their own.
type Quotas []Row

// Usage is what a tenant has.
type Usage struct {
	Rows, HalfOpen int
	Most           uint32 // of Rows
	Refused        uint64
}

func excess(rows int32, own uint32) int32 { return max(rows-int32(own), 0) }

// Set sets how many sessions a tenant has of its own and at most, and how many half-open ones. Of tenant 0 own is what
// all may borrow together. Counts go on beside it.
func (q Quotas) Set(number, own, most, halfOpen uint32) error {
	if int(number) >= len(q) {
		return fmt.Errorf("set tenant %d: there is room for %d", number, len(q)-1)
	}
	row := &q[number]
	was := atomic.SwapUint32(&row.own, own)
	if number != 0 {
		rows := atomic.LoadInt32(&row.rows)
		atomic.AddInt32(&q[0].rows, excess(rows, own)-excess(rows, was))
	}
	atomic.StoreUint32(&row.most, most)
	atomic.StoreUint32(&row.halfOpenMost, halfOpen)
	return nil
}

// Usage reads a tenant's counts; of tenant 0, what all have borrowed.
func (q Quotas) Usage(number uint32) Usage {
	if int(number) >= len(q) {
		return Usage{}
	}
	row := &q[number]
	return Usage{
		Rows: int(atomic.LoadInt32(&row.rows)), HalfOpen: int(atomic.LoadInt32(&row.halfOpen)),
		Most: atomic.LoadUint32(&row.most), Refused: atomic.LoadUint64(&row.refused),
	}
}

// Pressed are the tenants that have used up most of their half-open sessions, and how many are too many.
func (q Quotas) Pressed() map[uint32]int {
	tenants := map[uint32]int{}
	for i := range q {
		used, most := int(atomic.LoadInt32(&q[i].halfOpen)), int(atomic.LoadUint32(&q[i].halfOpenMost))
		if i > 0 && used > most/4*3 {
			tenants[uint32(i)] = used - most/2
		}
	}
	return tenants
}

// Remove counts a session down, as quota_count() in C.
func (q Quotas) Remove(number uint32, halfOpen bool) {
	if number == 0 || int(number) >= len(q) {
		return
	}
	row := &q[number]
	if halfOpen {
		atomic.AddInt32(&row.halfOpen, -1)
	}
	rows := atomic.AddInt32(&row.rows, -1)
	own := atomic.LoadUint32(&row.own)
	if lent := excess(rows, own) - excess(rows+1, own); lent != 0 {
		atomic.AddInt32(&q[0].rows, lent)
	}
}

// Recount sets the counts to what the table has, tenants of sessions and whether these are half-open: a process that
// died may have left them wrong. A count that moves meanwhile is left for the next time.
func (q Quotas) Recount(sessions iter.Seq2[uint32, bool]) {
	type count struct{ rows, halfOpen int32 }
	before, found := make([]count, len(q)), make([]count, len(q))
	for i := range q {
		before[i] = count{atomic.LoadInt32(&q[i].rows), atomic.LoadInt32(&q[i].halfOpen)}
	}
	for tenant, halfOpen := range sessions {
		if tenant == 0 || int(tenant) >= len(q) {
			continue
		}
		found[tenant].rows++
		if halfOpen {
			found[tenant].halfOpen++
		}
	}
	lent := int32(0)
	for i := range q {
		if i == 0 {
			continue
		}
		row := &q[i]
		atomic.CompareAndSwapInt32(&row.rows, before[i].rows, found[i].rows)
		atomic.CompareAndSwapInt32(&row.halfOpen, before[i].halfOpen, found[i].halfOpen)
		lent += excess(atomic.LoadInt32(&row.rows), atomic.LoadUint32(&row.own))
	}
	atomic.CompareAndSwapInt32(&q[0].rows, before[0].rows, lent)
}
