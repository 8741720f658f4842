package manager

import (
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/types/known/structpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// operator is a client of a new user who has the role operator in a tenant.
func operator(t *testing.T, m *Manager, admin *rpc.Client, url, name, tenant string) *rpc.Client {
	t.Helper()
	made, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: name, Bindings: []*weirv1.Binding{{Tenant: tenant, Role: "operator"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	return connected(t, rpc.Access{Managers: url, CA: m.identity.Authority().Certificate, Token: made.GetToken()})
}

func of(tenant string, vip *weirv1.VIP) *weirv1.VIP {
	vip.Tenant = tenant
	return vip
}

// blueAndRed has a VIP sea and a pool lagoon of tenant blue, and a VIP rose of tenant red, whose operator
// it returns.
func blueAndRed(t *testing.T, quotas *weirv1.Quotas) (m *Manager, admin, rita *rpc.Client) {
	t.Helper()
	m, admin, url := secure(t, Config{})
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{
		Tenants: []*weirv1.Tenant{{Name: "red", Quotas: quotas}, {Name: "blue"}},
	}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Pools: []*weirv1.AddressPool{{Name: "lagoon", Prefixes: []string{"192.0.2.0/28"}, Tenants: []string{"blue"}}},
		Vips:  []*weirv1.VIP{of("blue", bare("sea", "198.51.100.1")), of("red", bare("rose", "203.0.113.1"))},
	}); err != nil {
		t.Fatal(err)
	}
	return m, admin, operator(t, m, admin, url, "rita", "red")
}

func patch(t *testing.T, fields map[string]any) *structpb.Struct {
	t.Helper()
	p, err := structpb.NewStruct(fields)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// failure is the error of a call.
func failure[R any](_ R, err error) error { return err }

// Whatever writes asks for the tenant, and no refusal names what is another tenant's.
func TestTenantsCannotWriteWhatIsNotTheirs(t *testing.T) {
	m, admin, rita := blueAndRed(t, nil)
	ctx, before := t.Context(), m.store.State().Generation
	moved := map[string]any{"tenant": "blue"}
	for what, c := range map[string]struct {
		call func() error
		want string
	}{
		"update": {func() error {
			return failure(rita.UpdateVIP(ctx, &weirv1.UpdateVIPRequest{Name: "sea", Vip: of("red", bare("", "203.0.113.2"))}))
		}, `no VIP "sea" of yours`},
		"patch": {func() error {
			return failure(rita.PatchVIP(ctx, &weirv1.PatchVIPRequest{Name: "sea", Patch: patch(t, map[string]any{"labels": map[string]any{"a": "b"}})}))
		}, `no VIP "sea" of yours`},
		"delete": {func() error { _, err := rita.DeleteVIP(ctx, &weirv1.DeleteVIPRequest{Name: "sea"}); return err }, `no VIP "sea" of yours`},
		"create over it": {func() error {
			return failure(rita.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: of("red", bare("sea", "203.0.113.2"))}))
		}, "vip.name: sea is taken"},
		"create for it": {func() error {
			return failure(rita.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: of("blue", bare("sky", "203.0.113.2"))}))
		}, "vip.tenant: user/rita may not"},
		"create for nobody": {func() error {
			return failure(rita.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: bare("sky", "203.0.113.2")}))
		}, "in tenant default"},
		"update into it": {func() error {
			return failure(rita.UpdateVIP(ctx, &weirv1.UpdateVIPRequest{Name: "rose", Vip: of("blue", bare("", "203.0.113.1"))}))
		}, "vip.tenant: user/rita may not"},
		"patch into it": {func() error {
			return failure(rita.PatchVIP(ctx, &weirv1.PatchVIPRequest{Name: "rose", Patch: patch(t, moved)}))
		}, "patch.tenant: user/rita may not"},
		"patch out of all": {func() error {
			return failure(rita.PatchVIP(ctx, &weirv1.PatchVIPRequest{Name: "rose", Patch: patch(t, map[string]any{"tenant": nil})}))
		}, "in tenant default"},
		"its address": {func() error {
			return failure(rita.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: of("red", bare("sky", "198.51.100.1"))}))
		}, "is the address of a VIP of another tenant"},
		"its pool": {func() error {
			return failure(rita.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: of("red", bare("sky", "192.0.2.1"))}))
		}, "a pool that is not for tenant red"},
		"delete a node":     {func() error { _, err := rita.DeleteNode(ctx, &weirv1.DeleteNodeRequest{Name: "mux1"}); return err }, "takes the role operator in all tenants"},
		"get nearly":        {func() error { _, err := rita.GetVIP(ctx, &weirv1.GetVIPRequest{Name: "se"}); return err }, `no VIP "se" of yours`},
		"get a pool nearly": {func() error { return failure(rita.GetAddressPool(ctx, &weirv1.GetAddressPoolRequest{Name: "lagun"})) }, `no pool "lagun"`},
		"get its pool":      {func() error { return failure(rita.GetAddressPool(ctx, &weirv1.GetAddressPoolRequest{Name: "lagoon"})) }, `no pool "lagoon"`},
	} {
		err := c.call()
		refusedWith(t, what, err, c.want)
		if err != nil && strings.Contains(err.Error(), "mean") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if after := m.store.State().Generation; after != before {
		t.Errorf("the generation went from %d to %d", before, after)
	}
	_, err := admin.GetVIP(ctx, &weirv1.GetVIPRequest{Name: "se"})
	refusedWith(t, "one who sees all", err, "did you mean sea?")
	auditedWith(t, admin, "user/rita /weir.v1.WeirService/PatchVIP", "user/rita /weir.v1.WeirService/DeleteVIP")
}

func TestTenantsCannotWritePools(t *testing.T) {
	m, admin, rita := blueAndRed(t, nil)
	ctx, before := t.Context(), m.store.State().Generation
	pool := &weirv1.AddressPool{Name: "mine", Prefixes: []string{"192.0.2.64/28"}}
	for what, c := range map[string]struct {
		call func() error
		want string
	}{
		"create a pool": {func() error {
			return failure(rita.CreateAddressPool(ctx, &weirv1.CreateAddressPoolRequest{Pool: pool}))
		}, "takes the role admin in all tenants"},
		"update a pool": {func() error {
			return failure(rita.UpdateAddressPool(ctx, &weirv1.UpdateAddressPoolRequest{Name: "lagoon", Pool: pool}))
		}, "takes the role admin in all tenants"},
		"delete a pool": {func() error {
			return failure(rita.DeleteAddressPool(ctx, &weirv1.DeleteAddressPoolRequest{Name: "lagoon"}))
		}, "takes the role admin in all tenants"},
		"apply a pool": {func() error {
			return failure(rita.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Pools: []*weirv1.AddressPool{pool}}))
		}, "pools: user/rita may not write pools"},
	} {
		refusedWith(t, what, c.call(), c.want)
	}
	if after := m.store.State().Generation; after != before {
		t.Errorf("the generation went from %d to %d", before, after)
	}
	auditedWith(t, admin, "user/rita /weir.v1.WeirService/CreateAddressPool")
}

// What another tenant has since the call was permitted is not deleted.
func TestDeletionAsksAgain(t *testing.T) {
	m, admin, _ := blueAndRed(t, nil)
	// The rule is not asked here: it was, and rose was the caller's then.
	_, err := m.resources.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "rose"})
	refusedWith(t, "a caller without a right", err, `no VIP "rose" of yours`)
	_, err = m.allocator.ReclaimPorts(t.Context(), &weirv1.ReclaimPortsRequest{Name: "rose", Address: "10.9.9.9"})
	refusedWith(t, "ports, by a caller without a right", err, `no VIP "rose" of yours`)
	if _, err := admin.CreatePrefixList(t.Context(), &weirv1.CreatePrefixListRequest{
		PrefixList: &weirv1.PrefixList{Name: "ours", Prefixes: []string{"192.0.2.77/32"}},
	}); err != nil {
		t.Fatal(err)
	}
	_, err = m.resources.DeletePrefixList(t.Context(), &weirv1.DeletePrefixListRequest{Name: "ours"})
	refusedWith(t, "a list, by a caller without a right", err, "may not change prefix list ours")
}

// What another tenant has since the call was permitted is not written over.
func TestWritesAskAgain(t *testing.T) {
	m, _, _ := blueAndRed(t, nil)
	rita := trust.WithIdentity(t.Context(), trust.Identity{
		Kind: trust.User, Name: "rita", Method: trust.ByToken, Bindings: []trust.Binding{{Tenant: "red", Role: trust.Operator}},
	})
	_, err := m.resources.ApplyVIPs(rita, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{of("red", bare("sea", "203.0.113.9"))}})
	refusedWith(t, "an apply over a VIP of another tenant", err, "vips[0].name: sea is taken")
}

// A pool that tenants share does not tell one of them of the others.
func TestPoolsHideTenants(t *testing.T) {
	m, admin, rita := blueAndRed(t, nil)
	shared := &weirv1.AddressPool{Name: "shared", Prefixes: []string{"192.0.2.64/28"}, Tenants: []string{"blue", "red"}}
	if _, err := admin.CreateAddressPool(t.Context(), &weirv1.CreateAddressPoolRequest{Pool: shared}); err != nil {
		t.Fatal(err)
	}
	one, err := rita.GetAddressPool(t.Context(), &weirv1.GetAddressPoolRequest{Name: "shared"})
	if err != nil || !slices.Equal(one.GetPool().GetTenants(), []string{"red"}) {
		t.Errorf("to red: %v, %v", one, err)
	}
	all, err := rita.ListAddressPools(t.Context(), &weirv1.ListAddressPoolsRequest{})
	if err != nil || len(all.GetPools()) != 1 || !slices.Equal(all.GetPools()[0].GetTenants(), []string{"red"}) {
		t.Errorf("all, to red: %v, %v", all, err)
	}
	if kept := m.store.State().Pools.At("shared").Tenants; !slices.Equal(kept, []string{"blue", "red"}) {
		t.Errorf("the pool is for %v now", kept)
	}
}

func TestQuotasHoldForAllWrites(t *testing.T) {
	two := uint32(2)
	_, admin, rita := blueAndRed(t, &weirv1.Quotas{Endpoints: &two, Ports: &two})
	ctx := t.Context()
	ports := func(all ...uint32) (endpoints []*weirv1.Endpoint) {
		for _, port := range all {
			endpoints = append(endpoints, &weirv1.Endpoint{Protocol: "TCP", Port: port})
		}
		return endpoints
	}
	more := of("red", bare("rose", "203.0.113.1"))
	more.Endpoints = ports(80, 81, 82)
	_, err := rita.UpdateVIP(ctx, &weirv1.UpdateVIPRequest{Name: "rose", Vip: more})
	refusedWith(t, "an update", err, "endpoints: tenant red may have 2 endpoints, and would have 3")
	refusedWith(t, "an update", err, "endpoints: tenant red may have 2 ports, and would have 3")
	_, err = rita.PatchVIP(ctx, &weirv1.PatchVIPRequest{Name: "rose", Patch: patch(t, map[string]any{"endpoints": []any{
		map[string]any{"protocol": "TCP", "port": 80}, map[string]any{"protocol": "TCP", "port": 81}, map[string]any{"protocol": "UDP", "port": 81},
	}})})
	refusedWith(t, "a patch", err, "tenant red may have 2 endpoints, and would have 3")
	_, err = rita.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{DryRun: true, Vips: []*weirv1.VIP{more}})
	refusedWith(t, "a dry run", err, "tenant red may have 2 ports, and would have 3")
	_, err = admin.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: &weirv1.VIP{Name: "wine", Tenant: "red", Address: "203.0.113.2", Endpoints: ports(1, 2)}})
	refusedWith(t, "an admin, for the tenant", err, "tenant red may have 2 endpoints, and would have 3")
	more.Endpoints = ports(80, 81)
	if _, err := rita.UpdateVIP(ctx, &weirv1.UpdateVIPRequest{Name: "rose", Vip: more}); err != nil {
		t.Errorf("up to the quota: %v", err)
	}
}
