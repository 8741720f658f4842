package flow

import (
	"sync/atomic"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// The flow table is divided among tenants by their workloads: each has a guaranteed share, and borrows what others
// leave idle. A VIP of no tenant counts as one. Within a tenant VIPs divide its share likewise.

// vipClaim is a VIP with endpoints that divides the flow table with others.
type vipClaim struct {
	tenant uint32 // index of tenant_usage; 0: it is by itself
	weight int
	limit  uint32 // on its flows
}

// OwnFlows are the trusted flows that guaranteed shares add up to: three in a set of eight cells. With so few, a flow
// of a VIP below its share hardly ever finds the set's six places for trusted flows taken by VIPs within theirs.
func OwnFlows(d bpf.Sizes) int { return int(d.FlowSets) * 3 }

// vipClaims are the VIPs that divide the table, by index of vip_usage.
func vipClaims(m *Memory, view View) map[uint32]vipClaim {
	all := make(map[uint32]vipClaim, len(view.VIPs))
	for _, o := range view.Owners {
		all[o.Index] = vipClaim{tenant: m.Usage[o.Index].Tenant, weight: max(o.Workloads, 1), limit: o.Limit}
	}
	return all
}

// writeGuarantees writes the guaranteed shares of tenants and VIPs. None is above its owner's limit.
func (f *Table) writeGuarantees(m *Memory, view View) {
	claims := vipClaims(m, view)
	vips, tenants, all := map[uint32]int{}, map[uint32]int{}, 0 // weights: of a tenant's VIPs one by one, of tenants, of all
	for _, h := range claims {
		vips[h.tenant] += h.weight
	}
	for name, index := range f.Tenants {
		tenants[index] = max(view.Workloads[name], 1)
	}
	for index, weight := range vips {
		if index != 0 && tenants[index] == 0 { // nobody has said yet who it is
			tenants[index] = weight
		}
		all += tenants[index]
	}
	all += vips[0]
	for index := range m.Tenants {
		usage, own := &m.Tenants[index], 0
		if weight := tenants[uint32(index)]; weight != 0 {
			own = min(OwnFlows(f.sizes)*weight/all, int(usage.Limit))
		}
		atomic.StoreUint32(&usage.Guaranteed, uint32(own))
	}
	for id := range m.Usage {
		own := 0
		if h, there := claims[uint32(id)]; there {
			room, among := OwnFlows(f.sizes), all
			if h.tenant != 0 {
				room, among = int(m.Tenants[h.tenant].Guaranteed), vips[h.tenant]
			}
			own = min(room*h.weight/among, int(h.limit))
		}
		atomic.StoreUint32(&m.Usage[id].Guaranteed, uint32(own))
	}
}
