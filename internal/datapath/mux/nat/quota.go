package nat

import (
	"fmt"
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// quotas are what tenants of networks have and may have of the sessions: counts that the programs share. Row 0 counts what
// they have beyond their own.
type quotas []bpf.MuxOverlayTenant

func excess(rows int32, own uint32) int32 { return max(rows-int32(own), 0) }

// set sets how many sessions a tenant has of its own and at most, and how many half-open ones. Counts go on beside it.
func (q quotas) set(number, own, most, halfOpen uint32) error {
	if int(number) >= len(q) {
		return fmt.Errorf("set tenant %d: there is room for %d", number, len(q)-1)
	}
	row := &q[number]
	was := atomic.SwapUint32(&row.Own, own)
	if number != 0 {
		rows := atomic.LoadInt32(&row.Rows)
		atomic.AddInt32(&q[0].Rows, excess(rows, own)-excess(rows, was))
	}
	atomic.StoreUint32(&row.Most, most)
	atomic.StoreUint32(&row.HalfOpenMost, halfOpen)
	return nil
}

// Usage is what a tenant has of the sessions.
type Usage struct {
	Rows, HalfOpen int
	Most           uint32 // of Rows
	Refused        uint64
}

func (q quotas) usage(number uint32) Usage {
	if int(number) >= len(q) {
		return Usage{}
	}
	row := &q[number]
	return Usage{
		Rows: int(atomic.LoadInt32(&row.Rows)), HalfOpen: int(atomic.LoadInt32(&row.HalfOpen)), Most: atomic.LoadUint32(&row.Most), Refused: atomic.LoadUint64(&row.Refused),
	}
}

// remove counts a session down, as quota_count() in C.
func (q quotas) remove(number uint32, halfOpen bool) {
	if number == 0 || int(number) >= len(q) {
		return
	}
	row := &q[number]
	if halfOpen {
		atomic.AddInt32(&row.HalfOpen, -1)
	}
	rows := atomic.AddInt32(&row.Rows, -1)
	own := atomic.LoadUint32(&row.Own)
	if lent := excess(rows, own) - excess(rows+1, own); lent != 0 {
		atomic.AddInt32(&q[0].Rows, lent)
	}
}

// recount sets the counts to what the table has, for a process that died may have left them wrong. A count that moves
// meanwhile is left for the next time.
func (q quotas) recount(t sessions, tenantOf func(Session) uint32) {
	type count struct{ rows, halfOpen int32 }
	before, found := make([]count, len(q)), make([]count, len(q))
	for i := range q {
		before[i] = count{atomic.LoadInt32(&q[i].Rows), atomic.LoadInt32(&q[i].HalfOpen)}
	}
	for s := range t.all() {
		tenant := tenantOf(s)
		if tenant == 0 || int(tenant) >= len(q) {
			continue
		}
		found[tenant].rows++
		if s.counted {
			found[tenant].halfOpen++
		}
	}
	lent := int32(0)
	for i := range q {
		if i == 0 {
			continue
		}
		atomic.CompareAndSwapInt32(&q[i].Rows, before[i].rows, found[i].rows)
		atomic.CompareAndSwapInt32(&q[i].HalfOpen, before[i].halfOpen, found[i].halfOpen)
		lent += excess(atomic.LoadInt32(&q[i].Rows), atomic.LoadUint32(&q[i].Own))
	}
	atomic.CompareAndSwapInt32(&q[0].Rows, before[0].rows, lent)
}
