package authz

import (
	"cmp"
	"fmt"
	"net/netip"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// permitTenant says whether the caller has the role in the tenants that the call is about. What it may
// not even see is not there.
func permitTenant(caller trust.Identity, s *store.State, role trust.Role, message any) error {
	if caller.May(role, trust.AllTenants) {
		return nil
	}
	switch r := message.(type) {
	case *weirv1.ApplyVIPsRequest:
		return permitApply(caller, s, r)
	case *weirv1.CreateVIPRequest:
		return permitWrites(caller, s, "vip", r.GetVip())
	case *weirv1.UpdateVIPRequest:
		if err := PermitVIP(caller, s, role, r.GetName()); err != nil {
			return err
		}
		return permitTenantOf(caller, "vip.tenant", r.GetVip().GetTenant())
	case *weirv1.PatchVIPRequest:
		if err := PermitVIP(caller, s, role, r.GetName()); err != nil {
			return err
		}
		if tenant, moves := r.GetPatch().GetFields()["tenant"]; moves {
			return permitTenantOf(caller, "patch.tenant", tenant.GetStringValue())
		}
	case *weirv1.GetVIPRequest, *weirv1.GetSNATRequest, *weirv1.ReclaimPortsRequest, *weirv1.DeleteVIPRequest, *weirv1.PatchBackendsRequest:
		return PermitVIP(caller, s, role, nameOf(message))
	case *weirv1.ListConnectionsRequest:
		return PermitVIP(caller, s, role, r.GetVip())
	case *weirv1.ExplainRequest:
		return permitDestination(caller, s, r.GetNetwork(), r.GetDestinationAddress())
	case *weirv1.GetTenantRequest:
		if !caller.May(role, r.GetName()) {
			return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no tenant %.64q of yours", r.GetName()))
		}
	case *weirv1.CreatePrefixListRequest, *weirv1.UpdatePrefixListRequest, *weirv1.ChangePrefixListRequest, *weirv1.GetPrefixListRequest,
		*weirv1.DeletePrefixListRequest:
		return permitListCall(caller, s, role, message)
	case *weirv1.CreateVirtualNetworkRequest, *weirv1.UpdateVirtualNetworkRequest, *weirv1.PatchVirtualNetworkRequest,
		*weirv1.GetVirtualNetworkRequest, *weirv1.DeleteVirtualNetworkRequest:
		return permitNetworkCall(caller, s, role, message)
	case interface{ GetTenant() string }: // those that list and watch
		if r.GetTenant() != "" {
			return permitTenantOf(caller, "tenant", r.GetTenant())
		}
	case *weirv1.GetStatusRequest, *weirv1.ListNodesRequest, *weirv1.GetNodeRequest, *weirv1.ListAddressPoolsRequest,
		*weirv1.GetAddressPoolRequest, *weirv1.ListTenantsRequest, *weirv1.GetOverlayRequest, *weirv1.WatchNodesRequest, *weirv1.WatchStatusRequest:
		// They show nothing of another tenant: Redact and the CanView functions see to it.
	default: // nobody has said yet what of the request is a tenant's
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf("%s may not make this call: that takes the role %s in all tenants", caller, role))
	}
	return nil
}

// permitApply is permitTenant of an apply.
func permitApply(caller trust.Identity, s *store.State, r *weirv1.ApplyVIPsRequest) error {
	if len(r.GetPools()) > 0 && !caller.May(trust.Admin, trust.AllTenants) {
		return rpc.NewError(connect.CodePermissionDenied,
			&model.FieldError{Field: "pools", Reason: fmt.Sprintf("%s may not write pools: that takes the role admin in all tenants", caller)})
	}
	if len(r.GetOverlays()) > 0 && !caller.May(trust.Admin, trust.AllTenants) {
		return rpc.NewError(connect.CodePermissionDenied,
			&model.FieldError{Field: "overlays", Reason: fmt.Sprintf("%s may not write the overlay: that takes the role admin in all tenants", caller)})
	}
	if err := permitLists(caller, "prefixLists", r.GetPrefixLists()...); err != nil {
		return err
	}
	if err := permitNetworks(caller, s, "networks", r.GetNetworks()...); err != nil {
		return err
	}
	return permitWrites(caller, s, "vips", r.GetVips()...)
}

// permitListCall is permitTenant of calls about one prefix list.
func permitListCall(caller trust.Identity, s *store.State, role trust.Role, message any) error {
	if _, creates := message.(*weirv1.CreatePrefixListRequest); !creates {
		if err := PermitPrefixList(caller, s, role, nameOf(message)); err != nil {
			return err
		}
	}
	if r, writes := message.(interface{ GetPrefixList() *weirv1.PrefixList }); writes {
		return permitLists(caller, "prefixList", r.GetPrefixList())
	}
	return nil
}

// PermitVIP holds that the caller has the role in the tenant of that VIP.
func PermitVIP(caller trust.Identity, s *store.State, role trust.Role, name string) error {
	vip, there := s.VIPs.Get(name)
	switch {
	case !there || !caller.May(trust.Viewer, vip.Tenant):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no VIP %.64q of yours", name))
	case !caller.May(role, vip.Tenant):
		return connect.NewError(connect.CodePermissionDenied,
			fmt.Errorf("%s may not change VIP %s: that takes the role %s in tenant %s", caller, name, role, vip.Tenant))
	}
	return nil
}

// permitWrites holds that the caller may write VIPs into their tenants, and over those of their names.
func permitWrites(caller trust.Identity, s *store.State, field string, vips ...*weirv1.VIP) error {
	for i, vip := range vips {
		path := field
		if field == "vips" {
			path = fmt.Sprintf("vips[%d]", i)
		}
		if err := permitTenantOf(caller, path+".tenant", vip.GetTenant()); err != nil {
			return err
		}
		if old, there := s.VIPs.Get(vip.GetName()); there && !caller.May(trust.Operator, old.Tenant) {
			return rpc.NewError(connect.CodePermissionDenied,
				&model.FieldError{Field: path + ".name", Reason: fmt.Sprintf("%s is taken: take another name", vip.GetName())})
		}
	}
	return nil
}

// PermitPrefixList holds that the caller has the role in the tenant of that prefix list. Those of none may be seen by all.
func PermitPrefixList(caller trust.Identity, s *store.State, role trust.Role, name string) error {
	list, there := s.PrefixLists.Get(name)
	switch {
	case !there || list.Tenant != "" && !caller.May(trust.Viewer, list.Tenant):
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no prefix list %.64q of yours", name))
	case role == trust.Viewer && list.Tenant == "" || caller.May(role, PrefixListTenant(list.Tenant)):
		return nil
	case list.Tenant == "":
		return connect.NewError(connect.CodePermissionDenied, fmt.Errorf(
			"%s may not change prefix list %s, which is for all tenants: that takes the role %s in all of them", caller, name, role))
	}
	return connect.NewError(connect.CodePermissionDenied,
		fmt.Errorf("%s may not change prefix list %s: that takes the role %s in tenant %s", caller, name, role, list.Tenant))
}

// permitLists holds that the caller may write lists into their tenants.
func permitLists(caller trust.Identity, field string, lists ...*weirv1.PrefixList) error {
	for i, list := range lists {
		path := field
		if field == "prefixLists" {
			path = fmt.Sprintf("prefixLists[%d]", i)
		}
		if list.GetTenant() == "" && !caller.May(trust.Operator, trust.AllTenants) {
			return rpc.NewError(connect.CodePermissionDenied, &model.FieldError{Field: path + ".tenant", Reason: fmt.Sprintf(
				"%s may not write prefix lists for all tenants: name a tenant of yours", caller)})
		}
		if list.GetTenant() == "" {
			continue
		}
		if err := permitTenantOf(caller, path+".tenant", list.GetTenant()); err != nil {
			return err
		}
	}
	return nil
}

func permitTenantOf(caller trust.Identity, field, tenant string) error {
	tenant = cmp.Or(tenant, model.DefaultTenant)
	if _, everywhere := caller.Tenants(trust.Viewer); everywhere || caller.May(trust.Viewer, tenant) && field == "tenant" || caller.May(trust.Operator, tenant) {
		return nil
	}
	return rpc.NewError(connect.CodePermissionDenied,
		&model.FieldError{Field: field, Reason: fmt.Sprintf("%s may not do that in tenant %.64s", caller, tenant)})
}

// permitDestination hides the VIPs of other tenants from explain.
func permitDestination(caller trust.Identity, s *store.State, network, destination string) error {
	address, err := netip.ParseAddr(destination)
	if err != nil {
		return nil // the call itself says so
	}
	if network != "" {
		if at, there := s.Networks.AttachedAt(network, address); there && caller.May(trust.Viewer, at.Tenant) {
			return nil
		}
		return connect.NewError(connect.CodeNotFound, fmt.Errorf("no VIP of yours has the address %s in network %.64q", address, network))
	}
	if vip, there := s.VIPAt(address.Unmap()); there && caller.May(trust.Viewer, vip.Tenant) {
		return nil
	}
	return connect.NewError(connect.CodeNotFound, fmt.Errorf("no VIP of yours has the address %s", address))
}

// PermitVIPs is permitWrites for VIPs that were read, to be asked again when they are written: a name
// may have been taken since.
func PermitVIPs(caller trust.Identity, s *store.State, vips []model.VIP) error {
	for i, vip := range vips {
		if old, there := s.VIPs.Get(vip.Name); there && !caller.May(trust.Operator, old.Tenant) {
			return rpc.NewError(connect.CodePermissionDenied,
				&model.FieldError{Field: fmt.Sprintf("vips[%d].name", i), Reason: vip.Name + " is taken: take another name"})
		}
	}
	return nil
}

// PrefixListTenant is where a caller must have a role to do it to a list of the tenant.
func PrefixListTenant(tenant string) string {
	if tenant == "" {
		return trust.AllTenants
	}
	return tenant
}
