package agent

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

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

// party is who divides room with others.
type party struct {
	weight int
	want   int
}

// parts divides room by weight: who wants less than its part gets that, and leaves the rest to the others (max-min).
// left is what nobody wants.
func parts(room int, parties []party) (each []int, left int) {
	order, weights := make([]int, len(parties)), 0
	for i, p := range parties {
		order[i] = i
		weights += p.weight
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Compare(parties[a].want*parties[b].weight, parties[b].want*parties[a].weight)
	})
	each, left = make([]int, len(parties)), room
	for _, i := range order {
		each[i] = min(parties[i].want, left*parties[i].weight/weights)
		left -= each[i]
		weights -= parties[i].weight
	}
	return each, left
}

// divide gives each tenant a part of half of a table's room for its own, by its workloads. The other half they borrow
// from, and half of what they do not use of their own: who comes first, and once it does not do for all, each up to its
// part by weight. Within a tenant its VIPs share likewise. most bounds each VIP; 0: nothing does.
func divide(room, most int, table sessionTable, tenants map[string]*tenancy, held map[netip.Addr]*holding) (each map[netip.Addr]quota, shared int) {
	each = make(map[netip.Addr]quota, len(held))
	names, workloads := slices.Sorted(maps.Keys(tenants)), 0
	for _, t := range tenants {
		workloads += t.workloads
	}
	shared = room / 2
	own, parties := make([]int, len(names)), make([]party, len(names))
	for i, name := range names {
		t := tenants[name]
		want := 0
		for vip := range t.vips {
			want += wantOf(held[vip], table)
		}
		own[i] = room / 2 * t.workloads / workloads
		lent := max(own[i]-want, 0) / 2 // the rest is for who comes until the next sweep
		own[i] -= lent
		shared += lent
		parties[i] = party{weight: t.workloads, want: max(want-own[i], 0)}
	}
	borrows, left := parts(shared, parties)
	for i, name := range names {
		tenants[name].most = own[i] + borrows[i] + left
		tenants[name].divide(own[i], borrows[i]+left, table, held, each)
	}
	if most > 0 {
		for vip, q := range each {
			each[vip] = quota{own: min(q.own, most), most: min(q.most, most)}
		}
	}
	return each, shared
}

// divide is that of what a tenant owns, and may borrow, among its VIPs.
func (t *tenancy) divide(own, borrow int, table sessionTable, held map[netip.Addr]*holding, each map[netip.Addr]quota) {
	vips, workloads := slices.SortedFunc(maps.Keys(t.vips), netip.Addr.Compare), 0
	parties := make([]party, len(vips))
	for i, vip := range vips {
		workloads += t.vips[vip]
		parties[i] = party{weight: t.vips[vip], want: wantOf(held[vip], table)}
	}
	owns, idle := parts(own, parties)
	for i := range vips {
		owns[i] += idle * parties[i].weight / workloads
		parties[i].want = max(parties[i].want-owns[i], 0)
	}
	borrows, left := parts(borrow, parties)
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
