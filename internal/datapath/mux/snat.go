package mux

import (
	"fmt"
	"net/netip"
	"slices"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/model"
)

// snat knows which workload has which port ranges. Of adopted tables only the tunnels of their owners are known, until
// the first snapshot names the workloads.
type snat struct {
	live    map[model.SNATKey]model.MuxSNAT
	vips    map[netip.Addr]*snatVIP
	slices  *alloc.IDs // of snat_ranges, from 1, a VIP's each
	retired []uint32   // of slices: packets may still read these
	owners  *owners
	adopted []netip.Addr // tunnels that hold rows of owners for nobody we know
	words   []uint32     // snat_ranges, shared with packets; nil until it is opened
	raw     [][]byte
}

// snatVIP is a VIP that workloads leave as.
type snatVIP struct {
	slice     uint32
	workloads int
}

// snatWords are the ranges of a VIP: rows of snat_owners, 0 for nobody.
type snatWords [bpf.SNATRanges]uint32

func newSNAT(vips, owners uint32) *snat {
	return &snat{
		live: map[model.SNATKey]model.MuxSNAT{}, vips: map[netip.Addr]*snatVIP{},
		slices: alloc.NewIDs("snat_ranges", vips), owners: newOwners(owners),
	}
}

// openSNAT maps the table of ranges into memory, once.
func (d *Datapath) openSNAT() error {
	if d.snat.words != nil {
		return nil
	}
	rows, err := bpf.MapRows[[bpf.SNATRowRanges]uint32](&d.snat.raw, d.tables.SNATRanges)
	if err != nil {
		return fmt.Errorf("map table snat_ranges: %w", err)
	}
	d.snat.words = unsafeWords(rows)
	return nil
}

func (s *snat) close() {
	for _, raw := range s.raw {
		_ = unix.Munmap(raw)
	}
	s.raw, s.words = nil, nil
}

// of is a slice's words.
func (s *snat) of(slice uint32) []uint32 {
	first := int(slice-1) * bpf.SNATRanges
	return s.words[first : first+bpf.SNATRanges]
}

// takeSlice is one that no packet reads.
func (s *snat) takeSlice() (uint32, error) {
	if len(s.slices.Free) == 0 && len(s.retired) > 0 {
		if err := bpf.Quiesce(); err != nil {
			return 0, err
		}
		s.slices.Free, s.retired = append(s.slices.Free, s.retired...), nil
	}
	slice, err := s.slices.Take()
	if err != nil {
		return 0, fmt.Errorf("%w: %d VIPs have source NAT already: raise --max-snat-ports", err, len(s.vips))
	}
	return slice, nil
}

// snatPlan is what an update changes. All rows that it needs are reserved.
type snatPlan struct {
	put     []model.MuxSNAT
	removed []model.SNATKey // live, and in put no more
	all     bool            // put is all that there is
	words   map[netip.Addr]*snatWords
	begin   map[netip.Addr]*snatVIP // VIPs that had none
	ids     map[netip.Addr]uint32   // of their counters
	held    []netip.Addr            // tunnels
	fresh   []netip.Addr            // of held: their rows are to be written
}

// planSNAT finds what an update changes, and reserves it, or nothing.
func (d *Datapath) planSNAT(u Update) (p *snatPlan, err error) {
	if err := d.openSNAT(); err != nil {
		return nil, err
	}
	if u.KeepSNAT {
		u.Snapshot, u.SNAT, u.SNATRemoved = false, d.keptSNAT(u.SNAT), nil
	}
	p = &snatPlan{
		put: u.SNAT, all: u.Snapshot, words: map[netip.Addr]*snatWords{},
		begin: map[netip.Addr]*snatVIP{}, ids: map[netip.Addr]uint32{},
	}
	defer func() {
		if err != nil {
			d.undoSNAT(p)
		}
	}()
	if err := d.planRemovals(p, u); err != nil {
		return p, err
	}
	for _, s := range p.put {
		if err := d.planRanges(p, s); err != nil {
			return p, fmt.Errorf("give ranges to %s: %w", s.Key, err)
		}
	}
	return p, nil
}

// keptSNAT adds to told the ranges that the workloads have already, and leaves out those that others have. Of ranges
// that an earlier process gave only the tunnels are known: they stay in place.
func (d *Datapath) keptSNAT(told []model.MuxSNAT) []model.MuxSNAT {
	kept := make([]model.MuxSNAT, 0, len(told))
	given := map[netip.Addr]map[model.Range]bool{}
	for _, s := range told {
		has := d.snat.live[s.Key].Ranges
		var ranges []model.Range
		for _, r := range s.Ranges {
			live := d.snat.vips[s.Key.VIP]
			if taken := live != nil && int(r) < bpf.SNATRanges && d.snat.of(live.slice)[r] != 0; taken || given[s.Key.VIP][r] {
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

// planRemovals takes away what goes, and what is to be given anew.
func (d *Datapath) planRemovals(p *snatPlan, u Update) error {
	given := map[model.SNATKey]bool{}
	for _, s := range u.SNAT {
		if given[s.Key] {
			return fmt.Errorf("workload %s is given twice", s.Key)
		}
		given[s.Key] = true
		if old, live := d.snat.live[s.Key]; live {
			d.takeAway(p, old)
		}
	}
	gone := u.SNATRemoved
	if u.Snapshot {
		gone = nil
		for key := range d.snat.live {
			gone = append(gone, key)
		}
		for vip := range d.snat.vips {
			p.of(d, vip)
		}
	}
	for _, key := range gone {
		if old, live := d.snat.live[key]; live && !given[key] {
			given[key] = true
			p.removed = append(p.removed, key)
			d.takeAway(p, old)
		}
	}
	return nil
}

func (d *Datapath) takeAway(p *snatPlan, old model.MuxSNAT) {
	words := p.of(d, old.Key.VIP)
	for _, r := range old.Ranges {
		words[r] = 0
	}
}

// of are the VIP's words to be; a snapshot's begin with nobody's.
func (p *snatPlan) of(d *Datapath, vip netip.Addr) *snatWords {
	words := p.words[vip]
	if words == nil {
		words = &snatWords{}
		if live := d.snat.vips[vip]; live != nil && !p.all {
			copy(words[:], d.snat.of(live.slice))
		}
		p.words[vip] = words
	}
	return words
}

// planRanges gives a workload its ranges.
func (d *Datapath) planRanges(p *snatPlan, s model.MuxSNAT) error {
	if !s.Tunnel.IsValid() || s.Tunnel.Is4In6() || s.Tunnel.Zone() != "" {
		return fmt.Errorf("it has no usable tunnel address: %q", s.Tunnel)
	}
	if err := d.beginSNAT(p, s.Key.VIP); err != nil {
		return err
	}
	id, fresh, err := d.snat.owners.hold(s.Tunnel)
	if err != nil {
		return err
	}
	p.held = append(p.held, s.Tunnel)
	if fresh {
		p.fresh = append(p.fresh, s.Tunnel)
	}
	words := p.of(d, s.Key.VIP)
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

// beginSNAT reserves what a VIP without source NAT needs to have it.
func (d *Datapath) beginSNAT(p *snatPlan, vip netip.Addr) error {
	if d.snat.vips[vip] != nil || p.begin[vip] != nil {
		return nil
	}
	slice, err := d.snat.takeSlice()
	if err != nil {
		return err
	}
	p.begin[vip] = &snatVIP{slice: slice}
	p.ids[vip], err = d.newID()
	return err
}

// undoSNAT gives back what the plan reserved.
func (d *Datapath) undoSNAT(p *snatPlan) {
	for _, tunnel := range p.held {
		d.snat.owners.release(tunnel)
	}
	for _, vip := range p.begin {
		d.snat.slices.Put(vip.slice)
	}
	for _, id := range p.ids {
		if id != 0 {
			d.ids.Put(id)
		}
	}
}

// carryOutSNAT writes what is new, lets packets find it, then gives up the old. A range's owner is one
// word: packets see the old one or the new.
func (d *Datapath) carryOutSNAT(p *snatPlan) error {
	for _, tunnel := range p.fresh {
		if err := d.writeOwner(tunnel); err != nil {
			return err
		}
	}
	d.noteWorkloads(p)
	for vip, words := range p.words {
		live := d.snat.vips[vip]
		to := d.snat.of(live.slice)
		for i, owner := range words {
			if atomic.LoadUint32(&to[i]) != owner {
				atomic.StoreUint32(&to[i], owner)
			}
		}
		if err := d.writeSNATVIP(p, vip, live); err != nil {
			return err
		}
	}
	for vip, live := range d.snat.vips {
		if live.workloads > 0 || len(d.snat.adopted) > 0 {
			continue
		}
		if err := d.endSNAT(vip, live); err != nil {
			return err
		}
	}
	return nil
}

// noteWorkloads brings what is known of them to what the plan says.
func (d *Datapath) noteWorkloads(p *snatPlan) {
	for vip, begun := range p.begin {
		d.snat.vips[vip] = begun
	}
	for _, key := range p.removed {
		d.forgetWorkload(key)
	}
	for _, s := range p.put {
		d.forgetWorkload(s.Key)
		s.Ranges = slices.Clone(s.Ranges)
		d.snat.live[s.Key] = s
		d.snat.vips[s.Key.VIP].workloads++
		d.tunnels.add(s.Tunnel, 1)
	}
	if p.all {
		for _, tunnel := range d.snat.adopted {
			d.snat.owners.release(tunnel)
			d.tunnels.add(tunnel, -1)
		}
		d.snat.adopted = nil
	}
}

func (d *Datapath) forgetWorkload(key model.SNATKey) {
	old, live := d.snat.live[key]
	if !live {
		return
	}
	delete(d.snat.live, key)
	d.snat.vips[key.VIP].workloads--
	d.snat.owners.release(old.Tunnel)
	d.tunnels.add(old.Tunnel, -1)
}

// writeSNATVIP lets packets find the ranges of the VIP, which are there.
func (d *Datapath) writeSNATVIP(p *snatPlan, vip netip.Addr, live *snatVIP) error {
	if live.workloads == 0 {
		return nil
	}
	known, err := d.openVIP(vip)
	if err != nil {
		return err
	}
	row := known.row
	if id := p.ids[vip]; id != 0 {
		row.Id = id
	}
	row.Slices = bpf.SlicePair{FirstBucketRow: (live.slice - 1) * uint32(bpf.SNATRanges/bpf.SNATRowRanges), BucketBits: bpf.NoBuckets}.Pack()
	row.Flags |= bpf.MuxEndpointFlagENDPOINT_VIP | bpf.MuxEndpointFlagENDPOINT_SNAT
	for _, s := range p.put {
		if s.Key.VIP == vip {
			row.Flags = withPing(row.Flags, s.Ping)
			break
		}
	}
	return d.writeVIP(vip, known, row)
}

// endSNAT takes the way to the VIP's ranges away.
func (d *Datapath) endSNAT(vip netip.Addr, live *snatVIP) error {
	known := d.vips.live[vip]
	row := known.row
	d.index.remove(bpf.ToKey(vipKey(vip)), row.Id)
	d.ids.Put(row.Id)
	row.Id, row.Slices = 0, bpf.SlicePair{BucketBits: bpf.NoBuckets}.Pack()
	row.Flags &^= bpf.MuxEndpointFlagENDPOINT_SNAT
	delete(d.snat.vips, vip)
	d.snat.retired = append(d.snat.retired, live.slice)
	if known.endpoints == 0 {
		return d.removeVIP(vip, known)
	}
	return d.writeVIP(vip, known, row)
}

func (d *Datapath) writeOwner(tunnel netip.Addr) error {
	owner := d.snat.owners.byTunnel[tunnel]
	if err := d.tables.SNATOwners.Update(owner.id, d.ownerRow(tunnel), ebpf.UpdateExist); err != nil {
		return fmt.Errorf("write row %d of snat_owners: %w", owner.id, err)
	}
	return nil
}

func (d *Datapath) ownerRow(tunnel netip.Addr) bpf.MuxBackend {
	return bpf.MuxBackend{
		Tunnel: bpf.ToAddress(tunnel), NextHop: d.hops.id(tunnel), Flags: backendFlags(model.MuxBackend{Tunnel: tunnel}),
	}
}

// pointOwners rewrites the next hop of every row whose tunnel got another one.
func (d *Datapath) pointOwners(old *hops) error {
	for tunnel := range d.snat.owners.byTunnel {
		if d.hops.id(tunnel) == old.id(tunnel) {
			continue
		}
		if err := d.writeOwner(tunnel); err != nil {
			return err
		}
	}
	return nil
}
