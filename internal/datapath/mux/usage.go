package mux

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
)

// Usage is how full the tables are.
type Usage struct {
	Endpoints, Buckets, Backends TableUsage
	SNATRanges, SNATOwners       TableUsage
	SNAT                         map[netip.Addr]int // ranges that workloads have, by VIP
	FlowCells                    uint64             // size of the flow table
	VIPs                         []VIPUsage
	Tenants                      []TenantUsage // those whose flows are counted, by name
}

// TableUsage is the rows of a table.
type TableUsage struct{ Used, Size uint64 }

// VIPUsage is a VIP's part of the flow table.
type VIPUsage struct {
	VIP        netip.Addr
	Flows      FlowUsage
	Guaranteed uint32 // trusted flows that others do not take
	Limit      uint32 // of trusted flows
}

// TenantUsage is a tenant's part of the flow table.
type TenantUsage struct {
	Tenant     string
	Flows      FlowUsage
	Guaranteed uint32 // trusted flows that others do not take
	Limit      uint32 // of trusted flows of all its VIPs
}

// Usage reads how full the tables are.
func (d *Datapath) Usage() (Usage, error) {
	u, ids := d.usage()
	for i := range u.VIPs {
		var row bpf.MuxFlowUsage
		if err := d.tables.VIPUsage.Lookup(ids[i], &row); err != nil {
			return u, fmt.Errorf("read row %d of vip_usage: %w", ids[i], err)
		}
		u.VIPs[i].Flows = FlowUsage{Untrusted: row.Cells[0], Trusted: row.Cells[1]}
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
	room := func(s *alloc.Rows, size uint32) TableUsage {
		return TableUsage{Used: uint64(size) - uint64(s.Room()), Size: uint64(size)}
	}
	u = Usage{
		Endpoints: TableUsage{Used: uint64(len(d.live)), Size: uint64(d.sizes.Endpoints)},
		Buckets:   room(d.bucketSlices, d.sizes.BucketRows),
		Backends:  room(d.backendSlices, d.sizes.Backends),
		FlowCells: uint64(d.sizes.FlowSets) * uint64(len(bpf.MuxFlowSet{}.Cells)),
	}
	u.Buckets = TableUsage{Used: u.Buckets.Used * uint64(bpf.RowBuckets), Size: u.Buckets.Size * uint64(bpf.RowBuckets)}
	inUse := len(d.snat.vips) * bpf.SNATRanges
	u.SNATRanges = TableUsage{Used: uint64(inUse), Size: uint64(d.sizes.SNATVIPs) * uint64(bpf.SNATRanges)}
	u.SNATOwners = TableUsage{Used: uint64(len(d.snat.owners.byTunnel)), Size: uint64(d.sizes.SNATOwnerRows())}
	u.SNAT = make(map[netip.Addr]int, len(d.snat.vips))
	for key, s := range d.snat.live {
		u.SNAT[key.VIP] += len(s.Ranges)
	}
	limits := make(map[netip.Addr]uint32, len(d.vips.live))
	for key, live := range d.live {
		limits[key.VIP] = live.settings.flowLimit
	}
	for vip, live := range d.vips.live {
		u.VIPs = append(u.VIPs, VIPUsage{VIP: vip, Limit: limits[vip]})
		ids = append(ids, live.row.Vip)
	}
	return u, ids
}
