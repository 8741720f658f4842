package desired

import (
	"fmt"
	"iter"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
)

// QuarantineTime is how long a released range is allocated to no other workload: late packets of its connections are
// dropped and reach no other workload.
const QuarantineTime = 2 * time.Minute

// PortAllocation are the port ranges that a workload has of a VIP.
type PortAllocation struct {
	Host        string        // of the workload
	Ranges      []model.Range // in order
	Reclaim     []model.Range // of Ranges, those that take no new flow, in order
	Quarantined []Quarantined // released by it, and not free yet
}

// Quarantined are ranges that were released at one time.
type Quarantined struct {
	Since  time.Time
	Ranges []model.Range
}

// Equal says whether both are the same.
func (h PortAllocation) Equal(other PortAllocation) bool {
	return h.Host == other.Host && slices.Equal(h.Ranges, other.Ranges) && slices.Equal(h.Reclaim, other.Reclaim) &&
		slices.EqualFunc(h.Quarantined, other.Quarantined, func(a, b Quarantined) bool {
			return a.Since.Equal(b.Since) && slices.Equal(a.Ranges, b.Ranges)
		})
}

// Empty says whether it has no range, nor any in quarantine.
func (h PortAllocation) Empty() bool { return len(h.Ranges) == 0 && len(h.Quarantined) == 0 }

// Active is how many ranges take new flows.
func (h PortAllocation) Active() int { return len(h.Ranges) - len(h.Reclaim) }

// allRanges are the ranges of h, those in quarantine included.
func (h PortAllocation) allRanges() iter.Seq[model.Range] {
	return func(yield func(model.Range) bool) {
		for _, r := range h.Ranges {
			if !yield(r) {
				return
			}
		}
		for _, quarantined := range h.Quarantined {
			for _, r := range quarantined.Ranges {
				if !yield(r) {
					return
				}
			}
		}
	}
}

// taken are the ranges of a VIP that some workload has, or had lately. One may be in two workloads' hands while
// a change is taken over key by key.
type taken struct{ once, twice *snat.Set }

// replaced is t after some workload has some ranges no more, and others.
func (t taken) replaced(gone, come []model.Range) taken {
	next := taken{t.once.Clone(), t.twice}
	for _, r := range gone {
		if next.twice.Has(r) {
			next.twice = next.twice.Clone()
			next.twice.Remove(r)
		} else {
			next.once.Remove(r)
		}
	}
	for _, r := range come {
		if next.once.Has(r) {
			next.twice = next.twice.Clone()
			next.twice.Add(r)
		} else {
			next.once.Add(r)
		}
	}
	return next
}

// difference are those of some ranges that are not among others.
func difference(some, others iter.Seq[model.Range]) []model.Range {
	var among snat.Set
	for r := range others {
		among.Add(r)
	}
	var left []model.Range
	for r := range some {
		if !among.Has(r) {
			left = append(left, r)
		}
	}
	return left
}

// PutPorts adds or replaces what a workload has. It costs little where the workload has much and little of it differs.
func (s *State) PutPorts(key model.SNATKey, h PortAllocation) {
	before := s.Ports.At(key)
	s.taken.Set(key.VIP, s.taken.At(key.VIP).replaced(difference(before.allRanges(), h.allRanges()), difference(h.allRanges(), before.allRanges())))
	s.Ports.Set(key, h)
	was, is := slices.Values(before.Ranges), slices.Values(h.Ranges)
	s.sum(key, -1, difference(was, is))
	s.sum(key, 1, difference(is, was))
}

// RemovePorts forgets what a workload has.
func (s *State) RemovePorts(key model.SNATKey) {
	before := s.Ports.At(key)
	s.sum(key, -1, before.Ranges)
	left := s.taken.At(key.VIP).replaced(slices.Collect(before.allRanges()), nil)
	if s.Ports.Delete(key); left.once.Len() == 0 {
		s.taken.Delete(key.VIP)
		return
	}
	s.taken.Set(key.VIP, left)
}

// addSNATClients indexes the SNAT clients of a VIP.
func (s *State) addSNATClients(vip model.VIP) {
	if vip.SNAT == nil || !vip.Address.IsValid() {
		return
	}
	for _, w := range vip.SNAT.Workloads {
		key := model.SNATKey{VIP: vip.Address, Address: w.Address}
		s.leaving.Set(key, w)
		s.sum(key, 1, s.Ports.At(key).Ranges)
	}
}

// removeSNATClients removes the SNAT clients of a VIP from the index.
func (s *State) removeSNATClients(vip model.VIP) {
	for key := range SNATKeys(vip) {
		s.sum(key, -1, s.Ports.At(key).Ranges)
		s.leaving.Delete(key)
	}
}

// sum adds ranges of the workload of a key to the digest of all, or takes them away.
func (s *State) sum(key model.SNATKey, sign int, ranges []model.Range) {
	w, there := s.leaving.Get(key)
	if !there || len(ranges) == 0 {
		return
	}
	s.digest ^= snat.Digest(key.VIP, w.TunnelAddress(), ranges...)
	s.ranges += sign * len(ranges)
}

// SNATDigest sums up the ranges as muxes have them, and says how many there are.
func (s State) SNATDigest() (digest uint64, ranges int) { return s.digest, s.ranges }

// Taken are the ranges of a VIP that workloads have, or had lately. It is read only.
func (s State) Taken(vip netip.Addr) *snat.Set { return s.taken.At(vip).once }

// DoublyAllocated are ranges of a VIP that two workloads have, which must not be. It is read only.
func (s State) DoublyAllocated(vip netip.Addr) *snat.Set { return s.taken.At(vip).twice }

// PortAllocations are what workloads have of a VIP's ports, by their address.
func (s State) PortAllocations(vip netip.Addr) iter.Seq2[model.SNATKey, PortAllocation] {
	return func(yield func(model.SNATKey, PortAllocation) bool) {
		for key, h := range s.Ports.From(model.SNATKey{VIP: vip}) {
			if key.VIP != vip || !yield(key, h) {
				return
			}
		}
	}
}

// SNATClientWithVIP finds the VIP and the workload that a key names, if there are such.
func (s State) SNATClientWithVIP(key model.SNATKey) (model.VIP, model.SNATWorkload, bool) {
	w, there := s.leaving.Get(key)
	if !there {
		return model.VIP{}, w, false
	}
	vip, there := s.VIPAt(key.VIP)
	return vip, w, there
}

// SNATClient finds the workload that a key names, if there is such.
func (s State) SNATClient(key model.SNATKey) (model.SNATWorkload, bool) { return s.leaving.Get(key) }

// SNATClients are those who leave as VIPs, by VIP.
func (s State) SNATClients() iter.Seq[model.SNATKey] { return s.leaving.Keys() }

// SNATClientsCount is how many those are.
func (s State) SNATClientsCount() int { return s.leaving.Len() }

// SNATClientsOn are those of one host.
func (s State) SNATClientsOn(host string) iter.Seq[model.SNATKey] {
	return func(yield func(model.SNATKey) bool) {
		for vip := range s.VIPsOn(host) {
			for key := range SNATKeys(vip) {
				if s.leaving.At(key).Host == host && !yield(key) {
					return
				}
			}
		}
	}
}

// SNATKeys are those of the workloads of a VIP.
func SNATKeys(vip model.VIP) iter.Seq[model.SNATKey] {
	return func(yield func(model.SNATKey) bool) {
		if vip.SNAT == nil {
			return
		}
		for _, w := range vip.SNAT.Workloads {
			if !yield(model.SNATKey{VIP: vip.Address, Address: w.Address}) {
				return
			}
		}
	}
}

// ChangedPorts computes what the workloads of the VIP at an address have, and returns what differs from s.
// Workloads that it lists have what is preallocated; what others have goes into quarantine.
func (s State) ChangedPorts(address netip.Addr, now time.Time) map[model.SNATKey]PortAllocation {
	changed := map[model.SNATKey]PortAllocation{}
	vip, _ := s.VIPAt(address)
	listed := map[netip.Addr]bool{}
	if vip.SNAT != nil {
		next, blocked := s.Clone(), snat.Blocked(vip) // each is given what those before it left
		for i, w := range vip.SNAT.Workloads {
			key := model.SNATKey{VIP: address, Address: w.Address}
			listed[w.Address] = true
			old, had := s.Ports.Get(key)
			h := old.within(*vip.SNAT, blocked)
			h.Host = w.Host
			if lack := int(vip.SNAT.Preallocate)/model.RangePorts - h.Active(); lack > 0 {
				// They begin where each has its own, so that small VIPs stay easy to read.
				start := model.Range(i * int(vip.SNAT.Preallocate) / model.RangePorts % snat.Ranges)
				h, _ = next.allocate(key, h, blocked, lack, start)
			}
			if !had || !h.Equal(old) {
				changed[key] = h
				next.PutPorts(key, h)
			}
		}
	}
	for key, old := range s.PortAllocations(address) {
		if !listed[key.Address] && len(old.Ranges) > 0 {
			changed[key] = old.quarantine(old.Ranges, now)
		}
	}
	return changed
}

// within returns h with what is above the limit, or must not be given out any more, to be reclaimed.
func (h PortAllocation) within(s model.SNAT, blocked *snat.Set) PortAllocation {
	over := slices.Clone(h.Reclaim)
	for _, r := range h.Ranges {
		if blocked.Has(r) && !slices.Contains(over, r) {
			over = append(over, r)
		}
	}
	for _, r := range slices.Backward(h.Ranges) {
		if len(h.Ranges)-len(over) <= int(s.MaxPorts)/model.RangePorts {
			break
		}
		if !slices.Contains(over, r) {
			over = append(over, r)
		}
	}
	slices.Sort(over)
	h.Reclaim = over
	return h
}

// rest returns h with some of its ranges quarantined.
func (h PortAllocation) quarantine(ranges []model.Range, now time.Time) PortAllocation {
	left := func(from []model.Range) []model.Range {
		var kept []model.Range
		for _, r := range from {
			if !slices.Contains(ranges, r) {
				kept = append(kept, r)
			}
		}
		return kept
	}
	quarantined := Quarantined{Since: now}
	for _, r := range h.Ranges {
		if slices.Contains(ranges, r) {
			quarantined.Ranges = append(quarantined.Ranges, r)
		}
	}
	h.Ranges, h.Reclaim = left(h.Ranges), left(h.Reclaim)
	if len(quarantined.Ranges) > 0 {
		h.Quarantined = append(slices.Clone(h.Quarantined), quarantined)
	}
	return h
}

// allocate returns h with up to n ranges more, and which those are: its own in quarantine first, then what is free from
// start on. While a restore is pending it gives nothing.
func (s State) allocate(key model.SNATKey, h PortAllocation, blocked *snat.Set, n int, start model.Range) (PortAllocation, []model.Range) {
	if s.Restored.Pending() {
		return h, nil
	}
	var given []model.Range
	var quarantined []Quarantined
	for _, r := range h.Quarantined {
		kept := Quarantined{Since: r.Since}
		for _, own := range r.Ranges {
			if len(given) < n && !blocked.Has(own) {
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
	for r := range snat.Free(s.Taken(key.VIP), blocked, start) {
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

// Allocate returns what the workload of a key has with up to n ranges more, and which those are.
func (s State) Allocate(key model.SNATKey, n int, start model.Range) (PortAllocation, []model.Range) {
	vip, _ := s.VIPAt(key.VIP)
	return s.allocate(key, s.Ports.At(key), snat.Blocked(vip), n, start)
}

// Available is how many ranges the workload of a key could get: those that are free, and its own in quarantine.
func (s State) Available(vip model.VIP, key model.SNATKey) int {
	n := snat.FreeCount(s.Taken(key.VIP), snat.Blocked(vip))
	for _, r := range s.Ports.At(key).Quarantined {
		n += len(r.Ranges)
	}
	return n
}

// Release returns what the workload of a key has without some ranges, which go into quarantine.
func (s State) Release(key model.SNATKey, ranges []model.Range, now time.Time) PortAllocation {
	return s.Ports.At(key).quarantine(ranges, now)
}

// EndQuarantine returns h without the ranges whose quarantine is over, and whether there are any.
func (h PortAllocation) EndQuarantine(isOver func(Quarantined) bool) (PortAllocation, bool) {
	var left []Quarantined
	for _, r := range h.Quarantined {
		if !isOver(r) {
			left = append(left, r)
		}
	}
	some := len(left) < len(h.Quarantined)
	h.Quarantined = left
	return h, some
}

// MuxSNAT is what the workload of a key has, as muxes run it, if there is such a workload.
func (s State) MuxSNAT(key model.SNATKey) (model.MuxSNAT, bool) {
	vip, w, there := s.SNATClientWithVIP(key)
	if !there {
		return model.MuxSNAT{}, false
	}
	return model.MuxSNAT{
		Key: key, Tunnel: w.TunnelAddress(), Ranges: s.Ports.At(key).Ranges, Tenant: vip.Tenant, Ping: vip.Ping != model.PingIgnore,
	}, true
}

// HostSNAT is what the workload of a key has, as its host runs it, and which host that is, if there is such a
// workload.
func (s State) HostSNAT(key model.SNATKey) (host string, snat model.HostSNAT, there bool) {
	vip, w, there := s.SNATClientWithVIP(key)
	if !there {
		return "", model.HostSNAT{}, false
	}
	h := s.Ports.At(key)
	return w.Host, model.HostSNAT{
		Key: key, Tunnel: w.TunnelAddress(), Ranges: h.Ranges, Reclaim: h.Reclaim, Except: vip.SNAT.Except,
		Filtering: vip.SNAT.Filtering, Exhausted: vip.SNAT.Exhausted, IdleTimeout: vip.SNAT.IdleTimeout,
		MaxPorts: vip.SNAT.MaxPorts, KeepPorts: vip.SNAT.Preallocate, Tenant: vip.Tenant,
	}, true
}

// snat holds that each workload leaves as this VIP alone, and that there are ports for all.
func (a *admission) snat(path string, vip model.VIP) {
	for i, w := range vip.SNAT.Workloads {
		at := fmt.Sprintf("%s.workloads[%d]", path, i)
		a.backend(at, vip, model.Backend{Address: w.Address, Host: w.Host, Tunnel: w.Tunnel})
		for u := range a.used(w.Address, asWorkload) {
			if u.name != vip.Name {
				a.refuse(at+".address", "%s leaves as %s already", w.Address, a.other(u.name, vip))
			}
		}
	}
	ports := snat.FreeCount(nil, snat.Blocked(vip)) * model.RangePorts
	if wanted := len(vip.SNAT.Workloads) * int(vip.SNAT.Preallocate); wanted > ports {
		a.refuse(path+".preallocate", "%d ports for each of %d workloads are more than the %d that can be given out",
			vip.SNAT.Preallocate, len(vip.SNAT.Workloads), ports)
	}
}

// portFree holds that no workload leaves with the endpoint's port.
func (a *admission) portFree(field string, vip model.VIP, e model.Endpoint) {
	r := model.RangeOf(e.Port)
	if e.Port == model.AllPorts || !a.Taken(vip.Address).Has(r) {
		return
	}
	for key, h := range a.PortAllocations(vip.Address) {
		if slices.Contains(slices.Collect(h.allRanges()), r) {
			a.refuse(field, "%d is one of the ports %d to %d, which %s leaves with, or did lately: add it to snat.reserved, "+
				"and apply the endpoint when weir snat shows them no more", e.Port, r.First(), r.First()+model.RangePorts-1, key.Address)
		}
	}
}

// ResolveDoubleAllocations are port allocations, as they must be, of workloads that have a range of a VIP that another
// one has too: whoever was given it last, by what written says of each, loses it.
func (s State) ResolveDoubleAllocations(vip netip.Addr, written func(model.SNATKey) uint64) map[model.SNATKey]PortAllocation {
	if s.DoublyAllocated(vip).Len() == 0 {
		return nil
	}
	wrong := map[model.SNATKey]PortAllocation{}
	for r := range snat.Free(nil, nil, 0) {
		if !s.DoublyAllocated(vip).Has(r) {
			continue
		}
		var first model.SNATKey
		var all []model.SNATKey
		for key, h := range s.PortAllocations(vip) {
			if slices.Contains(slices.Collect(h.allRanges()), r) {
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
				h = s.Ports.At(key)
			}
			wrong[key] = h.without(r)
		}
	}
	return wrong
}

// without returns h without a range, held or in quarantine.
func (h PortAllocation) without(r model.Range) PortAllocation {
	is := func(other model.Range) bool { return other == r }
	h.Ranges, h.Reclaim = slices.DeleteFunc(slices.Clone(h.Ranges), is), slices.DeleteFunc(slices.Clone(h.Reclaim), is)
	var quarantined []Quarantined
	for _, one := range h.Quarantined {
		if one.Ranges = slices.DeleteFunc(slices.Clone(one.Ranges), is); len(one.Ranges) > 0 {
			quarantined = append(quarantined, one)
		}
	}
	h.Quarantined = quarantined
	return h
}
