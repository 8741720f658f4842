package resource

import (
	"context"
	"fmt"
	"reflect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

// changedNetworks are those of networks that s does not have so.
func changedNetworks(ctx context.Context, s *store.State, networks []vnet.Network) (changed []vnet.Network, applied []*weirv1.AppliedVirtualNetwork) {
	for _, n := range networks {
		old, had := s.Networks.Get(n.Name)
		did := &weirv1.AppliedVirtualNetwork{Name: n.Name, Change: rpc.Created}
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

// happenedToNetworks tells of networks and of the overlay that were written.
func (m *writer) happenedToNetworks(ctx context.Context, done outcome, generation model.Generation) {
	for _, a := range done.networks {
		if a.Change == rpc.Unchanged {
			continue
		}
		m.Log.InfoContext(ctx, "virtual network applied", "network", a.Name, "change", a.Change, "generation", generation)
		n, _ := m.Store.State().Networks.Get(a.Name)
		m.Recorder.RecordCall(ctx, eventlog.Event{
			Kind: events.KindNetwork, Object: a.Name, Tenant: n.Tenant, Reason: reasons[a.Change],
			Message: fmt.Sprintf("virtual network %s: %d workloads added, %d removed, %d VIPs detached", a.Change, a.Added, a.Removed, len(a.Detached)),
		})
	}
	for _, a := range done.overlays {
		if a.Change == rpc.Unchanged {
			continue
		}
		m.Log.InfoContext(ctx, "overlay applied", "change", a.Change, "generation", generation)
		m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindOverlay, Object: a.Name, Reason: reasons[a.Change], Message: "overlay " + a.Change})
	}
}

// writeNetwork writes the one network that choose makes of the State, and returns it as it is then.
func (m *Networks) writeNetwork(
	ctx context.Context, name string, choose func(*store.State) (vnet.Network, error),
) (*weirv1.VirtualNetwork, uint64, error) {
	var done outcome
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		n, err := choose(s)
		if err != nil {
			return store.Change{}, err
		}
		_, networks, err := m.admitted(ctx, s, nil, beside{networks: []vnet.Network{n}}, nil)
		if err != nil {
			return store.Change{}, err
		}
		change := store.Change{}
		change.Networks, done.networks = changedNetworks(ctx, s, networks)
		return change, nil
	})
	if err != nil {
		return nil, 0, apierr.ToConnect(apierr.TrimField("networks[0].", err))
	}
	m.happenedToNetworks(ctx, done, generation)
	state := m.Store.State()
	n, there := state.Networks.Get(name)
	if !there {
		return nil, 0, connect.NewError(connect.CodeAborted, fmt.Errorf("network %s was written, and deleted by another call since", name))
	}
	return networkWithStatus(ctx, state, n), uint64(generation), nil
}

// CreateVirtualNetwork creates a network.
func (m *Networks) CreateVirtualNetwork(ctx context.Context, r *weirv1.CreateVirtualNetworkRequest) (*weirv1.CreateVirtualNetworkResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	n, err := compile.Network(r.GetNetwork())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	written, generation, err := m.writeNetwork(ctx, n.Name, func(s *store.State) (vnet.Network, error) {
		if _, there := s.Networks.Get(n.Name); there {
			return n, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf("there is a network %s already: update it, or take another name", n.Name))
		}
		return n, nil
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.CreateVirtualNetworkResponse{Network: written, Generation: generation}, nil
}

// UpdateVirtualNetwork replaces a network.
func (m *Networks) UpdateVirtualNetwork(ctx context.Context, r *weirv1.UpdateVirtualNetworkRequest) (*weirv1.UpdateVirtualNetworkResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if err := apierr.CheckName(r.GetName(), r.GetNetwork().GetName()); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetNetwork() != nil {
		r.Network.Name = r.GetName()
	}
	n, err := compile.Network(r.GetNetwork())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	written, generation, err := m.writeNetwork(ctx, n.Name, func(s *store.State) (vnet.Network, error) {
		return n, currentNetwork(ctx, s, r.GetName(), r.GetNetwork().GetResourceVersion())
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.UpdateVirtualNetworkResponse{Network: written, Generation: generation}, nil
}

// PatchVirtualNetwork changes fields of a network.
func (m *Networks) PatchVirtualNetwork(ctx context.Context, r *weirv1.PatchVirtualNetworkRequest) (*weirv1.PatchVirtualNetworkResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetPatch() == nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "patch", Reason: "is required"})
	}
	written, generation, err := m.writeNetwork(ctx, r.GetName(), func(s *store.State) (vnet.Network, error) {
		old, there := s.Networks.Get(r.GetName())
		if !there {
			return old, noNetwork(ctx, s, r.GetName())
		}
		p := compile.NetworkMessage(old)
		if err := applyPatch(p, r.GetPatch()); err != nil {
			return old, err
		}
		if err := apierr.CheckName(r.GetName(), p.GetName()); err != nil {
			return old, err
		}
		for _, version := range []uint64{r.GetResourceVersion(), p.GetResourceVersion()} {
			if err := currentNetwork(ctx, s, r.GetName(), version); err != nil {
				return old, err
			}
		}
		return compile.Network(p)
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.PatchVirtualNetworkResponse{Network: written, Generation: generation}, nil
}

// DeleteVirtualNetwork deletes a network that no VIP is attached to.
func (m *Networks) DeleteVirtualNetwork(ctx context.Context, r *weirv1.DeleteVirtualNetworkRequest) (*weirv1.DeleteVirtualNetworkResponse, error) {
	var gone vnet.Network
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if err := currentNetwork(ctx, s, r.GetName(), r.GetResourceVersion()); err != nil {
			return store.Change{}, err
		}
		// The name may have come to another tenant since the call was permitted.
		if caller := trust.FromContext(ctx); !caller.Anonymous() {
			if err := authz.PermitNetwork(caller, s, trust.Operator, r.GetName()); err != nil {
				return store.Change{}, err
			}
		}
		if err := admission.NetworkRemoval(s.State, r.GetName(), authz.CanViewVIP(ctx)); err != nil {
			return store.Change{}, rpc.NewError(connect.CodeFailedPrecondition, err)
		}
		gone, _ = s.Networks.Get(r.GetName())
		return store.Change{DeleteNetworks: []string{r.GetName()}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Log.InfoContext(ctx, "virtual network deleted", "network", r.GetName(), "generation", generation)
	m.Recorder.RecordCall(ctx, eventlog.Event{
		Kind: events.KindNetwork, Object: gone.Name, Tenant: gone.Tenant, Reason: reason.Deleted, Message: fmt.Sprintf("deleted; VNI %d is free", gone.VNI),
	})
	return &weirv1.DeleteVirtualNetworkResponse{}, nil
}

// currentNetwork holds that the network is there, and of the version, unless that is 0.
func currentNetwork(ctx context.Context, s *store.State, name string, version uint64) error {
	there := uint64(s.NetworkWritten.At(name))
	n, _ := s.Networks.Get(name)
	switch {
	case there == 0 || !authz.CanView(ctx, n.Tenant):
		return noNetwork(ctx, s, name)
	case version == 0 || version == there:
		return nil
	}
	return apierr.VersionConflict("network "+name, there, version, codec.Record{})
}

func noNetwork(ctx context.Context, s *store.State, name string) error {
	return apierr.NotFound("network", name, s.Networks.Map(), authz.CanViewNetwork(ctx))
}

// ListVirtualNetworks lists networks by name.
func (m *Networks) ListVirtualNetworks(ctx context.Context, r *weirv1.ListVirtualNetworksRequest) (*weirv1.ListVirtualNetworksResponse, error) {
	state := m.Store.State()
	f, err := newFilter(r.GetTenant(), r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	page, err := newPage(r.GetPageSize(), r.GetPageToken())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	response := &weirv1.ListVirtualNetworksResponse{}
	for name, n := range state.Networks.From(f.from(page.After)) {
		if !f.inRange(name) {
			break
		}
		wanted := f.tenant == "" || f.tenant == n.Tenant
		if name <= page.After || !wanted || !f.labels.Matches(n.Labels) || !authz.CanView(ctx, n.Tenant) {
			continue
		}
		if len(response.Networks) == page.size {
			response.NextPageToken = page.token(response.Networks[page.size-1].GetName())
			break
		}
		response.Networks = append(response.Networks, networkWithStatus(ctx, state, n))
	}
	return response, nil
}

// GetVirtualNetwork returns one network.
func (m *Networks) GetVirtualNetwork(ctx context.Context, r *weirv1.GetVirtualNetworkRequest) (*weirv1.GetVirtualNetworkResponse, error) {
	state := m.Store.State()
	n, there := state.Networks.Get(r.GetName())
	if !there || !authz.CanView(ctx, n.Tenant) {
		return nil, noNetwork(ctx, state, r.GetName())
	}
	return &weirv1.GetVirtualNetworkResponse{Network: networkWithStatus(ctx, state, n)}, nil
}

// networkWithStatus writes a network with all that is output only.
func networkWithStatus(ctx context.Context, s *store.State, n vnet.Network) *weirv1.VirtualNetwork {
	p := compile.NetworkMessage(n)
	p.ResourceVersion = uint64(s.NetworkWritten.At(n.Name))
	p.Status = &weirv1.VirtualNetworkStatus{}
	for at := range s.Networks.Attached(n.Name) {
		vip := &weirv1.NetworkVIP{Address: at.Address.String(), Tenant: at.Tenant, Mode: string(at.Mode)}
		if authz.CanView(ctx, at.Tenant) {
			vip.Vip = at.VIP
		}
		p.Status.Vips = append(p.Status.Vips, vip)
	}
	return p
}
