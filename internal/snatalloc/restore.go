package snatalloc

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// RunRestore ends what a restore of the store begins, while this manager leads. Ports and slots that were allocated
// after the backup are not in it. So nothing is allocated for the quarantine time, and until all nodes have reported
// what they hold, or for heldQuarantines of that time. What they reported is taken over then. Slots that may have been
// given out stay reserved for as long as freed ones.
func (a *Allocator) RunRestore(ctx context.Context) error {
	var began time.Time // when this term first saw the step of the restore that it waits for the end of
	var step desired.Restored
	tick := time.NewTicker(a.Quarantine / 24)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		s := a.Store.State()
		if s.Restored != step {
			step, began = s.Restored, a.Now()
			if step.Pending() {
				a.Log.Warn("the store was restored: no new ports and pool addresses are given until the nodes have told what they have")
			}
		}
		if step.At == 0 {
			continue
		}
		if err := (restore{a}).finishStep(ctx, s, a.Now().Sub(began)); err != nil && ctx.Err() == nil {
			a.Log.Warn("the restore does not settle, trying again", "err", err)
		}
	}
}

// restore are the steps of an Allocator after a restore of the store.
type restore struct{ *Allocator }

// finishStep ends a step of the restore, which has lasted for a time, if it is due.
func (a restore) finishStep(ctx context.Context, s *store.State, passed time.Duration) error {
	if s.Restored.Settled {
		if passed < desired.RetireTime || passed < s.RetireTime() {
			return nil
		}
		_, err := a.Store.UpdateAs(ctx, store.Health, func(*store.State) (store.Change, error) {
			return store.Change{Restored: &desired.Restored{}}, nil
		})
		return err
	}
	silent := a.UnreportedNodes(s)
	if passed < a.Quarantine || len(silent) > 0 && passed < heldQuarantines*a.Quarantine {
		return nil
	}
	if err := a.restorePorts(ctx, s); err != nil {
		return err
	}
	_, err := a.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
		return store.Change{Restored: &desired.Restored{At: s.Generation, Settled: true}}, nil
	})
	if err == nil {
		a.Log.Info("the restore is settled: ports and pool addresses are given out again", "nodes", silent)
	}
	return err
}

// UnreportedNodes are the nodes, in order, that have not reported since the restore what they hold.
func (a *Allocator) UnreportedNodes(s *store.State) (silent []string) {
	for node := range s.Nodes.Values() {
		if !(restore{a}).hasReportedSince(s, node) {
			silent = append(silent, node.Name)
		}
	}
	slices.Sort(silent)
	return silent
}

// hasReportedSince says whether a node has reported what it holds, as of the restored store or later.
func (a restore) hasReportedSince(s *store.State, node model.Node) bool {
	said, detail := a.Reported(s, node)
	return max(said.Generation, said.Rejected) >= s.Restored.At && (node.Role != model.RoleHost || detail.GetHost().GetTellsRanges())
}

// reportedPorts are the ranges that hosts report, and the generation of those that a workload's own host reports.
func (a restore) reportedPorts(s *store.State) (told map[model.SNATKey][]snatport.Reported, written map[model.SNATKey]model.Generation) {
	told, written = map[model.SNATKey][]snatport.Reported{}, map[model.SNATKey]model.Generation{}
	for node := range s.Nodes.Values() {
		if node.Role != model.RoleHost || !a.hasReportedSince(s, node) {
			continue
		}
		uses := a.ReportedUses(s, node.Name)
		for key, use := range uses {
			ranges, err := wire.RangesFromProto(use.GetRangeNumbers())
			if err != nil {
				a.Log.Warn("a host reported invalid ranges", "node", node.Name, "err", err)
				continue
			}
			slices.Sort(ranges)
			told[key] = append(told[key], snatport.Reported{Host: node.Name, Ranges: slices.Compact(ranges)})
			if w, _ := s.Ports.Client(key); w.Host == node.Name {
				written[key] = model.Generation(use.GetWritten())
			}
		}
		for key := range s.SNATClientsOn(node.Name) {
			if uses[key] == nil {
				told[key] = append(told[key], snatport.Reported{Host: node.Name})
			}
		}
	}
	return told, written
}

// restorePorts writes the port allocations as hosts reported them. Those that are unchanged, also at the host, are not
// written; all others are, so that hosts see a newer generation.
func (a restore) restorePorts(ctx context.Context, s *store.State) error {
	told, written := a.reportedPorts(s)
	for address := range a.snatAddresses(s, told) {
		_, err := a.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
			change := store.Change{Ports: map[model.SNATKey]snatport.Allocation{}}
			if !s.Restored.Pending() {
				return change, nil
			}
			vip, _ := s.VIPAt(address)
			for key, h := range s.Ports.Restore(address, vip, told, a.Now()) {
				if old, there := s.Ports.Get(key); !there || !h.Equal(old) || written[key] != s.PortsWritten.At(key) {
					change.Ports[key] = h
				}
			}
			return change, nil
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// snatAddresses are the addresses of VIPs with port allocations, in the store or reported by hosts.
func (a restore) snatAddresses(s *store.State, told map[model.SNATKey][]snatport.Reported) map[netip.Addr]bool {
	addresses := snatVIPs(s)
	for key := range told {
		if _, there := s.VIPAt(key.VIP); there {
			addresses[key.VIP] = true
		}
	}
	return addresses
}
