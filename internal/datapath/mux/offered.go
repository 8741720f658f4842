package mux

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// OfferedLoad is what has come for a VIP since its endpoints were made.
type OfferedLoad struct {
	Tenant    string        // empty: not known yet
	Workloads int           // that it has
	Done      model.Counter // of it, what was sent on or answered
	All       model.Counter
}

// weights are the workloads of VIPs and tenants, by which shares are divided. They hold until the tables change.
type weights struct {
	vips    map[netip.Addr]OfferedLoad // without counters
	tenants map[string]int             // workloads of each
}

// weigh counts the workloads of VIPs and tenants, each once.
func (d *Datapath) weigh() *weights {
	if d.weights != nil {
		return d.weights
	}
	type held struct {
		tenant string // or
		vip    netip.Addr
		by     netip.Addr
	}
	w := &weights{vips: map[netip.Addr]OfferedLoad{}, tenants: map[string]int{}}
	known := map[held]bool{}
	hold := func(vip netip.Addr, tenant string, workload netip.Addr) {
		o := w.vips[vip]
		o.Tenant = cmp.Or(o.Tenant, tenant)
		if of := (held{vip: vip, by: workload}); !known[of] {
			known[of] = true
			o.Workloads++
		}
		w.vips[vip] = o
		if of := (held{tenant: tenant, by: workload}); tenant != "" && !known[of] {
			known[of] = true
			w.tenants[tenant]++
		}
	}
	for key, live := range d.live {
		for _, b := range live.backends {
			if !b.Retired {
				hold(key.VIP, live.tenant, b.Tunnel)
			}
		}
	}
	for key, s := range d.snat.live {
		hold(key.VIP, s.Tenant, key.Address)
	}
	d.weights = w
	return w
}

// synBytes is what a SYN that is answered counts for: its frame's length is not known.
const synBytes = 74

// OfferedLoad counts what came for each VIP, and the workloads of each tenant.
func (d *Datapath) OfferedLoad() (vips map[netip.Addr]OfferedLoad, tenants map[string]int, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	weights := d.weigh()
	vips = maps.Clone(weights.vips)
	add := func(vip netip.Addr, done, refused model.Counter) {
		o := vips[vip]
		o.Done.Packets += done.Packets
		o.Done.Bytes += done.Bytes
		o.All.Packets += done.Packets + refused.Packets
		o.All.Bytes += done.Bytes + refused.Bytes
		vips[vip] = o
	}
	var syns []bpf.MuxSynCounter
	for key, live := range d.live {
		done, err := abi.Counter(d.tables.EndpointCounts, live.row.Id)
		if err != nil {
			return nil, nil, fmt.Errorf("read counter of endpoint %s: %w", key, err)
		}
		if key.Protocol == model.TCP && live.mode != model.SYNCookiesNever && live.mode != "" {
			if err := d.tables.SYNCounters.Lookup(live.row.Id, &syns); err != nil {
				return nil, nil, fmt.Errorf("read syns of endpoint %s: %w", key, err)
			}
			for _, c := range syns {
				done.Packets += c.Answered
				done.Bytes += c.Answered * synBytes
			}
		}
		add(key.VIP, done, model.Counter{})
	}
	for vip, live := range d.vips.live {
		var done model.Counter
		if d.snat.vips[vip] != nil {
			if done, err = abi.Counter(d.tables.EndpointCounts, live.row.Id); err != nil {
				return nil, nil, fmt.Errorf("read counter of vip %s: %w", vip, err)
			}
		}
		refused, err := abi.Counter(d.tables.VIPDrops, live.row.Vip)
		if err != nil {
			return nil, nil, fmt.Errorf("read what was refused of vip %s: %w", vip, err)
		}
		add(vip, done, refused)
	}
	return vips, weights.tenants, nil
}
