package session

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/datapath/agent/tenant"
	"github.com/weirlb/weir/internal/fairshare"
	"github.com/weirlb/weir/internal/model"
)

// tenantVIPs is a tenant's VIPs on the host. A VIP that names none, or whose is not known, is one by itself.
type tenantVIPs struct {
	named     bool
	workloads int
	vips      map[netip.Addr]int // workloads of each
	limit     int                // rows that it may have, of the table that was divided last
}

// tenantVIPsOf counts the workloads of tenants and their VIPs, each once.
func tenantVIPsOf(rules map[model.HostBackendKey]model.HostBackend) map[string]*tenantVIPs {
	type held struct {
		tenant   string
		vip      netip.Addr // or none
		workload netip.Addr
	}
	known := make(map[held]bool)
	isNew := func(h held) bool {
		was := known[h]
		known[h] = true
		return !was
	}
	all := make(map[string]*tenantVIPs)
	for key, b := range rules {
		vip := key.Endpoint.VIP
		name, named := tenant.Name(b.Tenant, vip)
		t := all[name]
		if t == nil {
			t = &tenantVIPs{named: named, vips: make(map[netip.Addr]int)}
			all[name] = t
		}
		if isNew(held{tenant: name, workload: b.Backend.Addr()}) {
			t.workloads++
		}
		if isNew(held{tenant: name, vip: vip, workload: b.Backend.Addr()}) {
			t.vips[vip]++
		}
	}
	return all
}

// shareAmongTenants shares a table's room among tenants by their workloads, and within a tenant among its VIPs. limit
// bounds each VIP; 0: nothing does.
func shareAmongTenants(
	room, limit int, table sessionTable, tenants map[string]*tenantVIPs, held map[netip.Addr]*vipSessions,
) (each map[netip.Addr]tenant.Quota, shared int) {
	each = make(map[netip.Addr]tenant.Quota, len(held))
	names := slices.Sorted(maps.Keys(tenants))
	parties := make([]fairshare.Claim[int], len(names))
	for i, name := range names {
		parties[i].Weight = tenants[name].workloads
		for vip := range tenants[name].vips {
			parties[i].Want += wantOf(held[vip], table)
		}
	}
	quotas, shared := tenant.ShareTable(room, true, parties)
	for i, name := range names {
		tenants[name].limit = quotas[i].Limit
		tenants[name].shareAmongVIPs(quotas[i].Guaranteed, quotas[i].Limit-quotas[i].Guaranteed, table, held, each)
	}
	if limit > 0 {
		for vip, q := range each {
			each[vip] = tenant.Quota{Guaranteed: min(q.Guaranteed, limit), Limit: min(q.Limit, limit)}
		}
	}
	return each, shared
}

// shareAmongVIPs shares the rows a tenant is guaranteed, and may borrow, among its VIPs.
func (t *tenantVIPs) shareAmongVIPs(
	guaranteed, borrow int, table sessionTable, held map[netip.Addr]*vipSessions, each map[netip.Addr]tenant.Quota,
) {
	vips, workloads := slices.SortedFunc(maps.Keys(t.vips), netip.Addr.Compare), 0
	parties := make([]fairshare.Claim[int], len(vips))
	for i, vip := range vips {
		workloads += t.vips[vip]
		parties[i] = fairshare.Claim[int]{Weight: t.vips[vip], Want: wantOf(held[vip], table)}
	}
	guarantees, idle := fairshare.Divide(guaranteed, parties)
	for i := range vips {
		guarantees[i] += idle * parties[i].Weight / workloads
		parties[i].Want = max(parties[i].Want-guarantees[i], 0)
	}
	borrows, left := fairshare.Divide(borrow, parties)
	for i, vip := range vips {
		if held[vip] != nil {
			each[vip] = tenant.Quota{Guaranteed: guarantees[i], Limit: guarantees[i] + borrows[i] + left}
		}
	}
}

func wantOf(h *vipSessions, table sessionTable) int {
	if h == nil { // it comes, or goes, this moment
		return 0
	}
	return h.Used[table] + h.Waiting[table]
}
