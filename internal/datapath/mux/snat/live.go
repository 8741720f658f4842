package snat

import (
	"fmt"
	"iter"
	"maps"
	"math/bits"
	"net/netip"
	"slices"
	"unsafe"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/viprow"
	"github.com/weirlb/weir/internal/model"
	snatdigest "github.com/weirlb/weir/internal/snat"
)

// unsafeWords are the words of rows that lie one behind the other.
func unsafeWords(rows [][bpf.SNATRowRanges]uint32) []uint32 {
	return unsafe.Slice(&rows[0][0], len(rows)*bpf.SNATRowRanges)
}

// Adopt restores what can be known of adopted tables: which slices and rows are in use.
func (t *Table) Adopt() error {
	if err := t.open(); err != nil {
		return err
	}
	slicesUsed, ownersUsed := map[uint32]bool{}, map[uint32]bool{}
	for vip, live := range t.rows.Live {
		if live.Row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT == 0 {
			continue
		}
		first := bpf.UnpackSlices(live.Row.Slices).FirstBucketRow
		slice := first/uint32(bpf.SNATRanges/bpf.SNATRowRanges) + 1
		t.vips[vip] = &liveVIP{slice: slice}
		slicesUsed[slice] = true
		for _, owner := range t.wordsOf(slice) {
			if owner != 0 {
				ownersUsed[owner] = true
			}
		}
	}
	t.slices.Claim(slicesUsed)
	for id := range ownersUsed {
		var row bpf.MuxBackend
		if err := t.tables.SNATOwners.Lookup(id, &row); err != nil {
			return fmt.Errorf("read row %d of snat_owners: %w", id, err)
		}
		tunnel := bpf.FromAddress(row.Tunnel)
		t.hops.Adopt(tunnel, row.NextHop)
		t.owners.byTunnel[tunnel] = &owner{id: id, uses: 1}
		t.adopted = append(t.adopted, tunnel)
		t.tunnels.Add(tunnel, 1)
	}
	t.owners.ids.Claim(ownersUsed)
	return nil
}

// Has says whether workloads leave as the VIP.
func (t *Table) Has(vip netip.Addr) bool { return t.vips[vip] != nil }

// Len is how many VIPs workloads leave as.
func (t *Table) Len() int { return len(t.vips) }

// Owners is how many tunnels hold rows of snat_owners.
func (t *Table) Owners() int { return len(t.owners.byTunnel) }

// Ranges are rows of snat_owners by the VIP's ranges, 0 for nobody: as packets have them.
func (t *Table) Ranges(vip netip.Addr) []uint32 { return t.wordsOf(t.vips[vip].slice) }

// Free is how much of snat_ranges and snat_owners is free, or retired.
func (t *Table) Free() (vips, owners int) {
	return len(t.slices.Free) + len(t.retired), len(t.owners.ids.Free) + len(t.owners.retired)
}

// VIPs are those that workloads leave as.
func (t *Table) VIPs() iter.Seq[netip.Addr] { return maps.Keys(t.vips) }

// Counters counts the answers sent to workloads that leave as each VIP, since it has source NAT.
func (t *Table) Counters() (map[netip.Addr]model.Counter, error) {
	counters := map[netip.Addr]model.Counter{}
	for vip := range t.vips {
		counter, err := abi.Counter(t.tables.EndpointCounts, t.rows.Live[vip].Row.Id)
		if err != nil {
			return nil, fmt.Errorf("read counter of vip %s: %w", vip, err)
		}
		counters[vip] = counter
	}
	return counters, nil
}

// WorkloadOf is who has the VIP's port.
func (t *Table) WorkloadOf(vip netip.Addr, port uint16) (model.SNATKey, bool) {
	for key, s := range t.Live {
		if key.VIP != vip {
			continue
		}
		if _, has := slices.BinarySearch(s.Ranges, model.RangeOf(port)); has {
			return key, true
		}
	}
	return model.SNATKey{}, false
}

// ReadStatus reads who has the ports of each VIP.
func ReadStatus(t *bpf.Tables) (all []Status, err error) {
	err = viprow.EachRow(t, func(key model.EndpointKey, row bpf.MuxEndpoint) error {
		if row.Flags&bpf.MuxEndpointFlagENDPOINT_SNAT == 0 {
			return nil
		}
		s, err := readVIP(t, key.VIP, row)
		all = append(all, s)
		return err
	})
	slices.SortFunc(all, func(a, b Status) int { return a.VIP.Compare(b.VIP) })
	return all, err
}

func readVIP(t *bpf.Tables, vip netip.Addr, row bpf.MuxEndpoint) (s Status, err error) {
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
		s.Tunnels = append(s.Tunnels, Tunnel{Tunnel: bpf.FromAddress(row.Tunnel), Ranges: n, NextHop: bpf.FromNextHop(hop)})
	}
	slices.SortFunc(s.Tunnels, func(a, b Tunnel) int { return a.Tunnel.Compare(b.Tunnel) })
	return s, nil
}

// Digest sums up the ranges that the tables hold, for the manager to compare with what they should.
func (t *Table) Digest() (ranges int, digest uint64) {
	tunnels := make(map[uint32]netip.Addr, len(t.owners.byTunnel))
	for tunnel, owner := range t.owners.byTunnel {
		tunnels[owner.id] = tunnel
	}
	for vip, live := range t.vips {
		held := map[uint32][]model.Range{}
		for r, owner := range t.wordsOf(live.slice) {
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

// Status is a VIP that workloads leave as.
type Status struct {
	VIP     netip.Addr
	Counter model.Counter // of answers
	Tunnels []Tunnel      // in order
}

// Tunnel is where answers to some ranges go.
type Tunnel struct {
	Tunnel  netip.Addr
	Ranges  int
	NextHop model.NextHop // zero: not resolved
}
