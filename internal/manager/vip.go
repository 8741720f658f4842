package manager

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/typo"
)

// ApplyVIPs admits the VIPs and writes them with their tables: all of them or none. In a dry run it
// says what that would change.
func (m *Manager) ApplyVIPs(ctx context.Context, r *weirv1.ApplyVIPsRequest) (*weirv1.ApplyVIPsResponse, error) {
	if err := rpc.Known(r); err != nil {
		return nil, refusal(err)
	}
	if len(r.GetVips()) == 0 {
		return nil, refusal(&model.FieldError{Field: "vips", Reason: "must have at least one"})
	}
	vips, err := rpc.VIPsFromProto(r.GetVips())
	if err != nil {
		return nil, refusal(err)
	}
	if r.GetDryRun() {
		response, err := m.dryRun(m.store.State(), vips)
		if err != nil {
			return nil, refusal(err)
		}
		return response, nil
	}
	var applied []*weirv1.AppliedVIP
	generation, err := m.store.Update(ctx, func(s *store.State) (store.Change, error) {
		admitted, err := s.Admit(vips)
		if err != nil {
			return store.Change{}, err
		}
		var change store.Change
		change, applied = m.apply(s, admitted)
		return change, nil
	})
	if err != nil {
		return nil, refusal(err)
	}
	for _, a := range applied {
		if a.Change != unchanged {
			m.log.Info("VIP applied", "vip", a.Name, "change", a.Change, "generation", generation)
		}
	}
	return &weirv1.ApplyVIPsResponse{Generation: uint64(generation), Vips: applied}, nil
}

// What an apply did to a VIP.
const (
	created   = "created"
	updated   = "updated"
	unchanged = "unchanged"
)

// apply returns the change that makes s hold vips.
func (m *Manager) apply(s *store.State, vips []model.VIP) (store.Change, []*weirv1.AppliedVIP) {
	change := store.Change{Tables: map[model.EndpointKey]desired.Table{}}
	applied := make([]*weirv1.AppliedVIP, 0, len(vips))
	kept := map[model.EndpointKey]bool{}
	var gone []model.EndpointKey
	for _, vip := range vips {
		old, had := s.VIPs.Get(vip.Name)
		what := created
		switch {
		case had && reflect.DeepEqual(old, vip):
			what = unchanged
		case had:
			what = updated
		}
		applied = append(applied, &weirv1.AppliedVIP{Name: vip.Name, Change: what})
		for _, e := range vip.Endpoints {
			kept[desired.Key(vip, e)] = true
		}
		if what == unchanged {
			continue
		}
		change.VIPs = append(change.VIPs, vip)
		gone = append(gone, desired.Gone(old, vip)...)
		maps.Copy(change.Tables, s.Changed(vip, m.now(), nil))
	}
	// VIPs that swap their addresses hand their endpoints on.
	for _, key := range gone {
		if !kept[key] {
			change.DeleteTables = append(change.DeleteTables, key)
		}
	}
	return change, applied
}

// DeleteVIP deletes a VIP with its tables.
func (m *Manager) DeleteVIP(ctx context.Context, r *weirv1.DeleteVIPRequest) (*weirv1.DeleteVIPResponse, error) {
	generation, err := m.store.Update(ctx, func(s *store.State) (store.Change, error) {
		vip, there := s.VIPs.Get(r.GetName())
		if !there {
			return store.Change{}, notFound("VIP", r.GetName(), s.VIPs)
		}
		return store.Change{DeleteVIPs: []string{vip.Name}, DeleteTables: desired.Gone(vip, model.VIP{})}, nil
	})
	if err != nil {
		return nil, refusal(err)
	}
	m.log.Info("VIP deleted", "vip", r.GetName(), "generation", generation)
	return &weirv1.DeleteVIPResponse{Generation: uint64(generation)}, nil
}

// ListVIPs lists VIPs by name.
func (m *Manager) ListVIPs(_ context.Context, r *weirv1.ListVIPsRequest) (*weirv1.ListVIPsResponse, error) {
	state := m.store.State()
	response := &weirv1.ListVIPsResponse{}
	for _, vip := range state.SortedVIPs() {
		if r.GetTenant() == "" || r.GetTenant() == vip.Tenant {
			response.Vips = append(response.Vips, m.vipWithStatus(state, vip))
		}
	}
	return response, nil
}

// GetVIP returns one VIP with its status.
func (m *Manager) GetVIP(_ context.Context, r *weirv1.GetVIPRequest) (*weirv1.GetVIPResponse, error) {
	state := m.store.State()
	vip, there := state.VIPs.Get(r.GetName())
	if !there {
		return nil, notFound("VIP", r.GetName(), state.VIPs)
	}
	return &weirv1.GetVIPResponse{Vip: m.vipWithStatus(state, vip)}, nil
}

// notFound says that there is no such thing of that name, and which one may be meant.
func notFound[T any](what, name string, there sorted.Map[string, T]) error {
	guess := typo.Nearest(name, slices.Collect(there.Keys()))
	if guess != "" {
		guess = fmt.Sprintf(", did you mean %s?", guess)
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no %s %.64q%s", what, name, guess))
}

// vipWithStatus writes vip with all that is output only.
func (m *Manager) vipWithStatus(s *store.State, vip model.VIP) *weirv1.VIP {
	p := rpc.VIPToProto(vip)
	p.ResourceVersion = uint64(s.Written.At(vip.Name))
	generation := s.Written.At(vip.Name)
	for i, e := range vip.Endpoints {
		key := desired.Key(vip, e)
		generation = max(generation, s.Computed.At(key))
		for j, status := range m.backendStatuses(s, vip, e) {
			p.Endpoints[i].Backends[j].Status = status
		}
	}
	p.Status = vipStatus(s, generation)
	return p
}

// backendStatuses are those of e's backends, in their order.
func (m *Manager) backendStatuses(s *store.State, vip model.VIP, e model.Endpoint) []*weirv1.BackendStatus {
	table := s.Tables.At(desired.Key(vip, e))
	slots, shares, ceded := table.Slots(), table.Shares(), table.Ceded()
	all := make([]*weirv1.BackendStatus, 0, len(e.Backends))
	for _, b := range e.Backends {
		slot := slots[b.AddrPort()]
		health, reason := s.BackendHealth(vip, e, b)
		counted := m.sessions.of(vip, e, b)
		all = append(all, &weirv1.BackendStatus{
			Slot: uint32(slot), Health: string(health), Reason: reason,
			Buckets: uint32(shares[slot]), BucketsTotal: uint32(len(table.Open())),
			BucketsCeded: uint32(len(ceded[slot])), Sessions: counted.Sessions, SessionsWithoutCookie: counted.WithoutCookie,
		})
	}
	return all
}

// vipStatus says which muxes run the generation, of all registered. One that is away may have stopped.
func vipStatus(s *store.State, generation model.Generation) *weirv1.VIPStatus {
	status := &weirv1.VIPStatus{Generation: uint64(generation)}
	for node := range s.MuxNodes() {
		status.MuxesTotal++
		said := s.Status.At(node.Name)
		switch {
		case said.Generation >= generation && s.Streams.At(node.Name):
			status.MuxesProgrammed++
		case said.Rejected >= generation:
			status.Rejections = append(status.Rejections, node.Name+": "+said.Reason)
		}
	}
	slices.SortFunc(status.Rejections, cmp.Compare)
	return status
}
