package resource

import (
	"context"
	"errors"
	"maps"
	"sync"

	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/managed"
	"github.com/weirlb/weir/internal/resource/network"
	"github.com/weirlb/weir/internal/resource/placed"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// admitted says whether the caller may write vips, and what is beside them, and whether they fit together, with all
// others, and with what their tenants may have. It returns VIPs and networks with what is theirs.
func (m *writer) admitted(
	ctx context.Context, s *store.State, lists []model.PrefixList, along beside, vips []model.VIP,
) ([]model.VIP, network.Batch, error) {
	caller := trust.FromContext(ctx)
	confined := !caller.May(trust.Operator, trust.AllTenants)
	if err := authz.PermitVIPs(caller, s, vips); err != nil {
		return nil, network.Batch{}, err
	}
	if !along.patched {
		var err error
		if vips, err = managed.Keep(s.VIPs.At, vips); err != nil {
			return nil, network.Batch{}, err
		}
	}
	if err := m.admitLists(ctx, s, lists, vips); err != nil {
		return nil, network.Batch{}, err
	}
	networks, err := m.networks.Admit(ctx, s, along.networks)
	if err != nil {
		return nil, network.Batch{}, err
	}
	errPools := admission.Pools(s.State, along.pools, vips)
	with := admission.WithNetworks(admission.With(s.State, lists, along.pools), networks.Networks, networks.Overlay)
	admitted, err := admission.VIPs(with, vips, along.strict)
	if err := errors.Join(errPools, err, placed.Even(s, vips)); err != nil {
		return nil, network.Batch{}, err
	}
	return admitted, networks, admission.TenantVIPs(admission.With(s.State, nil, along.pools), admitted, m.Tenants(), confined)
}

// Tenants are all that there are now.
func (m *writer) Tenants() *admission.Tenants {
	trusted, _ := m.Store.Trust.Watch()
	m.indexed.mu.Lock()
	defer m.indexed.mu.Unlock()
	if version := trusted.TenantsVersion(); m.indexed.tenants == nil || m.indexed.version != version {
		m.indexed.version, m.indexed.tenants = version, admission.NewTenants(maps.Collect(trusted.Tenants.All()))
	}
	return m.indexed.tenants
}

// indexedTenants are those of one version. Who joins meanwhile does not make another.
type indexedTenants struct {
	mu      sync.Mutex
	version int64
	tenants *admission.Tenants
}
