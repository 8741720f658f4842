package flow

import (
	"sync"
)

// Flows are the flow table and its accounts.
type Flows struct {
	mu          *sync.Mutex
	table       *Table
	settleMarks func(now uint32) error
}

// NewFlows are those of the table, under the data plane's lock. settleMarks takes the marks from buckets of which no flow
// is remembered elsewhere any more.
func NewFlows(mu *sync.Mutex, table *Table, settleMarks func(now uint32) error) *Flows {
	return &Flows{mu, table, settleMarks}
}

// SweepFlows frees the cells of flows that expired, and tells how many. Packets would take such
// cells too, but until then they count for their VIP. It also says of VIPs whose they are, and of buckets that all their
// flows are where they say.
func (f *Flows) SweepFlows() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	freed, err := f.table.Sweep()
	if err != nil {
		return freed, err
	}
	now, err := Now(f.table.tables)
	if err != nil {
		return freed, err
	}
	return freed, f.settleMarks(now)
}

// TenantUsage reads what tenants have of the flow table, by name.
func (f *Flows) TenantUsage() ([]TenantUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.TenantUsages()
}
