package snatalloc

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/wire"
)

// auditInterval is the time between two audits of what the store has of ports.
const auditInterval = 10 * time.Second

// Where an audit finds differences.
const (
	faultStore = "manager"
	faultMux   = "mux"
	faultHost  = "host"
)

// driftDetector counts reports in which a node's tables differ from the manager's. After the second one in a row the
// node gets a snapshot: a single one may have been overtaken by an update.
type driftDetector struct {
	mu *sync.Mutex
	of map[string]int
}

func newDriftDetector() driftDetector { return driftDetector{mu: &sync.Mutex{}, of: map[string]int{}} }

// observe records whether a node's tables differ, and says whether it has to get a snapshot.
func (s driftDetector) observe(node string, differ bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !differ {
		delete(s.of, node)
		return false
	}
	if s.of[node]++; s.of[node] < 2 {
		return false
	}
	delete(s.of, node)
	return true
}

// AuditMux compares the digest of a mux's source NAT with that of what it was sent.
func (a *Allocator) AuditMux(mux string, said *weirv1.MuxSNATStatus) {
	if said == nil {
		return
	}
	ranges, digest, known := a.Hub.DigestAt(model.Generation(said.GetGeneration()))
	if !known {
		return
	}
	differ := digest != said.GetDigest() || uint64(ranges) != said.GetRanges()
	if !a.drift.observe(mux, differ) {
		return
	}
	if !a.mayResend(mux) {
		return
	}
	a.Hub.Resend(mux)
	a.fault(faultMux, eventlog.Event{
		Kind: string(model.RoleMux), Object: mux, Reason: reason.PortsDiffer,
		Message: fmt.Sprintf("its table of source NAT holds %d ranges at generation %d, other ones than the %d that it was told: it gets all tables anew",
			said.GetRanges(), said.GetGeneration(), ranges),
	})
}

// Snapshots that a node gets for what it says of its tables: so many at once, and then one in so many seconds.
const (
	resendsAtOnce = 5
	resendsRate   = 1.0 / 30
)

// mayResend says whether a node may have all of its tables once more: one that lies would have them each second.
func (a *Allocator) mayResend(node string) bool {
	return a.Rates.Take("resend "+node, resendsRate, resendsAtOnce, 1, a.Now()) == 0
}

// AuditHost compares what a host's tables hold of SNAT with the store, where the host says that it knows what was
// written last.
func (a *Allocator) AuditHost(host string, said []*weirv1.SNATUse) {
	s := a.Store.State()
	if s.Restored.Pending() {
		return // hosts know more than the store
	}
	var wrong []string
	for _, use := range said {
		key, err := wire.SNATKeyFromProto(&weirv1.SNATKey{Vip: use.GetVip(), Address: use.GetAddress()})
		if err != nil {
			continue
		}
		_, w, there := s.SNATClientWithVIP(key)
		h := s.Ports.At(key)
		if !there || w.Host != host || use.GetWritten() != uint64(s.PortsWritten.At(key)) {
			continue // it will be told, or was told more than this manager knows
		}
		if use.GetDigest() != snat.Digest(key.VIP, w.TunnelAddress(), h.Ranges...) {
			wrong = append(wrong, fmt.Sprintf("%s has %d ranges, and %d were given", key, use.GetRanges(), len(h.Ranges)))
		}
	}
	if !a.drift.observe(host, len(wrong) > 0) {
		return
	}
	if !a.mayResend(host) {
		return
	}
	a.Hub.Resend(host)
	a.fault(faultHost, eventlog.Event{
		Kind: string(model.RoleHost), Object: host, Reason: reason.PortsDiffer,
		Message: fmt.Sprintf("its tables of source NAT are not what it was told (%s): it gets all of it anew", wrong[0]),
	})
}

func (a *Allocator) fault(where string, e eventlog.Event) {
	e.Warning = true
	a.Metrics.faults.WithLabelValues(where).Inc()
	a.Log.Warn("source NAT: tables differ, mending them", "node", e.Object, "reason", e.Message)
	a.Events.Record(e)
}

// RunAudit corrects port allocations in the store, while this manager leads: no range has two owners, only SNAT clients
// have ranges, and each has what is preallocated.
func (a *Allocator) RunAudit(ctx context.Context) error {
	tick := time.NewTicker(auditInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := a.auditStore(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("source NAT: the audit can't write, trying again", "err", err)
		}
	}
}

// auditStore is one audit of the store.
func (a *Allocator) auditStore(ctx context.Context) error {
	if len(a.wrongPorts(a.Store.State())) == 0 {
		return nil
	}
	var mended map[model.SNATKey]snatport.Allocation
	_, err := a.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
		mended = a.wrongPorts(s)
		return store.Change{Ports: mended}, nil
	})
	if err != nil || len(mended) == 0 {
		return err
	}
	s := a.Store.State()
	vips := map[string]int{}
	for key := range mended {
		vip, _ := s.VIPAt(key.VIP)
		vips[vip.Name]++
	}
	for name, n := range vips {
		if name == "" {
			continue
		}
		a.fault(faultStore, eventlog.Event{
			Kind: events.KindVIP, Object: name, Tenant: s.VIPs.At(name).Tenant, Reason: reason.PortsMended,
			Message: fmt.Sprintf("the ranges of %d workloads were not what they must be", n),
		})
	}
	return nil
}

// wrongPorts are the port allocations that are not what they must be, as they must be.
func (a *Allocator) wrongPorts(s *store.State) map[model.SNATKey]snatport.Allocation {
	wrong := map[model.SNATKey]snatport.Allocation{}
	vips := map[netip.Addr]bool{}
	for key := range s.Ports.Keys() {
		vips[key.VIP] = true
	}
	for key := range s.Ports.Clients() {
		vips[key.VIP] = true
	}
	for vip := range vips {
		maps.Copy(wrong, s.ChangedPorts(vip, a.Now()))
		for key, h := range s.Ports.ResolveDoubles(vip, func(key model.SNATKey) uint64 { return uint64(s.PortsWritten.At(key)) }) {
			wrong[key] = h
		}
	}
	return wrong
}

// RunQuarantine frees ranges whose quarantine is over, while this manager leads.
func (a *Allocator) RunQuarantine(ctx context.Context) error {
	tick := time.NewTicker(a.Quarantine / 24)
	defer tick.Stop()
	var seen quarantines
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		seen = seen.observe(a.Store.State(), a.Now())
		if len(a.expired(a.Store.State(), seen)) == 0 {
			continue
		}
		_, err := a.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			change := store.Change{Ports: map[model.SNATKey]snatport.Allocation{}}
			for key, h := range a.expired(s, seen) {
				if _, _, listed := s.SNATClientWithVIP(key); listed || !h.Empty() {
					change.Ports[key] = h
				} else {
					change.DeletePorts = append(change.DeletePorts, key)
				}
			}
			return change, nil
		})
		if err != nil && ctx.Err() == nil {
			a.Log.Warn("source NAT: ranges do not become free, trying again", "err", err)
		}
	}
}

// quarantines are when this manager, in its term, first saw ranges in quarantine. Quarantined.Since does not count,
// because clocks of managers may differ: after a change of the leader the time begins anew.
type quarantines map[quarantineKey]time.Time

type quarantineKey struct {
	key   model.SNATKey
	since int64 // by the leader that wrote it: a name, no time
}

// observe notes what is in quarantine by now.
func (seen quarantines) observe(s *store.State, now time.Time) quarantines {
	next := quarantines{}
	for key, h := range s.Ports.All() {
		for _, r := range h.Quarantined {
			at := quarantineKey{key, r.Since.UnixNano()}
			if next[at] = now; !seen[at].IsZero() {
				next[at] = seen[at]
			}
		}
	}
	return next
}

// longer says whether ranges of a workload are in quarantine for longer than a time, as of now.
func (seen quarantines) longer(key model.SNATKey, r snatport.Quarantined, than time.Duration, now time.Time) bool {
	first, known := seen[quarantineKey{key, r.Since.UnixNano()}]
	return known && now.Sub(first) >= than
}

// expiredMost is how many port allocations one transaction changes.
const expiredMost = 1000

// expired are port allocations without the ranges whose quarantine is over. A range stays in quarantine while the host
// reports it as held, and until every healthy mux knows that it is nobody's.
func (a *Allocator) expired(s *store.State, seen quarantines) map[model.SNATKey]snatport.Allocation {
	done := map[model.SNATKey]snatport.Allocation{}
	now := a.Now()
	for key, h := range s.Ports.All() {
		if len(h.Quarantined) == 0 {
			_, _, listed := s.SNATClientWithVIP(key)
			if h.Empty() && !listed {
				done[key] = h
			}
			continue
		}
		next, some := h.EndQuarantine(func(r snatport.Quarantined) bool { return seen.longer(key, r, a.Quarantine, now) })
		if !some || a.Hub.AcknowledgedByMuxes() < s.PortsWritten.At(key) || a.isStillHeld(s, key, h, seen, now) {
			continue
		}
		if done[key] = next; len(done) >= expiredMost {
			break
		}
	}
	return done
}

// heldQuarantines bounds how long a range that a host still holds stays in quarantine, in quarantine times.
const heldQuarantines = 5

// oldReport is when a host's report says nothing of what it holds now: hosts report every 2 seconds, and managers tell each
// other every 10.
const oldReport = 30 * time.Second

// isStillHeld says whether the host of a workload that is in no list any more still has ranges for it, by its newest report, or
// may have as that is old. For a host without a stream the quarantine time is enough.
func (a *Allocator) isStillHeld(s *store.State, key model.SNATKey, h snatport.Allocation, seen quarantines, now time.Time) bool {
	_, _, listed := s.SNATClientWithVIP(key)
	if listed && (!key.IsBlock() || desired.HasPortBlock(s.State, key)) || !s.Streams.At(h.Host) {
		return false
	}
	if seen.longer(key, h.Quarantined[0], heldQuarantines*a.Quarantine, now) {
		return false
	}
	if said, _ := a.Reported(s, s.Nodes.At(h.Host)); now.Sub(said.Seen) > oldReport {
		return true
	}
	uses := a.ReportedUses(s, h.Host)
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
