package snat

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/mux/nexthop"
	"github.com/weirlb/weir/internal/datapath/mux/viprow"
	"github.com/weirlb/weir/internal/model"
)

// Table knows which workload has which port ranges. Of adopted tables only the tunnels of their owners are known, until
// the first snapshot names the workloads.
// The caller holds the data plane's lock.
type Table struct {
	tables  *bpf.Tables
	rows    *viprow.Table
	hops    *nexthop.Hops
	tunnels *nexthop.Tunnels

	Live    map[model.SNATKey]model.MuxSNAT
	vips    map[netip.Addr]*liveVIP
	slices  *alloc.IDs // of snat_ranges, from 1, a VIP's each
	retired []uint32   // of slices: packets may still read these
	owners  *owners
	adopted []netip.Addr // tunnels that hold rows of owners for nobody we know
	words   []uint32     // snat_ranges, shared with packets; nil until it is opened
	raw     [][]byte
}

// liveVIP is a VIP that workloads leave as.
type liveVIP struct {
	slice     uint32
	workloads int
}

// rangeWords are the ranges of a VIP: rows of snat_owners, 0 for nobody.
type rangeWords [bpf.SNATRanges]uint32

// New knows of none yet.
func New(tables *bpf.Tables, sizes bpf.Sizes, rows *viprow.Table, hops *nexthop.Hops, tunnels *nexthop.Tunnels) *Table {
	return &Table{
		tables: tables, rows: rows, hops: hops, tunnels: tunnels, Live: map[model.SNATKey]model.MuxSNAT{}, vips: map[netip.Addr]*liveVIP{},
		slices: alloc.NewIDs("snat_ranges", sizes.SNATVIPs), owners: newOwners(sizes.SNATOwnerRows()),
	}
}

// open maps the table of ranges into memory, once.
func (t *Table) open() error {
	if t.words != nil {
		return nil
	}
	rows, err := abi.MapRows[[bpf.SNATRowRanges]uint32](&t.raw, t.tables.SNATRanges)
	if err != nil {
		return fmt.Errorf("map table snat_ranges: %w", err)
	}
	t.words = unsafeWords(rows)
	return nil
}

// Close ends the sharing of memory with packets.
func (t *Table) Close() {
	abi.Unmap(&t.raw)
	t.words = nil
}

// wordsOf is a slice's words.
func (t *Table) wordsOf(slice uint32) []uint32 {
	first := int(slice-1) * bpf.SNATRanges
	return t.words[first : first+bpf.SNATRanges]
}

// takeSlice is one that no packet reads.
func (t *Table) takeSlice() (uint32, error) {
	if len(t.slices.Free) == 0 && len(t.retired) > 0 {
		if err := abi.Quiesce(); err != nil {
			return 0, err
		}
		t.slices.Free, t.retired = append(t.slices.Free, t.retired...), nil
	}
	slice, err := t.slices.Take()
	if err != nil {
		return 0, fmt.Errorf("%w: %d VIPs have source NAT already: raise --max-snat-ports", err, len(t.vips))
	}
	return slice, nil
}

// Update is a change of workloads.
type Update struct {
	Snapshot  bool            // these are all: others go
	Workloads []model.MuxSNAT // whole; a range may go from one to another in one step
	Removed   []model.SNATKey
	// Keep lets no workload lose a range: Workloads adds those that are nobody's, a snapshot's too.
	Keep bool
}

// Plan is what an update changes. All rows that it needs are reserved.
type Plan struct {
	put     []model.MuxSNAT
	removed []model.SNATKey // live, and in put no more
	all     bool            // put is all that there is
	words   map[netip.Addr]*rangeWords
	begin   map[netip.Addr]*liveVIP // VIPs that had none
	ids     map[netip.Addr]uint32   // of their counters
	held    []netip.Addr            // tunnels
	fresh   []netip.Addr            // of held: their rows are to be written
}

// Plan finds what an update changes, and reserves it, or nothing.
func (t *Table) Plan(u Update) (p *Plan, err error) {
	if err := t.open(); err != nil {
		return nil, err
	}
	if u.Keep {
		u.Snapshot, u.Workloads, u.Removed = false, t.withoutConflicts(u.Workloads), nil
	}
	p = &Plan{
		put: u.Workloads, all: u.Snapshot, words: map[netip.Addr]*rangeWords{},
		begin: map[netip.Addr]*liveVIP{}, ids: map[netip.Addr]uint32{},
	}
	defer func() {
		if err != nil {
			t.Undo(p)
		}
	}()
	if err := p.remove(t, u); err != nil {
		return p, err
	}
	for _, s := range p.put {
		if err := p.assign(t, s); err != nil {
			return p, fmt.Errorf("give ranges to %s: %w", s.Key, err)
		}
	}
	return p, nil
}

// withoutConflicts adds to told the ranges that the workloads have already, and leaves out those of others. Of ranges
// that an earlier process gave only the tunnels are known: they stay in place.
func (t *Table) withoutConflicts(told []model.MuxSNAT) []model.MuxSNAT {
	kept := make([]model.MuxSNAT, 0, len(told))
	given := map[netip.Addr]map[model.Range]bool{}
	for _, s := range told {
		has := t.Live[s.Key].Ranges
		var ranges []model.Range
		for _, r := range s.Ranges {
			live := t.vips[s.Key.VIP]
			if taken := live != nil && int(r) < bpf.SNATRanges && t.wordsOf(live.slice)[r] != 0; taken || given[s.Key.VIP][r] {
				continue
			}
			if given[s.Key.VIP] == nil {
				given[s.Key.VIP] = map[model.Range]bool{}
			}
			given[s.Key.VIP][r] = true
			ranges = append(ranges, r)
		}
		s.Ranges = slices.Concat(has, ranges)
		slices.Sort(s.Ranges)
		kept = append(kept, s)
	}
	return kept
}

// remove takes away what goes, and what is to be given anew.
func (p *Plan) remove(t *Table, u Update) error {
	given := map[model.SNATKey]bool{}
	for _, s := range u.Workloads {
		if given[s.Key] {
			return fmt.Errorf("workload %s is given twice", s.Key)
		}
		given[s.Key] = true
		if old, live := t.Live[s.Key]; live {
			p.takeAway(t, old)
		}
	}
	gone := u.Removed
	if u.Snapshot {
		gone = nil
		for key := range t.Live {
			gone = append(gone, key)
		}
		for vip := range t.vips {
			p.wordsOf(t, vip)
		}
	}
	for _, key := range gone {
		if old, live := t.Live[key]; live && !given[key] {
			given[key] = true
			p.removed = append(p.removed, key)
			p.takeAway(t, old)
		}
	}
	return nil
}

func (p *Plan) takeAway(t *Table, old model.MuxSNAT) {
	words := p.wordsOf(t, old.Key.VIP)
	for _, r := range old.Ranges {
		words[r] = 0
	}
}

// wordsOf are the VIP's words to be; a snapshot's begin with nobody's.
func (p *Plan) wordsOf(t *Table, vip netip.Addr) *rangeWords {
	words := p.words[vip]
	if words == nil {
		words = &rangeWords{}
		if live := t.vips[vip]; live != nil && !p.all {
			copy(words[:], t.wordsOf(live.slice))
		}
		p.words[vip] = words
	}
	return words
}

// assign plans a workload's ranges.
func (p *Plan) assign(t *Table, s model.MuxSNAT) error {
	if !s.Tunnel.IsValid() || s.Tunnel.Is4In6() || s.Tunnel.Zone() != "" {
		return fmt.Errorf("it has no usable tunnel address: %q", s.Tunnel)
	}
	if err := p.beginVIP(t, s.Key.VIP); err != nil {
		return err
	}
	id, fresh, err := t.owners.addWorkload(s.Tunnel)
	if err != nil {
		return err
	}
	p.held = append(p.held, s.Tunnel)
	if fresh {
		p.fresh = append(p.fresh, s.Tunnel)
	}
	words := p.wordsOf(t, s.Key.VIP)
	for _, r := range s.Ranges {
		if int(r) >= bpf.SNATRanges {
			return fmt.Errorf("range %d is not below %d", r, bpf.SNATRanges)
		}
		if words[r] != 0 {
			return fmt.Errorf("range %d, of the ports from %d on, is another's", r, r.First())
		}
		words[r] = id
	}
	return nil
}

// beginVIP reserves what a VIP without source NAT needs to have it.
func (p *Plan) beginVIP(t *Table, vip netip.Addr) error {
	if t.vips[vip] != nil || p.begin[vip] != nil {
		return nil
	}
	slice, err := t.takeSlice()
	if err != nil {
		return err
	}
	p.begin[vip] = &liveVIP{slice: slice}
	p.ids[vip], err = t.rows.NewID()
	return err
}

// Undo gives back what the plan reserved.
func (t *Table) Undo(p *Plan) {
	for _, tunnel := range p.held {
		t.owners.release(tunnel)
	}
	for _, vip := range p.begin {
		t.slices.Put(vip.slice)
	}
	for _, id := range p.ids {
		if id != 0 {
			t.rows.IDs.Put(id)
		}
	}
}

// CarryOut writes what is new, lets packets find it, then gives up the old. A range's owner is one
// word: packets see the old one or the new.
func (t *Table) CarryOut(p *Plan) error {
	for _, tunnel := range p.fresh {
		if err := t.writeOwner(tunnel); err != nil {
			return err
		}
	}
	t.noteWorkloads(p)
	for vip, words := range p.words {
		live := t.vips[vip]
		to := t.wordsOf(live.slice)
		for i, owner := range words {
			if atomic.LoadUint32(&to[i]) != owner {
				atomic.StoreUint32(&to[i], owner)
			}
		}
		if err := t.writeVIP(p, vip, live); err != nil {
			return err
		}
	}
	for vip, live := range t.vips {
		if live.workloads > 0 || len(t.adopted) > 0 {
			continue
		}
		if err := t.end(vip, live); err != nil {
			return err
		}
	}
	return nil
}

// noteWorkloads brings what is known of them to what the plan says.
func (t *Table) noteWorkloads(p *Plan) {
	for vip, begun := range p.begin {
		t.vips[vip] = begun
	}
	for _, key := range p.removed {
		t.forgetWorkload(key)
	}
	for _, s := range p.put {
		t.forgetWorkload(s.Key)
		s.Ranges = slices.Clone(s.Ranges)
		t.Live[s.Key] = s
		t.vips[s.Key.VIP].workloads++
		t.tunnels.Add(s.Tunnel, 1)
	}
	if p.all {
		for _, tunnel := range t.adopted {
			t.owners.release(tunnel)
			t.tunnels.Add(tunnel, -1)
		}
		t.adopted = nil
	}
}

func (t *Table) forgetWorkload(key model.SNATKey) {
	old, live := t.Live[key]
	if !live {
		return
	}
	delete(t.Live, key)
	t.vips[key.VIP].workloads--
	t.owners.release(old.Tunnel)
	t.tunnels.Add(old.Tunnel, -1)
}

// writeVIP lets packets find the ranges of the VIP, which are there.
func (t *Table) writeVIP(p *Plan, vip netip.Addr, live *liveVIP) error {
	if live.workloads == 0 {
		return nil
	}
	known, err := t.rows.Open(vip)
	if err != nil {
		return err
	}
	row := known.Row
	if id := p.ids[vip]; id != 0 {
		row.Id = id
	}
	row.Slices = bpf.SlicePair{FirstBucketRow: (live.slice - 1) * uint32(bpf.SNATRanges/bpf.SNATRowRanges), BucketBits: bpf.NoBuckets}.Pack()
	row.Flags |= bpf.MuxEndpointFlagENDPOINT_VIP | bpf.MuxEndpointFlagENDPOINT_SNAT
	for _, s := range p.put {
		if s.Key.VIP == vip {
			row.Flags = viprow.WithPing(row.Flags, s.Ping)
			break
		}
	}
	return t.rows.Write(vip, known, row)
}

// end takes the way to the VIP's ranges away.
func (t *Table) end(vip netip.Addr, live *liveVIP) error {
	known := t.rows.Live[vip]
	row := known.Row
	t.rows.Index.Remove(bpf.ToKey(viprow.Key(vip)), row.Id)
	t.rows.IDs.Put(row.Id)
	row.Id, row.Slices = 0, bpf.SlicePair{BucketBits: bpf.NoBuckets}.Pack()
	row.Flags &^= bpf.MuxEndpointFlagENDPOINT_SNAT
	delete(t.vips, vip)
	t.retired = append(t.retired, live.slice)
	if known.Endpoints == 0 {
		return t.rows.Remove(vip, known)
	}
	return t.rows.Write(vip, known, row)
}

func (t *Table) writeOwner(tunnel netip.Addr) error {
	owner := t.owners.byTunnel[tunnel]
	if err := t.tables.SNATOwners.Update(owner.id, t.ownerRow(tunnel), ebpf.UpdateExist); err != nil {
		return fmt.Errorf("write row %d of snat_owners: %w", owner.id, err)
	}
	return nil
}

func (t *Table) ownerRow(tunnel netip.Addr) bpf.MuxBackend {
	return bpf.MuxBackend{
		Tunnel: bpf.ToAddress(tunnel), NextHop: t.hops.ID(tunnel), Flags: bpf.BackendFlags(model.MuxBackend{Tunnel: tunnel}),
	}
}

// Point rewrites the next hop of every row whose tunnel got another one.
func (t *Table) Point(moved func(tunnel netip.Addr) bool) error {
	for tunnel := range t.owners.byTunnel {
		if !moved(tunnel) {
			continue
		}
		if err := t.writeOwner(tunnel); err != nil {
			return err
		}
	}
	return nil
}
