package network

import (
	"context"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// changedNetworks are those of networks that s does not have so.
func changedNetworks(ctx context.Context, s *store.State, networks []vnet.Network) (changed []vnet.Network, applied []*weirv1.AppliedVirtualNetwork) {
	for _, n := range networks {
		old, had := s.Networks.Get(n.Name)
		did := &weirv1.AppliedVirtualNetwork{Name: n.Name, Change: rpc.Created, Pending: Pending(s, n)}
		switch {
		case had && sameNetwork(old, n):
			did.Change = rpc.Unchanged
		case had:
			did.Change = rpc.Updated
		}
		if did.Change != rpc.Unchanged {
			changed = append(changed, n)
			did.Added, did.Removed = differ(n.Workloads, old.Workloads), differ(old.Workloads, n.Workloads)
			for at := range s.Networks.Attached(n.Name) {
				if !n.Allows(at.Tenant) && authz.CanView(ctx, at.Tenant) {
					did.Detached = append(did.Detached, at.VIP)
				}
			}
		}
		applied = append(applied, did)
	}
	return changed, applied
}

// sameNetwork says whether both are the same; what is empty may be left out.
func sameNetwork(a, b vnet.Network) bool {
	return proto.Equal(compile.NetworkMessage(a), compile.NetworkMessage(b))
}

// differ counts the workloads of a that are not so in b.
func differ(a, b []vnet.Workload) (n uint32) {
	there := make(map[string]vnet.Workload, len(b))
	for _, w := range b {
		there[w.Name] = w
	}
	for _, w := range a {
		if !reflect.DeepEqual(there[w.Name], w) {
			n++
		}
	}
	return n
}

// changedOverlay is the overlay if s does not have it so.
func changedOverlay(s *store.State, overlay *vnet.Overlay) (changed *vnet.Overlay, applied []*weirv1.AppliedOverlay) {
	if overlay == nil {
		return nil, nil
	}
	did := &weirv1.AppliedOverlay{Name: vnet.OverlayName, Change: rpc.Created}
	switch old := s.Networks.Overlay; {
	case old != nil && reflect.DeepEqual(old, overlay):
		did.Change, overlay = rpc.Unchanged, nil
	case old != nil:
		did.Change = rpc.Updated
	}
	return overlay, []*weirv1.AppliedOverlay{did}
}

// Tell logs and records what a write did.
func (m *Networks) Tell(ctx context.Context, done Done, generation model.Generation) {
	for _, a := range done.Networks {
		if a.Change == rpc.Unchanged {
			continue
		}
		m.Log.InfoContext(ctx, "virtual network applied", "network", a.Name, "change", a.Change, "generation", generation)
		n, _ := m.Store.State().Networks.Get(a.Name)
		m.Recorder.RecordCall(ctx, eventlog.Event{
			Kind: events.KindNetwork, Object: a.Name, Tenant: n.Tenant, Reason: reason.OfChange[a.Change],
			Message: fmt.Sprintf("virtual network %s: %d workloads added, %d removed, %d VIPs detached", a.Change, a.Added, a.Removed, len(a.Detached)),
		})
	}
	for _, a := range done.Overlays {
		if a.Change == rpc.Unchanged {
			continue
		}
		m.Log.InfoContext(ctx, "overlay applied", "change", a.Change, "generation", generation)
		m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindOverlay, Object: a.Name, Reason: reason.OfChange[a.Change], Message: "overlay " + a.Change})
	}
}

// write admits and writes the batch that choose makes of the State.
func (m *Networks) write(ctx context.Context, choose func(*store.State) (Batch, error)) (done Done, generation model.Generation, err error) {
	generation, err = m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		batch, err := choose(s)
		if err != nil {
			return store.Change{}, err
		}
		if batch, err = m.Admit(ctx, s, batch); err != nil {
			return store.Change{}, err
		}
		var change store.Change
		done = batch.Change(ctx, s, &change)
		done.written = batch
		return change, nil
	})
	if err == nil {
		m.Tell(ctx, done, generation)
	}
	return done, generation, err
}

// VersionBefore is the version of what a write finds in s, written when s says; 0: a change of the same transaction wrote
// it, whose generation is not known before that is committed.
func VersionBefore(s *store.State, written model.Generation) model.Generation {
	if written > s.Generation {
		return 0
	}
	return written
}

// VersionOf is the version of what a write wrote: that of the write, unless it found what it wrote there already.
func VersionOf(change string, generation, before model.Generation) uint64 {
	if change == rpc.Unchanged && before != 0 {
		return uint64(before)
	}
	return uint64(generation)
}

// writeNetwork writes the one network that choose makes of the State, and returns it as it was written.
func (m *Networks) writeNetwork(
	ctx context.Context, name string, strict bool, choose func(*store.State) (vnet.Network, error),
) (*weirv1.VirtualNetwork, uint64, error) {
	var before model.Generation
	done, generation, err := m.write(ctx, func(s *store.State) (Batch, error) {
		before = VersionBefore(s, s.NetworkWritten.At(name))
		n, err := choose(s)
		return Batch{Networks: []vnet.Network{n}, Strict: strict}, err
	})
	if err != nil {
		return nil, 0, apierr.ToConnect(apierr.TrimField("networks[0].", err))
	}
	p := networkWithStatus(ctx, m.Store.State(), done.written.Networks[0])
	p.ResourceVersion = VersionOf(done.Networks[0].GetChange(), generation, before)
	return p, uint64(generation), nil
}

// Pending are the hosts of a network's workloads that have not joined, a line each.
func Pending(s *store.State, n vnet.Network) []string {
	return desired.PendingOf(&s.State, func(yield func(string) bool) {
		for _, w := range n.Workloads {
			if !yield(w.Host) {
				return
			}
		}
	})
}
