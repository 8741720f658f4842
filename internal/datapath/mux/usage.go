package mux

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/flow"
)

// Usage is how full the tables are.
type Usage struct {
	Endpoints, Buckets, Backends TableUsage
	SNATRanges, SNATOwners       TableUsage
	SNAT                         map[netip.Addr]int // ranges that workloads have, by VIP
	FlowCells                    uint64             // size of the flow table
	VIPs                         []VIPUsage
	Tenants                      []flow.TenantUsage // those whose flows are counted, by name
}

// TableUsage is the rows of a table.
type TableUsage struct{ Used, Size uint64 }

// VIPUsage is a VIP's part of the flow table.
type VIPUsage struct {
	VIP        netip.Addr
	Flows      flow.Usage
	Guaranteed uint32 // trusted flows that others do not take
	Limit      uint32 // of trusted flows
}

// Usage reads how full the tables are.
func (d *Datapath) Usage() (Usage, error) {
	u, ids := d.usage()
	for i := range u.VIPs {
		var row bpf.MuxFlowUsage
		if err := d.tables.VIPUsage.Lookup(ids[i], &row); err != nil {
			return u, fmt.Errorf("read row %d of vip_usage: %w", ids[i], err)
		}
		u.VIPs[i].Flows = flow.Usage{Untrusted: row.Cells[0], Trusted: row.Cells[1]}
		u.VIPs[i].Guaranteed = row.Guaranteed
	}
	var err error
	u.Tenants, err = d.TenantUsage()
	return u, err
}

// usage is what is known without asking the kernel, and the VIPs' rows there.
func (d *Datapath) usage() (u Usage, ids []uint32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	buckets, backends := d.endpoints.Room()
	room := func(free int, size uint32) TableUsage {
		return TableUsage{Used: uint64(size) - uint64(free), Size: uint64(size)}
	}
	u = Usage{
		Endpoints: TableUsage{Used: uint64(len(d.endpoints.Live)), Size: uint64(d.sizes.Endpoints)},
		Buckets:   room(buckets.Room(), d.sizes.BucketRows),
		Backends:  room(backends.Room(), d.sizes.Backends),
		FlowCells: uint64(d.sizes.FlowSets) * uint64(len(bpf.MuxFlowSet{}.Cells)),
	}
	u.Buckets = TableUsage{Used: u.Buckets.Used * uint64(bpf.RowBuckets), Size: u.Buckets.Size * uint64(bpf.RowBuckets)}
	inUse := d.endpoints.SNAT.Len() * bpf.SNATRanges
	u.SNATRanges = TableUsage{Used: uint64(inUse), Size: uint64(d.sizes.SNATVIPs) * uint64(bpf.SNATRanges)}
	u.SNATOwners = TableUsage{Used: uint64(d.endpoints.SNAT.Owners()), Size: uint64(d.sizes.SNATOwnerRows())}
	u.SNAT = make(map[netip.Addr]int, d.endpoints.SNAT.Len())
	for key, s := range d.endpoints.SNAT.Live {
		u.SNAT[key.VIP] += len(s.Ranges)
	}
	limits := make(map[netip.Addr]uint32, len(d.endpoints.Rows.Live))
	for key, live := range d.endpoints.Live {
		limits[key.VIP] = live.Row.FlowLimit
	}
	for vip, live := range d.endpoints.Rows.Live {
		u.VIPs = append(u.VIPs, VIPUsage{VIP: vip, Limit: limits[vip]})
		ids = append(ids, live.Row.Vip)
	}
	return u, ids
}
