package manager

import (
	"net/netip"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// town has two hosts and a mux; tenant blue, with backends and ranges of its own and a VIP that leads to host1; tenant
// red without any, and green, that may have workloads in 10.4.0.0/24 and with host2's own addresses. It returns clients
// of an operator of each of those two, and of grey, the default tenant, which has no object.
type town struct {
	m                *Manager
	url              string
	admin            *rpc.Client
	red, green, grey *rpc.Client
	generation       model.Generation
}

func newTown(t *testing.T) *town {
	t.Helper()
	m, admin, url := secure(t, Config{})
	for name, addresses := range map[string][]string{"host1": {"10.2.1.1", "fd00:2::1"}, "host2": {"10.2.1.2", "fd00:2::2"}} {
		node := model.Node{Name: name, Role: model.RoleHost, Version: "test"}
		for _, a := range addresses {
			node.Addresses = append(node.Addresses, netip.MustParseAddr(a))
		}
		if _, err := m.nodes.Register(t.Context(), node); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{
		{Name: "red"},
		{Name: "blue", Ranges: []string{"198.51.100.0/24", "2001:db8:b::/48"}, Backends: &weirv1.TenantBackends{Prefixes: []string{"10.3.1.0/24", "fd00:3::/64"}}},
		{Name: "green", Backends: &weirv1.TenantBackends{Prefixes: []string{"10.4.0.0/24"}, Hosts: []string{"host2"}}},
		{Name: "teal"},
	}}); err != nil {
		t.Fatal(err)
	}
	sea := leads("sea", "blue", "198.51.100.1", &weirv1.Backend{Address: "10.3.1.11", Port: 8080, Host: "host1"})
	sea.Snat = &weirv1.SNAT{Workloads: []*weirv1.SNATWorkload{{Address: "10.3.1.12", Host: "host1"}}}
	// One that has no backends of its own leads to what nobody else has.
	pond := leads("pond", "teal", "192.0.2.99", &weirv1.Backend{Address: "10.9.0.1", Port: 80, Host: "host1"})
	if _, err := admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{sea, pond}}); err != nil {
		t.Fatal(err)
	}
	return &town{
		m: m, url: url, admin: admin, generation: m.store.State().Generation,
		red: operator(t, m, admin, url, "rita", "red"), green: operator(t, m, admin, url, "gina", "green"), grey: operator(t, m, admin, url, "gus", model.DefaultTenant),
	}
}

// leads is a VIP of a tenant with one endpoint.
func leads(name, tenant, address string, backends ...*weirv1.Backend) *weirv1.VIP {
	return &weirv1.VIP{Name: name, Tenant: tenant, Address: address, Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80, Backends: backends}}}
}

// leaves is a VIP that a workload leaves as.
func leaves(tenant, vip, workload, tunnel, host string) *weirv1.VIP {
	return &weirv1.VIP{Name: "rose", Tenant: tenant, Address: vip, Snat: &weirv1.SNAT{
		Workloads: []*weirv1.SNATWorkload{{Address: workload, Host: host, Tunnel: tunnel}},
	}}
}

// refuses holds that no way to write the VIP is open to red, and that no answer tells of blue.
func (town *town) refuses(t *testing.T, what string, vip *weirv1.VIP, want string) {
	t.Helper()
	for how, call := range map[string]func() error{
		"create": func() error {
			return failure(town.red.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: vip}))
		},
		"apply": func() error {
			return failure(town.red.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}))
		},
		"dry run": func() error {
			return failure(town.red.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}, DryRun: true}))
		},
	} {
		err := call()
		refusedWith(t, what+", by "+how, err, want)
		if err != nil && (strings.Contains(err.Error(), "blue") || strings.Contains(err.Error(), "sea")) {
			t.Errorf("%s tells of the other tenant: %v", what, err)
		}
	}
}

// A tenant's operator tries to reach what is another tenant's, or a node's.
func TestHostileTenant(t *testing.T) {
	town := newTown(t)
	const v4, v6 = "203.0.113.1", "2001:db8:a::1"
	at := func(vip, address, tunnel, host string) *weirv1.VIP {
		return leads("rose", "red", vip, &weirv1.Backend{Address: address, Port: 22, Host: host, Tunnel: tunnel})
	}
	attempts := map[string]struct {
		vip  *weirv1.VIP
		want string
	}{
		"another tenant's workload":                {at(v4, "10.3.1.11", "", "host1"), "is another tenant's"},
		"one that only leaves":                     {at(v4, "10.3.1.12", "", "host1"), "is another tenant's"},
		"one that is in no VIP yet":                {at(v4, "10.3.1.77", "", "host1"), "is another tenant's"},
		"one of IPv6":                              {at(v6, "fd00:3::11", "", "host1"), "is another tenant's"},
		"a workload of a tenant without backends":  {at(v4, "10.9.0.1", "", "host1"), "is another tenant's"},
		"another tenant's, by a tunnel of its own": {at(v4, "10.3.1.11", "10.5.0.1", "host1"), "is another tenant's"},
		"a tunnel to another tenant's":             {at(v4, "10.5.0.1", "10.3.1.77", "host1"), "tunnel: 10.3.1.77 is another tenant's"},
		"a tunnel to one of IPv6":                  {at(v4, "10.5.0.1", "fd00:3::11", "host1"), "tunnel: fd00:3::11 is another tenant's"},
		"a tunnel to another host":                 {at(v4, "10.5.0.1", "10.2.1.2", "host1"), "is an address of node host2"},
		"a host's own address":                     {at(v4, "10.2.1.1", "", "host1"), "is an address of node host1"},
		"a host's own address by its address":      {at(v4, "10.2.1.1", "", "10.2.1.1"), "is an address of node host1"},
		"a host's own of IPv6":                     {at(v6, "fd00:2::1", "", "host1"), "is an address of node host1"},
		"a host's own by a tunnel of its own":      {at(v4, "10.2.1.1", "10.5.0.1", "host1"), "is an address of node host1"},
		"to leave with its workload":               {leaves("red", v4, "10.3.1.11", "", "host1"), "is another tenant's"},
		"to leave with its SNAT client":            {leaves("red", v4, "10.3.1.12", "", "host1"), "leaves as a VIP of another tenant already"},
		"to leave by its tunnel":                   {leaves("red", v4, "10.5.0.1", "10.3.1.77", "host1"), "is another tenant's"},
		"to leave as the host itself":              {leaves("red", v4, "10.2.1.1", "", "host1"), "is an address of node host1"},
		"its workload's address as a VIP":          {at("10.3.1.77", "10.5.0.1", "", "host1"), "address: 10.3.1.77 is another tenant's"},
		"an address in its ranges":                 {at("198.51.100.7", "10.5.0.1", "", "host1"), "address: 198.51.100.7 is another tenant's"},
		"an address of IPv6 in its ranges":         {at("2001:db8:b::7", "fd00:5::1", "", "host1"), "address: 2001:db8:b::7 is another tenant's"},
	}
	for what, c := range attempts {
		town.refuses(t, what, c.vip, c.want)
	}
	if after := town.m.store.State().Generation; after != town.generation {
		t.Errorf("the generation went from %d to %d", town.generation, after)
	}
	town.lets(t, at)
}

// lets holds what red may do, with backends of its own VIP rose, and that it comes to no other by a change of that.
func (town *town) lets(t *testing.T, at func(vip, address, tunnel, host string) *weirv1.VIP) {
	t.Helper()
	const v4 = "203.0.113.1"
	// What is nobody's it may have, with its host's address as a tunnel, but not by way of a patch of that.
	for _, vip := range []*weirv1.VIP{at(v4, "10.5.0.1", "10.2.1.1", "host1"), leaves("red", v4, "10.5.0.1", "10.5.0.2", "host1"), at(v4, "10.5.0.1", "", "host2")} {
		if _, err := town.red.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
			t.Errorf("what is nobody's: %v", err)
		}
	}
	_, err := town.red.PatchVIP(t.Context(), &weirv1.PatchVIPRequest{Name: "rose", Patch: patch(t, map[string]any{"endpoints": []any{map[string]any{
		"protocol": "TCP", "port": 80, "backends": []any{map[string]any{"address": "10.3.1.11", "port": 22, "host": "host1"}},
	}}})})
	refusedWith(t, "a patch", err, "is another tenant's")
	_, err = town.red.UpdateVIP(t.Context(), &weirv1.UpdateVIPRequest{Name: "rose", Vip: at(v4, "10.3.1.11", "", "host1")})
	refusedWith(t, "an update", err, "is another tenant's")
}

// Tenants that name backends have those alone; nodes' own addresses are theirs by the node's name alone; and who is
// bound to a tenant is held to all this even where that has no object.
func TestTenantsHaveTheBackendsThatTheyName(t *testing.T) {
	town := newTown(t)
	at := func(tenant, address, tunnel, host string) *weirv1.VIP {
		return leads("leaf", tenant, "203.0.113.9", &weirv1.Backend{Address: address, Port: 22, Host: host, Tunnel: tunnel})
	}
	for what, c := range map[string]struct {
		client *rpc.Client
		vip    *weirv1.VIP
		want   string
	}{
		"outside":                    {town.green, at("green", "10.5.0.1", "", "host1"), "is not in the backends of tenant green: 10.4.0.0/24, own addresses of host2"},
		"a tunnel outside":           {town.green, at("green", "10.4.0.1", "10.5.0.1", "host1"), "tunnel: 10.5.0.1 is not in the backends of tenant green"},
		"a workload outside":         {town.green, leaves("green", "203.0.113.9", "10.5.0.1", "", "host1"), "workloads[0].address: 10.5.0.1 is not in the backends of tenant green"},
		"another host's own":         {town.green, at("green", "10.2.1.1", "", "host1"), "is an address of node host1"},
		"a node's, without objects":  {town.grey, at(model.DefaultTenant, "10.2.1.1", "", "host1"), "is an address of node host1"},
		"another's, without objects": {town.grey, at(model.DefaultTenant, "10.3.1.11", "", "host1"), "is another tenant's"},
	} {
		_, err := c.client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{c.vip}})
		refusedWith(t, what, err, c.want)
	}
	for what, vip := range map[string]*weirv1.VIP{
		"its own": at("green", "10.4.0.1", "", "host1"), "a tunnel of its own": at("green", "10.4.0.1", "10.4.0.2", "host1"),
		"its host's": at("green", "10.2.1.2", "", "host2"),
	} {
		if _, err := town.green.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	// An operator of the cluster is held to the tenant's, too.
	_, err := town.admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{at("green", "10.3.1.11", "", "host1")}})
	refusedWith(t, "an admin, for the tenant", err, "is not in the backends of tenant green")
}
