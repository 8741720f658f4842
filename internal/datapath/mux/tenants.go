package mux

import (
	"fmt"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// What VIPs of a tenant have of the flow table is counted together, and bounded; flow_guarantees.go tells what is their own.
// Packets count by the index that the VIP's row of vip_usage has. Names are not in the tables: after a restart the
// indexes hold on, without a name until the control plane has said whose a VIP is.

// flowOwner is whose a VIP is, as of its endpoints.
type flowOwner struct {
	tenant string // empty: the VIP is by itself
	limit  uint32 // on the VIP's flows
}

// settleTenants gives each VIP the index of its tenant, each tenant its limit, corrects what packets may have counted
// for another one since, and divides the table.
func (d *Datapath) settleTenants(m *flowMemory) {
	vips := make(map[uint32]flowOwner, len(d.vips.live)) // by index of vip_usage
	for key, live := range d.live {
		if vip := d.vips.live[key.VIP]; vip != nil && live.tenant != "" {
			of := flowOwner{live.tenant, live.settings.flowLimit}
			if live.tenant == model.DefaultTenant {
				of.tenant = ""
			}
			vips[vip.row.Vip] = of
		}
	}
	d.nameTenants(m, vips)
	limits := make(map[uint32]uint32, len(d.tenants)) // by index of tenant_usage
	for vip, of := range vips {
		index := d.tenants[of.tenant]
		atomic.StoreUint32(&m.usage[vip].Tenant, index)
		limits[index] = max(limits[index], of.limit, d.flowLimit)
	}
	m.recount()
	for index, limit := range limits {
		if index != 0 {
			atomic.StoreUint32(&m.tenants[index].Limit, limit)
		}
	}
	d.writeGuarantees(m)
}

// nameTenants gives tenants that are new an index, and takes it from those that have no VIP any more. What a VIP's row
// says already goes before.
func (d *Datapath) nameTenants(m *flowMemory, vips map[uint32]flowOwner) {
	live := make(map[string]bool, len(d.tenants))
	for _, of := range vips {
		live[of.tenant] = true
	}
	delete(live, "")
	maps.DeleteFunc(d.tenants, func(name string, _ uint32) bool { return !live[name] })
	used := map[uint32]bool{}
	for _, index := range d.tenants {
		used[index] = true
	}
	for _, vip := range slices.Sorted(maps.Keys(vips)) {
		name, index := vips[vip].tenant, m.usage[vip].Tenant
		if name != "" && d.tenants[name] == 0 && index != 0 && !used[index] {
			d.tenants[name], used[index] = index, true
		}
	}
	for _, vip := range d.vips.live { // of whom nobody has said whose they are
		used[m.usage[vip.row.Vip].Tenant] = true
	}
	next := uint32(1)
	for _, name := range slices.Sorted(maps.Keys(live)) {
		if d.tenants[name] != 0 {
			continue
		}
		for used[next] {
			next++
		}
		if int(next) < len(m.tenants) { // always: there are as many as VIPs
			d.tenants[name], used[next] = next, true
		}
	}
}

// recount makes tenants' cells those of their VIPs. What packets count meanwhile may be off by some until the next
// time.
func (m *flowMemory) recount() {
	sums := make(map[uint32][2]uint64)
	for i := range m.usage {
		usage := &m.usage[i]
		if index := usage.Tenant; index != 0 && int(index) < len(m.tenants) {
			sum := sums[index]
			for kind := range sum {
				sum[kind] += atomic.LoadUint64(&usage.Cells[kind])
			}
			sums[index] = sum
		}
	}
	for index := range m.tenants {
		for kind, sum := range sums[uint32(index)] {
			cells := &m.tenants[index].Cells[kind]
			if off := sum - atomic.LoadUint64(cells); off != 0 {
				atomic.AddUint64(cells, off)
			}
		}
	}
}

// TenantUsage reads what tenants have of the flow table, by name.
func (d *Datapath) TenantUsage() ([]TenantUsage, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := make([]TenantUsage, 0, len(d.tenants))
	for _, name := range slices.Sorted(maps.Keys(d.tenants)) {
		var row bpf.MuxFlowUsage
		if err := d.tables.TenantUsage.Lookup(d.tenants[name], &row); err != nil {
			return nil, fmt.Errorf("read what tenant %s has of flows: %w", name, err)
		}
		all = append(all, TenantUsage{Tenant: name, Flows: FlowUsage{Untrusted: row.Cells[0], Trusted: row.Cells[1]}, Guaranteed: row.Guaranteed, Limit: row.Limit})
	}
	return all, nil
}
