package snatport

import (
	"iter"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/sorted"
)

var _ = sorted.Register(model.SNATKey.Compare)

// Allocations is what workloads have of the ports of VIPs. A copy that was not made by Clone is read only.
type Allocations struct {
	sorted.Map[model.SNATKey, Allocation]

	taken   sorted.Map[netip.Addr, taken]     // ranges of each VIP that somebody has, by address
	clients sorted.Map[model.SNATKey, client] // those that VIPs list, and the port blocks of their hosts
	blocks  int                               // of clients, those that are port blocks
	digest  uint64                            // of the ranges of all clients, as muxes have them
	ranges  int                               // how many those are
}

// Clone returns Allocations that may be written to.
func (a Allocations) Clone() Allocations {
	a.Map, a.taken, a.clients = a.Map.Clone(), a.taken.Clone(), a.clients.Clone()
	return a
}

// client is a workload, or a port block, and the name of the VIP that lists it. While VIPs change their addresses two may have
// one: it is the client of the one that was taken over last.
type client struct {
	model.SNATWorkload
	of string
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

// Set adds or replaces what a workload has. It costs little where the workload has much and little of it differs.
func (a *Allocations) Set(key model.SNATKey, h Allocation) {
	before := a.At(key)
	a.taken.Set(key.VIP, a.taken.At(key.VIP).replaced(difference(before.allRanges(), h.allRanges()), difference(h.allRanges(), before.allRanges())))
	a.Map.Set(key, h)
	was, is := slices.Values(before.Ranges), slices.Values(h.Ranges)
	a.sum(key, -1, difference(was, is))
	a.sum(key, 1, difference(is, was))
}

// Delete forgets what a workload has.
func (a *Allocations) Delete(key model.SNATKey) {
	before := a.At(key)
	a.sum(key, -1, before.Ranges)
	left := a.taken.At(key.VIP).replaced(slices.Collect(before.allRanges()), nil)
	if a.Map.Delete(key); left.once.Len() == 0 {
		a.taken.Delete(key.VIP)
		return
	}
	a.taken.Set(key.VIP, left)
}

// ReplaceVIP takes the clients of vip over, in the place of those of old.
func (a *Allocations) ReplaceVIP(old, vip model.VIP) {
	for key := range KeysOf(old) {
		if a.clients.At(key).of == old.Name {
			a.removeClient(key)
		}
	}
	if vip.SNAT == nil || !vip.Address.IsValid() {
		return
	}
	for _, w := range vip.SNAT.Workloads {
		a.addClient(model.SNATKey{VIP: vip.Address, Address: w.Address}, client{w, vip.Name})
	}
	for key, w := range blocksOf(vip) {
		a.addClient(key, client{w, vip.Name})
	}
}

func (a *Allocations) removeClient(key model.SNATKey) {
	a.sum(key, -1, a.At(key).Ranges)
	if key.IsBlock() && a.clients.Has(key) {
		a.blocks--
	}
	a.clients.Delete(key)
}

func (a *Allocations) addClient(key model.SNATKey, c client) {
	a.removeClient(key)
	if key.IsBlock() {
		a.blocks++
	}
	a.clients.Set(key, c)
	a.sum(key, 1, a.At(key).Ranges)
}

// sum adds ranges of the workload of a key to the digest of all, or takes them away.
func (a *Allocations) sum(key model.SNATKey, sign int, ranges []model.Range) {
	w, there := a.clients.Get(key)
	if !there || len(ranges) == 0 {
		return
	}
	a.digest ^= snat.Digest(key.VIP, w.TunnelAddress(), ranges...)
	a.ranges += sign * len(ranges)
}

// Digest sums up the ranges as muxes have them, and says how many there are.
func (a Allocations) Digest() (digest uint64, ranges int) { return a.digest, a.ranges }

// Taken are the ranges of a VIP that workloads have, or had lately. It is read only.
func (a Allocations) Taken(vip netip.Addr) *snat.Set { return a.taken.At(vip).once }

// DoublyAllocated are ranges of a VIP that two workloads have, which must not be. It is read only.
func (a Allocations) DoublyAllocated(vip netip.Addr) *snat.Set { return a.taken.At(vip).twice }

// Of is what workloads have of a VIP's ports, by their address.
func (a Allocations) Of(vip netip.Addr) iter.Seq2[model.SNATKey, Allocation] {
	return func(yield func(model.SNATKey, Allocation) bool) {
		for key, h := range a.From(model.SNATKey{VIP: vip}) {
			if key.VIP != vip || !yield(key, h) {
				return
			}
		}
	}
}

// Client finds the workload that a key names, if there is such.
func (a Allocations) Client(key model.SNATKey) (model.SNATWorkload, bool) {
	c, there := a.clients.Get(key)
	return c.SNATWorkload, there
}

// Clients are the workloads that leave as VIPs, and the port blocks of their hosts, by VIP.
func (a Allocations) Clients() iter.Seq[model.SNATKey] { return a.clients.Keys() }

// WorkloadCount is how many workloads leave as VIPs.
func (a Allocations) WorkloadCount() int { return a.clients.Len() - a.blocks }

// KeysOf are those of the workloads of a VIP, and of the port blocks of their hosts.
func KeysOf(vip model.VIP) iter.Seq[model.SNATKey] {
	return func(yield func(model.SNATKey) bool) {
		if vip.SNAT == nil {
			return
		}
		for _, w := range vip.SNAT.Workloads {
			if !yield(model.SNATKey{VIP: vip.Address, Address: w.Address}) {
				return
			}
		}
		for key := range blocksOf(vip) {
			if !yield(key) {
				return
			}
		}
	}
}
