package agent

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/fairshare"
	"github.com/weirlb/weir/internal/model"
)

// quota is how many rows of a table a VIP may have.
type quota struct {
	guaranteed int // in any case
	limit      int // as long as others leave room
}

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
		name, named := tenantName(b.Tenant, vip)
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

// shareTable divides a table's rows: half of them are guaranteed to the parties by weight; the rest they borrow, each up
// to its part by weight once that does not do for all. With lendIdle, half of what a party does not use of its guaranteed
// share is lent, too; the other half is for what begins until the next sweep.
func shareTable(rows int, lendIdle bool, parties []fairshare.Claim[int]) (each []quota, lent int) {
	weights := 0
	for _, p := range parties {
		weights += p.Weight
	}
	each, lent = make([]quota, len(parties)), rows
	beyond := slices.Clone(parties)
	for i, p := range parties {
		guaranteed := rows / 2 * p.Weight / weights
		if lendIdle {
			guaranteed -= max(guaranteed-p.Want, 0) / 2
		}
		each[i].guaranteed = guaranteed
		beyond[i].Want = max(p.Want-guaranteed, 0)
		lent -= guaranteed
	}
	borrows, left := fairshare.Divide(lent, beyond)
	for i := range each {
		each[i].limit = each[i].guaranteed + borrows[i] + left
	}
	return each, lent
}

// shareAmongTenants shares a table's room among tenants by their workloads, and within a tenant among its VIPs. limit
// bounds each VIP; 0: nothing does.
func shareAmongTenants(
	room, limit int, table sessionTable, tenants map[string]*tenantVIPs, held map[netip.Addr]*vipSessions,
) (each map[netip.Addr]quota, shared int) {
	each = make(map[netip.Addr]quota, len(held))
	names := slices.Sorted(maps.Keys(tenants))
	parties := make([]fairshare.Claim[int], len(names))
	for i, name := range names {
		parties[i].Weight = tenants[name].workloads
		for vip := range tenants[name].vips {
			parties[i].Want += wantOf(held[vip], table)
		}
	}
	quotas, shared := shareTable(room, true, parties)
	for i, name := range names {
		tenants[name].limit = quotas[i].limit
		tenants[name].shareAmongVIPs(quotas[i].guaranteed, quotas[i].limit-quotas[i].guaranteed, table, held, each)
	}
	if limit > 0 {
		for vip, q := range each {
			each[vip] = quota{guaranteed: min(q.guaranteed, limit), limit: min(q.limit, limit)}
		}
	}
	return each, shared
}

// shareAmongVIPs shares the rows a tenant is guaranteed, and may borrow, among its VIPs.
func (t *tenantVIPs) shareAmongVIPs(
	guaranteed, borrow int, table sessionTable, held map[netip.Addr]*vipSessions, each map[netip.Addr]quota,
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
			each[vip] = quota{guaranteed: guarantees[i], limit: guarantees[i] + borrows[i] + left}
		}
	}
}

func wantOf(h *vipSessions, table sessionTable) int {
	if h == nil { // it comes, or goes, this moment
		return 0
	}
	return h.used[table] + h.waiting[table]
}
