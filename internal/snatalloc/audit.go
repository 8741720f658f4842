package snatalloc

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// auditInterval is the time between two audits of what the store has of ports.
const auditInterval = 10 * time.Second

// RunAudit corrects port allocations in the store, while this manager leads: no range has two owners, only SNAT clients
// have ranges, and each has what is preallocated.
func (a *Allocator) RunAudit(ctx context.Context) error {
	tick := time.NewTicker(auditInterval)
	defer tick.Stop()
	audit := newStoreAudit(a)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := audit.run(ctx); err != nil && ctx.Err() == nil {
			a.Log.Warn("source NAT: the audit can't write, trying again", "err", err)
		}
	}
}

// storeAudit is the audit of the store in one term: of all VIPs at first, then of those that changed.
type storeAudit struct {
	*Allocator
	last *store.State        // what changed until then is audited, or due; nil: nothing is
	due  map[netip.Addr]bool // VIPs to audit
}

func newStoreAudit(a *Allocator) *storeAudit {
	return &storeAudit{Allocator: a, due: map[netip.Addr]bool{}}
}

// run audits the VIPs that are due. The ones of a write that fails stay due.
func (a *storeAudit) run(ctx context.Context) error {
	a.note(a.Store.State())
	for {
		vips := a.nextWrong(a.Store.State())
		if len(vips) == 0 {
			return nil
		}
		var mended map[model.SNATKey]snatport.Allocation
		var whole bool
		_, err := a.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			mended, whole = a.correct(s, vips)
			return store.Change{Ports: mended}, nil
		})
		if err != nil {
			return err
		}
		a.tellMended(mended)
		if whole { // what was written makes them due with the next changes
			maps.DeleteFunc(a.due, func(vip netip.Addr, _ bool) bool { return slices.Contains(vips, vip) })
		}
	}
}

// note makes the VIPs due that changed since it was called last.
func (a *storeAudit) note(s *store.State) {
	maps.Copy(a.due, changedVIPs(a.last, s))
	a.last = s
}

// nextWrong are VIPs that are due and have allocations which must be others, about as many as one transaction corrects.
// VIPs without are not due any more.
func (a *storeAudit) nextWrong(s *store.State) (vips []netip.Addr) {
	room := etcd.SafeOperations
	for vip := range a.due {
		wrong := len(a.wrongPorts(s, vip))
		if wrong == 0 {
			delete(a.due, vip)
			continue
		}
		if vips, room = append(vips, vip), room-wrong; room <= 0 {
			break
		}
	}
	return vips
}

// correct corrects the allocations of some VIPs: as many as any etcd takes in one transaction, and whether those are all. Each is
// right by itself.
func (a *Allocator) correct(s *store.State, vips []netip.Addr) (mended map[model.SNATKey]snatport.Allocation, whole bool) {
	mended = map[model.SNATKey]snatport.Allocation{}
	for _, vip := range vips {
		for key, h := range a.wrongPorts(s, vip) {
			if len(mended) == etcd.SafeOperations {
				return mended, false
			}
			mended[key] = h
		}
	}
	return mended, true
}

// wrongPorts are the port allocations of a VIP that are not what they must be, as they must be.
func (a *Allocator) wrongPorts(s *store.State, vip netip.Addr) map[model.SNATKey]snatport.Allocation {
	wrong := s.ChangedPorts(vip, a.Now())
	maps.Copy(wrong, s.Ports.ResolveDoubles(vip, func(key model.SNATKey) uint64 { return uint64(s.PortsWritten.At(key)) }))
	return wrong
}

// tellMended records the VIPs of which allocations were corrected.
func (a *Allocator) tellMended(mended map[model.SNATKey]snatport.Allocation) {
	s := a.Store.State()
	vips := map[string]int{}
	for key := range mended {
		if vip, there := s.VIPAt(key.VIP); there {
			vips[vip.Name]++
		}
	}
	for name, n := range vips {
		a.fault(faultStore, eventlog.Event{
			Kind: events.KindVIP, Object: name, Tenant: s.VIPs.At(name).Tenant, Reason: reason.PortsMended,
			Message: fmt.Sprintf("the ranges of %d workloads were not what they must be", n),
		})
	}
}
