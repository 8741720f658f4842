package authz

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// permitNetworkCall is permitTenant of calls about one virtual network.
func permitNetworkCall(caller trust.Identity, s *store.State, role trust.Role, message any) error {
	switch r := message.(type) {
	case *weirv1.CreateVirtualNetworkRequest:
		return permitNetworks(caller, s, "network", r.GetNetwork())
	case *weirv1.UpdateVirtualNetworkRequest:
		if err := PermitNetwork(caller, s, role, r.GetName()); err != nil {
			return err
		}
		return permitTenantOf(caller, "network.tenant", r.GetNetwork().GetTenant())
	case *weirv1.PatchVirtualNetworkRequest:
		if err := PermitNetwork(caller, s, role, r.GetName()); err != nil {
			return err
		}
		if tenant, moves := r.GetPatch().GetFields()["tenant"]; moves {
			return permitTenantOf(caller, "patch.tenant", tenant.GetStringValue())
		}
		return nil
	}
	return PermitNetwork(caller, s, role, nameOf(message))
}

// PermitNetwork holds that the caller has the role in the tenant of that virtual network.
func PermitNetwork(caller trust.Identity, s *store.State, role trust.Role, name string) error {
	n, there := s.Networks.Get(name)
	switch {
	case !there || !caller.May(trust.Viewer, n.Tenant):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no network %.64q of yours", name))
	case !caller.May(role, n.Tenant):
		return connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("%s may not change network %s: that takes the role %s in tenant %s", caller, name, role, n.Tenant))
	}
	return nil
}

// permitNetworks holds that the caller may write networks into their tenants, and over those of their names.
func permitNetworks(caller trust.Identity, s *store.State, field string, networks ...*weirv1.VirtualNetwork) error {
	for i, n := range networks {
		path := field
		if field == "networks" {
			path = fmt.Sprintf("networks[%d]", i)
		}
		if err := permitTenantOf(caller, path+".tenant", n.GetTenant()); err != nil {
			return err
		}
		if old, there := s.Networks.Get(n.GetName()); there && !caller.May(trust.Operator, old.Tenant) {
			return networkTaken(path, n.GetName())
		}
	}
	return nil
}

func networkTaken(path, name string) error {
	return rpc.NewError(connect.CodePermissionDenied, &model.FieldError{Field: path + ".name", Reason: name + " is taken: take another name"})
}

// PermitNetworks is asked again in the transaction that writes networks: their names may have come to another tenant since.
func PermitNetworks(caller trust.Identity, s *store.State, networks []vnet.Network) error {
	for i, n := range networks {
		old, there := s.Networks.Get(n.Name)
		if there && !caller.Anonymous() && caller.Method != trust.Insecure && !caller.May(trust.Operator, old.Tenant) {
			return networkTaken(fmt.Sprintf("networks[%d]", i), n.Name)
		}
	}
	return nil
}

// CanViewNetwork says whether the caller may see the network.
func CanViewNetwork(ctx context.Context) func(vnet.Network) bool {
	return func(n vnet.Network) bool { return CanView(ctx, n.Tenant) }
}
