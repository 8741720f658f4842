package resource

import (
	"context"
	"fmt"
	"reflect"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// changedPools are those of pools that s does not have so.
func changedPools(s *store.State, pools []model.AddressPool) (changed []model.AddressPool, applied []*weirv1.AppliedAddressPool) {
	for _, p := range pools {
		old, had := s.Pools.Get(p.Name)
		what := rpc.Created
		switch {
		case had && reflect.DeepEqual(old, p):
			what = rpc.Unchanged
		case had:
			what = rpc.Updated
		}
		if what != rpc.Unchanged {
			changed = append(changed, p)
		}
		applied = append(applied, &weirv1.AppliedAddressPool{Name: p.Name, Change: what})
	}
	return changed, applied
}

// CreateAddressPool creates a pool.
func (m *Pools) CreateAddressPool(ctx context.Context, r *weirv1.CreateAddressPoolRequest) (*weirv1.CreateAddressPoolResponse, error) {
	written, err := m.writeSettings(ctx, r.GetPool(), func(s *store.State) error {
		if s.Pools.Has(r.GetPool().GetName()) {
			return connect.NewError(connect.CodeAlreadyExists,
				fmt.Errorf("there is a pool %s already: update it, or take another name", r.GetPool().GetName()))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.CreateAddressPoolResponse{Pool: written}, nil
}

// UpdateAddressPool replaces a pool.
func (m *Pools) UpdateAddressPool(ctx context.Context, r *weirv1.UpdateAddressPoolRequest) (*weirv1.UpdateAddressPoolResponse, error) {
	if err := apierr.CheckName(r.GetName(), r.GetPool().GetName()); err != nil {
		return nil, apierr.ToConnect(err)
	}
	if r.GetPool() != nil {
		r.Pool.Name = r.GetName()
	}
	written, err := m.writeSettings(ctx, r.GetPool(), func(s *store.State) error {
		return currentPool(ctx, s, r.GetName(), r.GetPool().GetResourceVersion())
	})
	if err != nil {
		return nil, err
	}
	return &weirv1.UpdateAddressPoolResponse{Pool: written}, nil
}

// writeSettings writes a pool if allowed does not say why not, and returns it as it was written.
func (m *Pools) writeSettings(ctx context.Context, p *weirv1.AddressPool, allowed func(*store.State) error) (*weirv1.AddressPool, error) {
	if err := compile.Known(p); err != nil {
		return nil, apierr.ToConnect(err)
	}
	pool, err := compile.AddressPool(p)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	var before model.Generation
	done, err := m.write(ctx, beside{pools: []model.AddressPool{pool}}, func(s *store.State) ([]model.VIP, error) {
		before = network.VersionBefore(s, s.PoolWritten.At(pool.Name))
		return nil, allowed(s)
	})
	if err != nil {
		return nil, apierr.ToConnect(apierr.TrimField("pools[0].", err))
	}
	written := poolWithStatus(m.Store.State(), pool)
	written.ResourceVersion = network.VersionOf(done.pools[0].GetChange(), done.generation, before)
	return written, nil
}

// DeleteAddressPool deletes a pool that no VIP names.
func (m *Pools) DeleteAddressPool(ctx context.Context, r *weirv1.DeleteAddressPoolRequest) (*weirv1.DeleteAddressPoolResponse, error) {
	generation, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if err := currentPool(ctx, s, r.GetName(), r.GetResourceVersion()); err != nil {
			return store.Change{}, err
		}
		if err := admission.PoolRemoval(s.State, r.GetName()); err != nil {
			return store.Change{}, rpc.NewError(connect.CodeFailedPrecondition, err)
		}
		return store.Change{DeletePools: []string{r.GetName()}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Log.InfoContext(ctx, "pool deleted", "pool", r.GetName(), "generation", generation)
	m.Recorder.RecordCall(ctx, eventlog.Event{Kind: events.KindPool, Object: r.GetName(), Reason: reason.Deleted, Message: "pool deleted"})
	return &weirv1.DeleteAddressPoolResponse{}, nil
}

// currentPool holds that the pool is there, and of the version, unless that is 0.
func currentPool(ctx context.Context, s *store.State, name string, version uint64) error {
	there := uint64(s.PoolWritten.At(name))
	switch {
	case there == 0:
		return apierr.NotFound("pool", name, s.Pools, seenPools(ctx))
	case version == 0 || version == there:
		return nil
	}
	return apierr.VersionConflict("pool "+name, there, version, codec.Record{})
}

func seenPools(ctx context.Context) func(model.AddressPool) bool {
	return func(p model.AddressPool) bool { return authz.CanViewPool(ctx, p) }
}

// ListAddressPools lists pools by name.
func (m *Pools) ListAddressPools(ctx context.Context, r *weirv1.ListAddressPoolsRequest) (*weirv1.ListAddressPoolsResponse, error) {
	state := m.Store.State()
	f, err := query.NewFilter("", r.GetLabelSelector(), r.GetNamePrefix())
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	found := query.Collect[*weirv1.AddressPool](page)
	for name, p := range state.Pools.From(f.From(page.After)) {
		if !f.InRange(name) {
			break
		}
		fits := f.Fits("", p.Labels) && authz.CanViewPool(ctx, p)
		if fits && !found.Add(name, func() *weirv1.AddressPool { return poolWithStatus(state, p) }) {
			break
		}
	}
	return &weirv1.ListAddressPoolsResponse{Pools: found.All, NextPageToken: found.Next}, nil
}

// GetAddressPool returns one pool with its use.
func (m *Pools) GetAddressPool(ctx context.Context, r *weirv1.GetAddressPoolRequest) (*weirv1.GetAddressPoolResponse, error) {
	state := m.Store.State()
	pool, there := state.Pools.Get(r.GetName())
	if !there || !authz.CanViewPool(ctx, pool) {
		return nil, apierr.NotFound("pool", r.GetName(), state.Pools, seenPools(ctx))
	}
	return &weirv1.GetAddressPoolResponse{Pool: poolWithStatus(state, pool)}, nil
}

// poolWithStatus writes pool with all that is output only.
func poolWithStatus(s *store.State, pool model.AddressPool) *weirv1.AddressPool {
	p := compile.AddressPoolMessage(pool)
	p.ResourceVersion = uint64(s.PoolWritten.At(pool.Name))
	p.Status = &weirv1.AddressPoolStatus{}
	uses := desired.PoolUses(s.State, pool)
	use := func(family model.Family) *weirv1.PoolUse {
		if u, has := uses[family]; has {
			return &weirv1.PoolUse{Total: u.Total, Used: u.Used}
		}
		return nil
	}
	p.Status.Ipv4, p.Status.Ipv6 = use(model.IPv4), use(model.IPv6)
	return p
}
