package snatalloc

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// RunQuarantine frees ranges whose quarantine is over, while this manager leads.
func (a *Allocator) RunQuarantine(ctx context.Context) error {
	tick := time.NewTicker(a.Quarantine / 24)
	defer tick.Stop()
	q := newQuarantines(a)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := q.run(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("source NAT: ranges do not become free, trying again", "err", err)
		}
	}
}

// quarantines are when this manager, in its term, first saw ranges in quarantine. Quarantined.Since does not count,
// because clocks of managers may differ: after a change of the leader the time begins anew.
type quarantines struct {
	*Allocator
	last   *store.State               // that was seen; nil: none was
	seen   map[quarantined]time.Time  // when each was seen first
	byTime sorted.Map[sighting, none] // the same ones, in order
	empty  map[model.SNATKey]bool     // allocations of no range, to nobody who is listed

	uses map[string]map[model.SNATKey]*weirv1.SNATUse // of hosts that were asked about in this round, as they reported
}

// quarantined names ranges of a workload that are in quarantine.
type quarantined struct {
	key   model.SNATKey
	since int64 // by the leader that wrote it: a name, no time
}

func quarantinedOf(key model.SNATKey, r snatport.Quarantined) quarantined {
	return quarantined{key, r.Since.UnixNano()}
}

// sighting is when ranges in quarantine were seen first.
type sighting struct {
	at time.Time
	of quarantined
}

type none = struct{}

// Compare orders sightings by time.
func (s sighting) Compare(other sighting) int {
	return cmp.Or(s.at.Compare(other.at), s.of.key.Compare(other.of.key), cmp.Compare(s.of.since, other.of.since))
}

var _ = sorted.Register(sighting.Compare)

func newQuarantines(a *Allocator) *quarantines {
	return &quarantines{Allocator: a, seen: map[quarantined]time.Time{}, empty: map[model.SNATKey]bool{}}
}

// run frees the ranges whose quarantine is over, as many at once as any etcd takes in one transaction.
func (q *quarantines) run(ctx context.Context) error {
	s := q.Store.State()
	q.observe(s, q.Now())
	for keys := range slices.Chunk(q.expired(s, q.Now()), etcd.SafeOperations) {
		_, err := q.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			return q.free(s, keys, q.Now()), nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// observe notes what is in quarantine by now. It looks at the VIPs that changed since it was called last.
func (q *quarantines) observe(s *store.State, now time.Time) {
	for vip := range changedVIPs(q.last, s) {
		before := map[quarantined]time.Time{}
		for key, h := range allocationsOf(q.last, vip) {
			delete(q.empty, key)
			for _, r := range h.Quarantined {
				of := quarantinedOf(key, r)
				if at, seen := q.seen[of]; seen { // several groups may have one name
					before[of] = at
					q.byTime.Delete(sighting{at, of})
					delete(q.seen, of)
				}
			}
		}
		for key, h := range allocationsOf(s, vip) {
			if isNobodys(s, key, h) {
				q.empty[key] = true
			}
			for _, r := range h.Quarantined {
				of := quarantinedOf(key, r)
				at, known := before[of]
				if !known {
					at = now
				}
				q.seen[of] = at
				q.byTime.Set(sighting{at, of}, none{})
			}
		}
	}
	q.last = s
}

// allocationsOf are those of a VIP, if there is a State.
func allocationsOf(s *store.State, vip netip.Addr) iter.Seq2[model.SNATKey, snatport.Allocation] {
	if s == nil {
		return func(func(model.SNATKey, snatport.Allocation) bool) {}
	}
	return s.Ports.Of(vip)
}

// isNobodys says whether an allocation of a workload, or a block, that is in no list has no range any more.
func isNobodys(s *store.State, key model.SNATKey, h snatport.Allocation) bool {
	_, _, listed := s.SNATClientWithVIP(key)
	return h.Empty() && !listed
}

// longer says whether ranges of a workload are in quarantine for longer than a time, as of now.
func (q *quarantines) longer(key model.SNATKey, r snatport.Quarantined, than time.Duration, now time.Time) bool {
	first, known := q.seen[quarantinedOf(key, r)]
	return known && now.Sub(first) >= than
}

// expired are the keys of allocations with ranges whose quarantine is over.
func (q *quarantines) expired(s *store.State, now time.Time) (keys []model.SNATKey) {
	q.uses = nil
	for key := range q.due(now) {
		if _, some := q.withoutExpired(s, key, now); some {
			keys = append(keys, key)
		}
	}
	return keys
}

// due are the keys of allocations with ranges that were seen long enough ago, and of those that are nobody's.
func (q *quarantines) due(now time.Time) map[model.SNATKey]bool {
	due := maps.Clone(q.empty)
	for first := range q.byTime.Keys() {
		if now.Sub(first.at) < q.Quarantine {
			break
		}
		due[first.of.key] = true
	}
	return due
}

// free is the change that frees the ranges of some allocations whose quarantine is over.
func (q *quarantines) free(s *store.State, keys []model.SNATKey, now time.Time) store.Change {
	change := store.Change{Ports: map[model.SNATKey]snatport.Allocation{}}
	for _, key := range keys {
		switch h, some := q.withoutExpired(s, key, now); {
		case !some:
		case isNobodys(s, key, h):
			change.DeletePorts = append(change.DeletePorts, key)
		default:
			change.Ports[key] = h
		}
	}
	return change
}

// withoutExpired is an allocation without the ranges whose quarantine is over, and whether there are any. A range stays in
// quarantine while the host reports it as held, and until every healthy mux knows that it is nobody's.
func (q *quarantines) withoutExpired(s *store.State, key model.SNATKey, now time.Time) (next snatport.Allocation, some bool) {
	h, there := s.Ports.Get(key)
	if len(h.Quarantined) == 0 {
		return h, there && isNobodys(s, key, h)
	}
	next, some = h.EndQuarantine(func(r snatport.Quarantined) bool { return q.longer(key, r, q.Quarantine, now) })
	return next, some && q.Hub.AcknowledgedByMuxes() >= s.PortsWritten.At(key) && !q.isStillHeld(s, key, h, now)
}

// heldQuarantines bounds how long a range that a host still holds stays in quarantine, in quarantine times.
const heldQuarantines = 5

// oldReport is when a host's report says nothing of what it holds now: hosts report every 2 seconds, and managers tell each
// other every 10.
const oldReport = 30 * time.Second

// isStillHeld says whether the host of a workload that is in no list any more still has ranges for it, by its newest report, or
// may have as that is old. For a host without a stream the quarantine time is enough.
func (q *quarantines) isStillHeld(s *store.State, key model.SNATKey, h snatport.Allocation, now time.Time) bool {
	_, _, listed := s.SNATClientWithVIP(key)
	if listed && (!key.IsBlock() || desired.HasPortBlock(s.State, key)) || !s.Streams.At(h.Host) {
		return false
	}
	if q.longer(key, h.Quarantined[0], heldQuarantines*q.Quarantine, now) {
		return false
	}
	if said, _ := q.Reported(s, s.Nodes.At(h.Host)); now.Sub(said.Seen) > oldReport {
		return true
	}
	uses := q.usesOf(s, h.Host)
	if !key.IsBlock() {
		return uses[key].GetRanges() > 0
	}
	for of, use := range uses { // an agent without the block reports what it lent as its workloads'
		if of.VIP == key.VIP && int(use.GetRanges()) > len(s.Ports.At(of).Ranges) {
			return true
		}
	}
	return false
}

// usesOf reads the report of a host once a round: many keys of one may be due at a time.
func (q *quarantines) usesOf(s *store.State, host string) map[model.SNATKey]*weirv1.SNATUse {
	uses, read := q.uses[host]
	if !read {
		uses = q.ReportedUses(s, host)
		if q.uses == nil {
			q.uses = map[string]map[model.SNATKey]*weirv1.SNATUse{}
		}
		q.uses[host] = uses
	}
	return uses
}

// ReportedUses are what a host reported last of the workloads on it.
func (a *Allocator) ReportedUses(s *store.State, host string) map[model.SNATKey]*weirv1.SNATUse {
	node, there := s.Nodes.Get(host)
	if !there {
		return nil
	}
	uses := map[model.SNATKey]*weirv1.SNATUse{}
	_, reported := a.Reported(s, node)
	for _, use := range reported.GetHost().GetSnat() {
		key, err := wire.SNATKeyFromProto(&weirv1.SNATKey{Vip: use.GetVip(), Address: use.GetAddress()})
		if err == nil {
			uses[key] = use
		}
	}
	return uses
}
