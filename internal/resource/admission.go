package resource

import (
	"context"
	"sync"

	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// admitted says whether the caller may write vips, and lists, and whether they fit together, with all others, and
// with what their tenants may have.
func (m *writer) admitted(ctx context.Context, s *store.State, lists []model.PrefixList, pools []model.AddressPool, vips []model.VIP) ([]model.VIP, error) {
	caller := trust.FromContext(ctx)
	if err := authz.PermitVIPs(caller, s, vips); err != nil {
		return nil, err
	}
	if err := m.admitLists(ctx, s, lists, vips); err != nil {
		return nil, err
	}
	admitted, err := admit(s, lists, pools, vips)
	if err != nil {
		return nil, err
	}
	return admitted, admission.TenantVIPs(s.State, admitted, m.Tenants(), !caller.May(trust.Operator, trust.AllTenants))
}

// Tenants are all that there are now.
func (m *writer) Tenants() *admission.Tenants {
	trusted, _ := m.Store.Trust.Watch()
	m.indexed.mu.Lock()
	defer m.indexed.mu.Unlock()
	if m.indexed.of != trusted {
		m.indexed.of, m.indexed.tenants = trusted, admission.NewTenants(trusted.Tenants)
	}
	return m.indexed.tenants
}

// indexedTenants are those of a Trust, until there is another one.
type indexedTenants struct {
	mu      sync.Mutex
	of      *truststore.Trust
	tenants *admission.Tenants
}
