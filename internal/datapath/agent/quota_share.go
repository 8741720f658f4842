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
	own  int // in any case
	most int // as long as others leave room
}

// tenancy is a tenant's VIPs on the host. A VIP that names none, or whose is not known, is one by itself.
type tenancy struct {
	named     bool
	workloads int
	vips      map[netip.Addr]int // workloads of each
	most      int                // rows that it may have, of the table that was divided last
}

// tenanciesOf counts the workloads of tenants and their VIPs, each once.
func tenanciesOf(rules map[model.HostBackendKey]model.HostBackend) map[string]*tenancy {
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
	all := make(map[string]*tenancy)
	for key, b := range rules {
		vip := key.Endpoint.VIP
		name, named := tenantName(b.Tenant, vip)
		t := all[name]
		if t == nil {
			t = &tenancy{named: named, vips: make(map[netip.Addr]int)}
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
		own := rows / 2 * p.Weight / weights
		if lendIdle {
			own -= max(own-p.Want, 0) / 2
		}
		each[i].own = own
		beyond[i].Want = max(p.Want-own, 0)
		lent -= own
	}
	borrows, left := fairshare.Divide(lent, beyond)
	for i := range each {
		each[i].most = each[i].own + borrows[i] + left
	}
	return each, lent
}

// divide shares a table's room among tenants by their workloads, and within a tenant among its VIPs likewise. most
// bounds each VIP; 0: nothing does.
func divide(room, most int, table sessionTable, tenants map[string]*tenancy, held map[netip.Addr]*holding) (each map[netip.Addr]quota, shared int) {
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
		tenants[name].most = quotas[i].most
		tenants[name].divide(quotas[i].own, quotas[i].most-quotas[i].own, table, held, each)
	}
	if most > 0 {
		for vip, q := range each {
			each[vip] = quota{own: min(q.own, most), most: min(q.most, most)}
		}
	}
	return each, shared
}

// divide shares what a tenant owns, and may borrow, among its VIPs.
func (t *tenancy) divide(own, borrow int, table sessionTable, held map[netip.Addr]*holding, each map[netip.Addr]quota) {
	vips, workloads := slices.SortedFunc(maps.Keys(t.vips), netip.Addr.Compare), 0
	parties := make([]fairshare.Claim[int], len(vips))
	for i, vip := range vips {
		workloads += t.vips[vip]
		parties[i] = fairshare.Claim[int]{Weight: t.vips[vip], Want: wantOf(held[vip], table)}
	}
	owns, idle := fairshare.Divide(own, parties)
	for i := range vips {
		owns[i] += idle * parties[i].Weight / workloads
		parties[i].Want = max(parties[i].Want-owns[i], 0)
	}
	borrows, left := fairshare.Divide(borrow, parties)
	for i, vip := range vips {
		if held[vip] != nil {
			each[vip] = quota{own: owns[i], most: owns[i] + borrows[i] + left}
		}
	}
}

func wantOf(h *holding, table sessionTable) int {
	if h == nil { // it comes, or goes, this moment
		return 0
	}
	return h.used[table] + h.waiting[table]
}
