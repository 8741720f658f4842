package trustservice

import (
	"context"
	"fmt"
	"reflect"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// Bounds on how much of the audit log one call returns.
const (
	defaultAudit = 100
	maxAudit     = 5000
)

func auditToProto(entries []trust.AuditEntry) []*weirv1.AuditEntry {
	list := make([]*weirv1.AuditEntry, 0, len(entries))
	for _, e := range entries {
		list = append(list, &weirv1.AuditEntry{
			Time: timestamppb.New(e.Time), Identity: e.Identity, From: e.From, Procedure: e.Procedure, Subject: e.Subject,
			Result: e.Result, Reason: e.Reason, Manager: e.Manager,
		})
	}
	return list
}

func tenantToProto(t model.Tenant, s *store.State, rows tenantRows) *weirv1.Tenant {
	p, used, networks := compile.TenantMessage(t), s.Usage(t.Name), s.Networks.Usage(t.Name)
	p.Used = &weirv1.Quotas{
		Vips: &used.VIPs, Endpoints: &used.Endpoints, Backends: &used.Backends, Ports: &used.Ports, Prefixes: &used.Prefixes,
		Networks: &networks.Networks, Workloads: &networks.Workloads, Attachments: &networks.Attachments,
		SwitchHosts: &used.SwitchHosts, SwitchTunnels: &used.SwitchTunnels,
	}
	p.Flows, p.Sessions, p.Snat = rows.flows[t.Name], rows.sessions[t.Name], rows.snat[t.Name]
	return p
}

// tenantRows are what tenants have of tables of nodes, each where it is nearest to its limit.
type tenantRows struct{ flows, sessions, snat map[string]*weirv1.NodeRows }

// tenantRows collects what the nodes that are connected have said.
func (t *Service) tenantRows(s *store.State) tenantRows {
	rows := tenantRows{flows: map[string]*weirv1.NodeRows{}, sessions: map[string]*weirv1.NodeRows{}, snat: map[string]*weirv1.NodeRows{}}
	note := func(in map[string]*weirv1.NodeRows, node string, all []*weirv1.TenantRows) {
		for _, r := range all {
			was := in[r.GetTenant()]
			if was == nil || float64(r.GetUsed())*float64(was.GetLimit()) > float64(was.GetUsed())*float64(r.GetLimit()) {
				in[r.GetTenant()] = &weirv1.NodeRows{Node: node, Used: r.GetUsed(), Limit: r.GetLimit()}
			}
		}
	}
	for node := range s.Nodes.Values() {
		if s.Streams.At(node.Name) {
			_, said := t.Reported(s, node)
			note(rows.flows, node.Name, said.GetMux().GetFlows())
			note(rows.sessions, node.Name, said.GetHost().GetTenantSessions())
			note(rows.snat, node.Name, said.GetHost().GetTenantSnat())
		}
	}
	return rows
}

// ApplyTenants creates or replaces tenants, all of them or none.
func (t *Service) ApplyTenants(ctx context.Context, r *weirv1.ApplyTenantsRequest) (*weirv1.ApplyTenantsResponse, error) {
	if err := compile.Known(r); err != nil {
		return nil, apierr.ToConnect(err)
	}
	var errs model.FieldErrorList
	tenants := make([]model.Tenant, 0, len(r.GetTenants()))
	seen := map[string]bool{}
	for i, p := range r.GetTenants() {
		path := fmt.Sprintf("tenants[%d]", i)
		tenant, err := compile.Tenant(p)
		errs.Below(path, err)
		if seen[tenant.Name] {
			errs.Refuse(path+".name", "is here twice")
		}
		seen[tenant.Name] = true
		tenants = append(tenants, tenant)
	}
	if len(tenants) == 0 {
		errs.Refuse("tenants", "must have at least one")
	}
	if err := errs.Err(); err != nil {
		return nil, apierr.ToConnect(err)
	}
	var response *weirv1.ApplyTenantsResponse
	err := t.Store.Trust.Update(ctx, func(now *truststore.Trust) (change truststore.Change, err error) {
		response = &weirv1.ApplyTenantsResponse{}
		for _, tenant := range tenants {
			what := rpc.Created
			if old, had := now.Tenants.Get(tenant.Name); had && reflect.DeepEqual(old, tenant) {
				what = rpc.Unchanged
			} else if had {
				what = rpc.Updated
			}
			response.Tenants = append(response.Tenants, &weirv1.AppliedTenant{Name: tenant.Name, Change: what})
			if what != rpc.Unchanged {
				change.Tenants = append(change.Tenants, tenant)
			}
		}
		return change, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return response, nil
}

// ListTenants lists the tenants that the caller may see, by name.
func (t *Service) ListTenants(ctx context.Context, r *weirv1.ListTenantsRequest) (*weirv1.ListTenantsResponse, error) {
	page, err := query.NewPage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	now, _ := t.Store.Trust.Watch()
	s := t.View()
	rows, found := t.tenantRows(s), query.Collect[*weirv1.Tenant](page)
	for name, tenant := range now.Tenants.From(page.After) {
		if authz.CanView(ctx, name) && !found.Add(name, func() *weirv1.Tenant { return tenantToProto(tenant, s, rows) }) {
			break
		}
	}
	return &weirv1.ListTenantsResponse{Tenants: found.All, NextPageToken: found.Next}, nil
}

// GetTenant returns one tenant.
func (t *Service) GetTenant(_ context.Context, r *weirv1.GetTenantRequest) (*weirv1.GetTenantResponse, error) {
	now, _ := t.Store.Trust.Watch()
	tenant, there := now.Tenants.Get(r.GetName())
	if !there {
		return nil, noTenant(r.GetName())
	}
	s := t.View()
	return &weirv1.GetTenantResponse{Tenant: tenantToProto(tenant, s, t.tenantRows(s))}, nil
}

func noTenant(name string) error {
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no tenant %.64q", name))
}

// DeleteTenant forgets a tenant that has neither VIPs nor users.
func (t *Service) DeleteTenant(ctx context.Context, r *weirv1.DeleteTenantRequest) (*weirv1.DeleteTenantResponse, error) {
	_, err := t.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		now, _ := t.Store.Trust.Watch()
		if err := admitTenantRemoval(s, now, r.GetName()); err != nil {
			return store.Change{}, err
		}
		return store.Change{DeleteTenants: []string{r.GetName()}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.DeleteTenantResponse{}, nil
}

// admitTenantRemoval says why a tenant must stay.
func admitTenantRemoval(s *store.State, now *truststore.Trust, name string) error {
	if !now.Tenants.Has(name) {
		return noTenant(name)
	}
	if used := s.Usage(name); used.VIPs > 0 {
		return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("tenant %s has %d VIPs: delete them first", name, used.VIPs))
	}
	for n := range s.Networks.All() {
		if n.Tenant == name {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("tenant %s has virtual network %s: delete it first", name, n.Name))
		}
	}
	for list := range s.PrefixLists.Values() {
		if list.Tenant == name {
			return connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("tenant %s has prefix list %s: delete it first", name, list.Name))
		}
	}
	for user, account := range now.Accounts.All() {
		for _, b := range account.Bindings {
			if b.Tenant == name {
				return connect.NewError(connect.CodeFailedPrecondition,
					fmt.Errorf("user %s is bound to tenant %s: delete or update the user first", user, name))
			}
		}
	}
	return nil
}
