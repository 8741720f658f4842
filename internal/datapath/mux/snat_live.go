package mux

import (
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
	snatdigest "github.com/weirlb/weir/internal/snat"
)

// unsafeWords are the words of rows that lie one behind the other.
func unsafeWords(rows [][bpf.SNATRowRanges]uint32) []uint32 {
	return unsafe.Slice(&rows[0][0], len(rows)*bpf.SNATRowRanges)
}

// adoptSNAT restores what can be known of adopted tables: which slices and rows are in use.
func (d *Datapath) adoptSNAT() error {
	if err := d.openSNAT(); err != nil {
		return err
	}
	slicesUsed, ownersUsed := map[uint32]bool{}, map[uint32]bool{}
	for vip, live := range d.vips.live {
		if live.row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT == 0 {
			continue
		}
		first := bpf.UnpackSlices(live.row.Slices).FirstBucketRow
		slice := first/uint32(bpf.SNATRanges/bpf.SNATRowRanges) + 1
		d.snat.vips[vip] = &snatVIP{slice: slice}
		slicesUsed[slice] = true
		for _, owner := range d.snat.of(slice) {
			if owner != 0 {
				ownersUsed[owner] = true
			}
		}
	}
	d.snat.slices.Claim(slicesUsed)
	for id := range ownersUsed {
		var row bpf.MuxBackend
		if err := d.tables.SNATOwners.Lookup(id, &row); err != nil {
			return fmt.Errorf("read row %d of snat_owners: %w", id, err)
		}
		tunnel := bpf.FromAddress(row.Tunnel)
		d.hops.adopt(tunnel, row.NextHop)
		d.snat.owners.byTunnel[tunnel] = &owner{id: id, uses: 1}
		d.snat.adopted = append(d.snat.adopted, tunnel)
		d.tunnels.add(tunnel, 1)
	}
	d.snat.owners.ids.Claim(ownersUsed)
	return nil
}

// VIPs lists the live VIPs, in order: those with endpoints, and those that workloads leave as. Until
// TakeOver, the predecessor's.
func (d *Datapath) VIPs() ([]netip.Addr, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.predecessor != nil {
		return slices.Clone(d.predecessor.vips), nil
	}
	vips := make([]netip.Addr, 0, len(d.vips.live))
	for vip := range d.vips.live {
		vips = append(vips, vip)
	}
	slices.SortFunc(vips, netip.Addr.Compare)
	return vips, nil
}

// SNATCounters counts the answers sent to workloads that leave as each VIP, since it has source NAT.
func (d *Datapath) SNATCounters() (map[netip.Addr]model.Counter, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	counters := map[netip.Addr]model.Counter{}
	for vip := range d.snat.vips {
		counter, err := abi.Counter(d.tables.EndpointCounts, d.vips.live[vip].row.Id)
		if err != nil {
			return nil, fmt.Errorf("read counter of vip %s: %w", vip, err)
		}
		counters[vip] = counter
	}
	return counters, nil
}

// workloadOf is who has the VIP's port.
func (d *Datapath) workloadOf(vip netip.Addr, port uint16) (model.SNATKey, bool) {
	for key, s := range d.snat.live {
		if key.VIP != vip {
			continue
		}
		if _, has := slices.BinarySearch(s.Ranges, model.RangeOf(port)); has {
			return key, true
		}
	}
	return model.SNATKey{}, false
}

// snatStatus reads who has the ports of each VIP.
func snatStatus(t *bpf.Tables) (all []SNATStatus, err error) {
	err = eachRow(t, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		if row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT == 0 {
			return nil
		}
		s, err := snatVIPStatus(t, key.VIP, row)
		all = append(all, s)
		return err
	})
	slices.SortFunc(all, func(a, b SNATStatus) int { return a.VIP.Compare(b.VIP) })
	return all, err
}

func snatVIPStatus(t *bpf.Tables, vip netip.Addr, row bpf.MuxEndpoint) (s SNATStatus, err error) {
	s.VIP = vip
	if s.Counter, err = abi.Counter(t.EndpointCounts, row.Id); err != nil {
		return s, fmt.Errorf("read counter of vip %s: %w", vip, err)
	}
	rows := make([]bpf.MuxSnatRow, bpf.SNATRanges/bpf.SNATRowRanges)
	where := alloc.Span{First: bpf.UnpackSlices(row.Slices).FirstBucketRow, Bits: bits.Len(uint(len(rows) - 1))}
	if err := bpf.ReadRows(t.SNATRanges, "snat_ranges", where, rows); err != nil {
		return s, err
	}
	ranges := map[uint32]int{}
	for _, row := range rows {
		for _, owner := range row.Owners {
			if owner != 0 {
				ranges[owner]++
			}
		}
	}
	for owner, n := range ranges {
		var row bpf.MuxBackend
		var hop bpf.MuxNextHop
		if err := t.SNATOwners.Lookup(owner, &row); err != nil {
			return s, fmt.Errorf("read row %d of snat_owners: %w", owner, err)
		}
		if err := t.NextHops.Lookup(row.NextHop, &hop); err != nil {
			return s, fmt.Errorf("read row %d of next_hops: %w", row.NextHop, err)
		}
		s.Tunnels = append(s.Tunnels, SNATTunnel{Tunnel: bpf.FromAddress(row.Tunnel), Ranges: n, NextHop: bpf.FromNextHop(hop)})
	}
	slices.SortFunc(s.Tunnels, func(a, b SNATTunnel) int { return a.Tunnel.Compare(b.Tunnel) })
	return s, nil
}

// SNATDigest sums up the ranges that the tables hold, for the manager to compare with what they should.
func (d *Datapath) SNATDigest() (ranges int, digest uint64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	tunnels := make(map[uint32]netip.Addr, len(d.snat.owners.byTunnel))
	for tunnel, owner := range d.snat.owners.byTunnel {
		tunnels[owner.id] = tunnel
	}
	for vip, live := range d.snat.vips {
		held := map[uint32][]model.Range{}
		for r, owner := range d.snat.of(live.slice) {
			if owner != 0 {
				held[owner] = append(held[owner], model.Range(r))
			}
		}
		for owner, of := range held {
			ranges += len(of)
			digest ^= snatdigest.Digest(vip, tunnels[owner], of...)
		}
	}
	return ranges, digest
}
