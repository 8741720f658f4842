package snatport

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// Changed computes what the workloads and hosts of the VIP at an address have, and returns what differs from a. Workloads
// that vip lists have what is preallocated; what others have goes into quarantine, and so does the block of a host without
// workloads, or which has none by hasBlocks. vip is empty if none has the address. While frozen nothing is allocated.
func (a Allocations) Changed(address netip.Addr, vip model.VIP, now time.Time, frozen bool, hasBlocks func(host string) bool) map[model.SNATKey]Allocation {
	changed := map[model.SNATKey]Allocation{}
	listed := map[netip.Addr]bool{}
	if vip.SNAT != nil {
		next, blocked := a.Clone(), snat.Blocked(vip) // each is given what those before it left
		for i, w := range vip.SNAT.Workloads {
			key := model.SNATKey{VIP: address, Address: w.Address}
			listed[w.Address] = true
			old, had := a.Get(key)
			h := old.within(int(vip.SNAT.MaxPorts)/model.RangePorts, blocked)
			h.Host = w.Host
			if lack := int(vip.SNAT.Preallocate)/model.RangePorts - h.Active(); lack > 0 && !frozen {
				// They begin where each has its own, so that small VIPs stay easy to read.
				start := model.Range(i * int(vip.SNAT.Preallocate) / model.RangePorts % snat.Ranges)
				h, _ = next.allocate(key, h, blocked, lack, start)
			}
			if !had || !h.Equal(old) {
				changed[key] = h
				next.Set(key, h)
			}
		}
		limits := next.Limits(vip)
		for key, w := range blocksOf(vip) {
			old := a.At(key)
			if !hasBlocks(w.Host) || len(old.Ranges) > 0 && old.Host != w.Host {
				continue
			}
			listed[key.Address] = true
			if h := old.within(limits[key], blocked); !h.Equal(old) {
				changed[key] = h
			}
		}
	}
	for key, old := range a.Of(address) {
		if !listed[key.Address] && len(old.Ranges) > 0 {
			changed[key] = old.Release(old.Ranges, now)
		}
	}
	return changed
}

// allocate returns h with up to n ranges more, and which those are: its own in quarantine first, then what is free from
// start on. A block gets none of its own in quarantine: its host may give them to another workload than before.
func (a Allocations) allocate(key model.SNATKey, h Allocation, blocked *snat.Set, n int, start model.Range) (Allocation, []model.Range) {
	var given []model.Range
	var quarantined []Quarantined
	for _, r := range h.Quarantined {
		kept := Quarantined{Since: r.Since}
		for _, own := range r.Ranges {
			if len(given) < n && !blocked.Has(own) && !key.IsBlock() {
				given = append(given, own)
			} else {
				kept.Ranges = append(kept.Ranges, own)
			}
		}
		if len(kept.Ranges) > 0 {
			quarantined = append(quarantined, kept)
		}
	}
	h.Quarantined = quarantined
	for r := range snat.Free(a.Taken(key.VIP), blocked, start) {
		if len(given) >= n {
			break
		}
		given = append(given, r)
	}
	slices.Sort(given)
	h.Ranges = slices.Concat(h.Ranges, given)
	slices.Sort(h.Ranges)
	return h, given
}

// Allocate returns what the workload or host of a key has of vip with up to n ranges more, from start on, and which those
// are.
func (a Allocations) Allocate(vip model.VIP, key model.SNATKey, n int, start model.Range) (Allocation, []model.Range) {
	h := a.At(key)
	if w, there := a.Client(key); there {
		h.Host = w.Host
	}
	return a.allocate(key, h, snat.Blocked(vip), n, start)
}

// Available is how many ranges the workload or host of a key could get: those that are free, and of a workload its own in
// quarantine.
func (a Allocations) Available(vip model.VIP, key model.SNATKey) int {
	n := snat.FreeCount(a.Taken(key.VIP), snat.Blocked(vip))
	if key.IsBlock() {
		return n
	}
	for _, r := range a.At(key).Quarantined {
		n += len(r.Ranges)
	}
	return n
}

// ResolveDoubles are port allocations, as they must be, of workloads that have a range of a VIP that another
// one has too: whoever was given it last, by what written says of each, loses it.
func (a Allocations) ResolveDoubles(vip netip.Addr, written func(model.SNATKey) uint64) map[model.SNATKey]Allocation {
	if a.DoublyAllocated(vip).Len() == 0 {
		return nil
	}
	wrong := map[model.SNATKey]Allocation{}
	for r := range snat.Free(nil, nil, 0) {
		if !a.DoublyAllocated(vip).Has(r) {
			continue
		}
		var first model.SNATKey
		var all []model.SNATKey
		for key, h := range a.Of(vip) {
			if h.Has(r) {
				if all = append(all, key); len(all) == 1 || written(key) < written(first) {
					first = key
				}
			}
		}
		for _, key := range all {
			if key == first {
				continue
			}
			h, again := wrong[key]
			if !again {
				h = a.At(key)
			}
			wrong[key] = h.without(r)
		}
	}
	return wrong
}
