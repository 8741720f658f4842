// Package network serves virtual networks and the overlay to users: what WeirService reads and writes of them.
package network

import (
	"context"
	"fmt"
	"log/slog"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/resource/mergepatch"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

// Networks are the virtual networks and the overlay, with their calls.
type Networks struct {
	Store    *store.Store
	Recorder *events.Recorder
	Tenants  func() *admission.Tenants // all that there are now
	Log      *slog.Logger
}

// Batch is what one call writes.
type Batch struct {
	Networks []vnet.Network
	Overlay  *vnet.Overlay // nil: as it was
	Strict   bool          // hosts must have joined
}

// Done is what writing a Batch changed.
type Done struct {
	Networks []*weirv1.AppliedVirtualNetwork
	Overlays []*weirv1.AppliedOverlay

	written Batch
}

// Admit says whether the caller may write the batch, and whether it fits to s and to what tenants may have. It returns
// the batch with every host as the name of a node. The paths of its field errors begin with networks[i] or overlays[0].
func (m *Networks) Admit(ctx context.Context, s *store.State, b Batch) (Batch, error) {
	caller := trust.FromContext(ctx)
	if err := authz.PermitNetworks(caller, s, b.Networks); err != nil {
		return b, err
	}
	if b.Overlay != nil {
		if err := admission.Overlay(s.State, *b.Overlay); err != nil {
			return b, err
		}
	}
	confined := !caller.May(trust.Operator, trust.AllTenants)
	var err error
	b.Networks, err = admission.Networks(admission.WithNetworks(s.State, nil, b.Overlay), b.Networks, m.Tenants(), confined, b.Strict)
	return b, err
}

// Change adds to change what makes s hold the batch, and says what that does.
func (b Batch) Change(ctx context.Context, s *store.State, change *store.Change) (done Done) {
	change.Networks, done.Networks = changedNetworks(ctx, s, b.Networks)
	change.Overlay, done.Overlays = changedOverlay(s, b.Overlay)
	return done
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
	written, generation, err := m.writeNetwork(ctx, n.Name, r.GetStrict(), func(s *store.State) (vnet.Network, error) {
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
	written, generation, err := m.writeNetwork(ctx, n.Name, r.GetStrict(), func(s *store.State) (vnet.Network, error) {
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
	written, generation, err := m.writeNetwork(ctx, r.GetName(), r.GetStrict(), func(s *store.State) (vnet.Network, error) {
		old, there := s.Networks.Get(r.GetName())
		if !there {
			return old, noNetwork(ctx, s, r.GetName())
		}
		p := compile.NetworkMessage(old)
		if err := mergepatch.Apply(p, r.GetPatch()); err != nil {
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
	f, err := query.NewFilter(r.GetTenant(), r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	found := query.Collect[*weirv1.VirtualNetwork](page)
	for name, n := range state.Networks.From(f.From(page.After)) {
		if !f.InRange(name) {
			break
		}
		fits := f.Fits(n.Tenant, n.Labels) && authz.CanView(ctx, n.Tenant)
		if fits && !found.Add(name, func() *weirv1.VirtualNetwork { return networkWithStatus(ctx, state, n) }) {
			break
		}
	}
	return &weirv1.ListVirtualNetworksResponse{Networks: found.All, NextPageToken: found.Next}, nil
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
	p.Status = &weirv1.VirtualNetworkStatus{Pending: Pending(s, n)}
	for at := range s.Networks.Attached(n.Name) {
		vip := &weirv1.NetworkVIP{Address: at.Address.String(), Tenant: at.Tenant, Mode: string(at.Mode)}
		if authz.CanView(ctx, at.Tenant) {
			vip.Vip = at.VIP
		}
		p.Status.Vips = append(p.Status.Vips, vip)
	}
	return p
}
