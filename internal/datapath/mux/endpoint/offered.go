package endpoint

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
	"github.com/weirlb/weir/internal/model"
)

// OfferedLoad is what has come for a VIP since its endpoints were made.
type OfferedLoad struct {
	Tenant    string        // empty: not known yet
	Workloads int           // that it has
	Done      model.Counter // of it, what was sent on or answered
	All       model.Counter
}

// Weights are the workloads of VIPs and tenants, by which shares are divided. They hold until the tables change.
type Weights struct {
	VIPs    map[netip.Addr]OfferedLoad // without counters
	Tenants map[string]int             // workloads of each
}

// weigh counts the workloads of VIPs and tenants, each once.
func (t *Table) weigh() *Weights {
	if t.Weights != nil {
		return t.Weights
	}
	type held struct {
		tenant string // or
		vip    netip.Addr
		by     netip.Addr
	}
	w := &Weights{VIPs: map[netip.Addr]OfferedLoad{}, Tenants: map[string]int{}}
	known := map[held]bool{}
	hold := func(vip netip.Addr, tenant string, workload netip.Addr) {
		o := w.VIPs[vip]
		o.Tenant = cmp.Or(o.Tenant, tenant)
		if of := (held{vip: vip, by: workload}); !known[of] {
			known[of] = true
			o.Workloads++
		}
		w.VIPs[vip] = o
		if of := (held{tenant: tenant, by: workload}); tenant != "" && !known[of] {
			known[of] = true
			w.Tenants[tenant]++
		}
	}
	for key, live := range t.Live {
		for _, b := range live.Backends {
			if !b.Retired {
				hold(key.VIP, live.Tenant, b.Tunnel)
			}
		}
	}
	for key, s := range t.SNAT.Live {
		hold(key.VIP, s.Tenant, key.Address)
	}
	t.Weights = w
	return w
}

// synBytes is what a SYN that is answered counts for: its frame's length is not known.
const synBytes = 74

// Accounts are what came for VIPs, and what was refused.
type Accounts struct{ *Table }

// OfferedLoad counts what came for each VIP, and the workloads of each tenant.
func (t Accounts) OfferedLoad() (vips map[netip.Addr]OfferedLoad, tenants map[string]int, err error) {
	weights := t.weigh()
	vips = maps.Clone(weights.VIPs)
	add := func(vip netip.Addr, done, refused model.Counter) {
		o := vips[vip]
		o.Done.Packets += done.Packets
		o.Done.Bytes += done.Bytes
		o.All.Packets += done.Packets + refused.Packets
		o.All.Bytes += done.Bytes + refused.Bytes
		vips[vip] = o
	}
	var syns []bpf.MuxSynCounter
	for key, live := range t.Live {
		done, err := abi.Counter(t.Tables.EndpointCounts, live.Row.Id)
		if err != nil {
			return nil, nil, fmt.Errorf("read counter of endpoint %s: %w", key, err)
		}
		if key.Protocol == model.TCP && live.Mode != model.SYNCookiesNever && live.Mode != "" {
			if err := t.Tables.SYNCounters.Lookup(live.Row.Id, &syns); err != nil {
				return nil, nil, fmt.Errorf("read syns of endpoint %s: %w", key, err)
			}
			for _, c := range syns {
				done.Packets += c.Answered
				done.Bytes += c.Answered * synBytes
			}
		}
		add(key.VIP, done, model.Counter{})
	}
	for vip, live := range t.Rows.Live {
		var done model.Counter
		if t.SNAT.Has(vip) {
			if done, err = abi.Counter(t.Tables.EndpointCounts, live.Row.Id); err != nil {
				return nil, nil, fmt.Errorf("read counter of vip %s: %w", vip, err)
			}
		}
		refused, err := abi.Counter(t.Tables.VIPDrops, live.Row.Vip)
		if err != nil {
			return nil, nil, fmt.Errorf("read what was refused of vip %s: %w", vip, err)
		}
		add(vip, done, refused)
	}
	return vips, weights.Tenants, nil
}

// FlowView is what a sweep of the flow table must know.
func (t *Table) FlowView() flow.View {
	weights := t.weigh()
	view := flow.View{Workloads: weights.Tenants}
	for _, live := range t.Rows.Live {
		view.VIPs = append(view.VIPs, live.Row.Vip)
	}
	for key, live := range t.Live {
		if vip := t.Rows.Live[key.VIP]; vip != nil {
			view.Owners = append(view.Owners, flow.Owner{
				Index: vip.Row.Vip, Tenant: live.Tenant, Limit: live.Settings.flowLimit, Workloads: weights.VIPs[key.VIP].Workloads,
			})
		}
	}
	return view
}
