package resource

import (
	"context"
	"errors"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/trust"
)

// ApplyVIPs admits the VIPs and pools and writes them with their tables: all of them or none. In a dry
// run it says what that would change.
func (m *VIPs) ApplyVIPs(ctx context.Context, r *weirv1.ApplyVIPsRequest) (*weirv1.ApplyVIPsResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if len(r.GetVips())+len(r.GetPools())+len(r.GetPrefixLists())+len(r.GetNetworks())+len(r.GetOverlays()) == 0 {
		return nil, apierr.ToConnect(&model.FieldError{Field: "vips", Reason: "must have at least one"})
	}
	_, validated := telemetry.Span(ctx, "validate")
	vips, errVIPs := compile.VIPs(r.GetVips())
	validated(errVIPs)
	pools, errPools := compile.AddressPools(r.GetPools())
	lists, errLists := compile.PrefixLists(r.GetPrefixLists())
	networks, errNetworks := compile.Networks(r.GetNetworks())
	overlay, errOverlay := compile.Overlays(r.GetOverlays())
	if err := errors.Join(errVIPs, errPools, errLists, errNetworks, errOverlay); err != nil {
		return nil, apierr.ToConnect(err)
	}
	along := beside{pools, network.Batch{Networks: networks, Overlay: overlay, Strict: r.GetStrict()}, r.GetStrict(), false}
	if r.GetDryRun() {
		response, err := m.dryRun(ctx, edited(m.Store.State(), replacing(lists)), along, vips)
		if err != nil {
			return nil, apierr.ToConnect(err)
		}
		return response, nil
	}
	done, err := m.putAll(ctx, replacing(lists), along, vips)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.ApplyVIPsResponse{
		Generation: uint64(done.generation), Vips: done.vips, Pools: done.pools, PrefixLists: done.lists,
		Networks: done.networks.Networks, Overlays: done.networks.Overlays,
	}, nil
}

// beside are what is written along with VIPs, and prefix lists.
type beside struct {
	pools    []model.AddressPool
	networks network.Batch
	strict   bool // hosts must have joined
	patched  bool // the VIPs have all backends that they shall have: field managers lose those that are left out
}

// outcome is what a write did.
type outcome struct {
	generation model.Generation
	written    []model.VIP             // those that changed
	records    map[string]codec.Record // of these
	vips       []*weirv1.AppliedVIP
	pools      []*weirv1.AppliedAddressPool
	lists      []*weirv1.AppliedPrefixList
	networks   network.Done
}

// write writes what is beside VIPs, and the VIPs that choose makes of the State that they are written to. The paths of its
// field errors begin with vips[i] or pools[i].
func (m *writer) write(
	ctx context.Context, along beside, choose func(*store.State) ([]model.VIP, error),
) (outcome, error) {
	return m.putOn(ctx, staged{}, along, choose)
}

// putAll writes prefix lists, what is beside VIPs, and these: all of them or none.
func (m *writer) putAll(ctx context.Context, edits []listEdit, along beside, vips []model.VIP) (done outcome, err error) {
	put := func(g staged) (err error) {
		done, err = m.putOn(ctx, g, along, func(*store.State) ([]model.VIP, error) { return vips, nil })
		return err
	}
	if len(edits) == 0 {
		err = put(staged{})
	} else {
		err = m.withLists(ctx, edits, vips, nil, put)
	}
	return done, err
}

// putOn is put, with lists whose chunks are in the store.
func (m *writer) putOn(
	ctx context.Context, g staged, along beside, choose func(*store.State) ([]model.VIP, error),
) (outcome, error) {
	done := outcome{lists: g.applied}
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		vips, err := choose(s)
		if err != nil {
			return store.Change{}, err
		}
		if err := g.current(s); err != nil {
			return store.Change{}, err
		}
		admitted, networks, err := m.admitted(ctx, s, g.lists, along, vips)
		if err != nil {
			return store.Change{}, err
		}
		change, applied := m.apply(s, admitted)
		tellPending(s, admitted, applied)
		done.vips, done.written = applied, change.VIPs
		change.Pools, done.pools = changedPools(s, along.pools)
		done.networks = networks.Change(ctx, s, &change)
		change.PrefixLists = g.differ
		change.Records = m.records(ctx, s, change.VIPs)
		done.records = change.Records
		return change, nil
	})
	if err != nil {
		return done, err
	}
	done.generation = generation
	m.happenedToLists(ctx, done.lists, generation)
	m.networks.Tell(ctx, done.networks, generation)
	for _, a := range done.vips {
		if a.Change != rpc.Unchanged {
			m.Log.InfoContext(ctx, "VIP applied", "vip", a.Name, "change", a.Change, "generation", generation)
			m.Recorder.RecordCall(ctx, eventOf(a))
		}
	}
	for _, a := range done.pools {
		if a.Change != rpc.Unchanged {
			m.Log.InfoContext(ctx, "pool applied", "pool", a.Name, "change", a.Change, "generation", generation)
			m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindPool, Object: a.Name, Reason: reason.OfChange[a.Change], Message: "pool " + a.Change})
		}
	}
	return done, nil
}

// records say who writes the VIPs, and when.
func (m *writer) records(ctx context.Context, s *store.State, vips []model.VIP) map[string]codec.Record {
	records, now := make(map[string]codec.Record, len(vips)), m.Now()
	for _, vip := range vips {
		record := s.Records.At(vip.Name)
		if record.Created.IsZero() {
			record.Created = now
		}
		record.Updated, record.By = now, trust.CallerName(ctx)
		records[vip.Name] = record
	}
	return records
}

// apply returns the change that makes s hold vips.
func (m *writer) apply(s *store.State, vips []model.VIP) (store.Change, []*weirv1.AppliedVIP) {
	change := store.Change{Tables: map[model.EndpointKey]desired.Table{}}
	applied := make([]*weirv1.AppliedVIP, 0, len(vips))
	kept := map[model.EndpointKey]bool{}
	var gone []model.EndpointKey
	for _, vip := range vips {
		old, had := s.VIPs.Get(vip.Name)
		what := rpc.Created
		switch {
		case had && reflect.DeepEqual(old, vip):
			what = rpc.Unchanged
		case had:
			what = rpc.Updated
		}
		applied = append(applied, &weirv1.AppliedVIP{Name: vip.Name, Change: what, Address: vip.Address.String()})
		for _, e := range vip.Endpoints {
			kept[desired.Key(vip, e)] = true
		}
		if what == rpc.Unchanged {
			continue
		}
		change.VIPs = append(change.VIPs, vip)
		gone = append(gone, desired.RemovedEndpoints(old, vip)...)
		maps.Copy(change.Tables, s.ChangedTables(vip, m.Now(), nil, m.FreeFor))
	}
	// VIPs that swap their addresses hand their endpoints on.
	for _, key := range gone {
		if !kept[key] {
			change.DeleteTables = append(change.DeleteTables, key)
		}
	}
	change.Ports = portsAfter(s, change.VIPs, nil, m.Now())
	return change, applied
}

// portsAfter is what changes of the ports of workloads when VIPs are written and deleted.
func portsAfter(s *store.State, written []model.VIP, deleted []string, now time.Time) map[model.SNATKey]snatport.Allocation {
	leaves := func(vip model.VIP) bool { return vip.SNAT != nil || s.VIPs.At(vip.Name).SNAT != nil }
	ports := map[model.SNATKey]snatport.Allocation{}
	if len(deleted) == 0 && !slices.ContainsFunc(written, leaves) {
		return ports // as mostly: a copy of the State is not free
	}
	next, addresses := s.State.Clone(), map[netip.Addr]bool{}
	for _, name := range deleted {
		addresses[s.VIPs.At(name).Address] = true
		next.RemoveVIP(name)
	}
	for _, vip := range written {
		if !leaves(vip) {
			continue
		}
		addresses[s.VIPs.At(vip.Name).Address], addresses[vip.Address] = true, true
		next.PutVIP(vip)
	}
	delete(addresses, netip.Addr{})
	for address := range addresses {
		maps.Copy(ports, next.ChangedPorts(address, now))
	}
	return ports
}

// tellPending says in applied which hosts of the VIPs are waited for.
func tellPending(s *store.State, vips []model.VIP, applied []*weirv1.AppliedVIP) {
	for i, vip := range vips {
		applied[i].Pending = desired.PendingHosts(&s.State, vip)
	}
}
