package flow

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// What VIPs of a tenant have of the flow table is counted together, and bounded; guarantees.go tells what is their own.
// Packets count by the index that the VIP's row of vip_usage has. Names are not in the tables: after a restart the
// indexes hold on, without a name until the control plane has said whose a VIP is.

// flowOwner is whose a VIP is, as of its endpoints.
type flowOwner struct {
	tenant string // empty: the VIP is by itself
	limit  uint32 // on the VIP's flows
}

// settleTenants gives each VIP the index of its tenant, each tenant its limit, corrects what packets may have counted
// for another one since, and divides the table.
func (f *Table) settleTenants(m *Memory) {
	view := f.view()
	vips := make(map[uint32]flowOwner, len(view.VIPs)) // by index of vip_usage
	for _, o := range view.Owners {
		if o.Tenant != "" {
			of := flowOwner{o.Tenant, o.Limit}
			if o.Tenant == model.DefaultTenant {
				of.tenant = ""
			}
			vips[o.Index] = of
		}
	}
	f.nameTenants(m, view.VIPs, vips)
	limits := make(map[uint32]uint32, len(f.Tenants)) // by index of tenant_usage
	for vip, of := range vips {
		index := f.Tenants[of.tenant]
		atomic.StoreUint32(&m.Usage[vip].Tenant, index)
		limits[index] = max(limits[index], of.limit, f.limit)
	}
	m.recount()
	for index, limit := range limits {
		if index != 0 {
			atomic.StoreUint32(&m.Tenants[index].Limit, limit)
		}
	}
	f.writeGuarantees(m, view)
}

// nameTenants gives tenants that are new an index, and takes it from those that have no VIP any more. What a VIP's row
// says already goes before.
func (f *Table) nameTenants(m *Memory, all []uint32, vips map[uint32]flowOwner) {
	live := make(map[string]bool, len(f.Tenants))
	for _, of := range vips {
		live[of.tenant] = true
	}
	delete(live, "")
	maps.DeleteFunc(f.Tenants, func(name string, _ uint32) bool { return !live[name] })
	used := map[uint32]bool{}
	for _, index := range f.Tenants {
		used[index] = true
	}
	for _, vip := range slices.Sorted(maps.Keys(vips)) {
		name, index := vips[vip].tenant, m.Usage[vip].Tenant
		if name != "" && f.Tenants[name] == 0 && index != 0 && !used[index] {
			f.Tenants[name], used[index] = index, true
		}
	}
	for _, index := range all { // of whom nobody has said whose they are
		used[m.Usage[index].Tenant] = true
	}
	next := uint32(1)
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if f.Tenants[name] != 0 {
			continue
		}
		for used[next] {
			next++
		}
		if int(next) < len(m.Tenants) { // always: there are as many as VIPs
			f.Tenants[name], used[next] = next, true
		}
	}
}

// recount makes tenants' cells those of their VIPs. What packets count meanwhile may be off by some until the next
// time.
func (m *Memory) recount() {
	sums := make(map[uint32][2]uint64)
	for i := range m.Usage {
		usage := &m.Usage[i]
		if index := usage.Tenant; index != 0 && int(index) < len(m.Tenants) {
			sum := sums[index]
			for kind := range sum {
				sum[kind] += atomic.LoadUint64(&usage.Cells[kind])
			}
			sums[index] = sum
		}
	}
	for index := range m.Tenants {
		for kind, sum := range sums[uint32(index)] {
			cells := &m.Tenants[index].Cells[kind]
			if off := sum - atomic.LoadUint64(cells); off != 0 {
				atomic.AddUint64(cells, off)
			}
		}
	}
}

// TenantUsages reads what tenants have of the flow table, by name.
func (f *Table) TenantUsages() ([]TenantUsage, error) {
	all := make([]TenantUsage, 0, len(f.Tenants))
	for _, name := range slices.Sorted(maps.Keys(f.Tenants)) {
		var row bpf.MuxFlowUsage
		if err := f.tables.TenantUsage.Lookup(f.Tenants[name], &row); err != nil {
			return nil, fmt.Errorf("read what tenant %s has of flows: %w", name, err)
		}
		all = append(all, TenantUsage{Tenant: name, Flows: Usage{Untrusted: row.Cells[0], Trusted: row.Cells[1]}, Guaranteed: row.Guaranteed, Limit: row.Limit})
	}
	return all, nil
}

// TenantUsage is a tenant's part of the flow table.
type TenantUsage struct {
	Tenant     string
	Flows      Usage
	Guaranteed uint32 // trusted flows that others do not take
	Limit      uint32 // of trusted flows of all its VIPs
}
