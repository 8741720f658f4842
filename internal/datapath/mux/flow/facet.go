package flow

import (
	"sync"
)

// Flows are the flow table and its accounts.
type Flows struct {
	mu    *sync.Mutex
	table *Table
}

// NewFlows are those of the table, under the data plane's lock.
func NewFlows(mu *sync.Mutex, table *Table) *Flows { return &Flows{mu, table} }

// SweepFlows frees the cells of flows that expired, and tells how many. Packets would take such
// cells too, but until then they count for their VIP. It also says of VIPs whose they are.
func (f *Flows) SweepFlows() (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.Sweep()
}

// TenantUsage reads what tenants have of the flow table, by name.
func (f *Flows) TenantUsage() ([]TenantUsage, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.table.TenantUsages()
}
