package admission

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// tenantVIP is a VIP of tenant red with endpoints of these ports, each with the backends.
func tenantVIP(name string, ports []uint16, backends ...model.Backend) model.VIP {
	vip := model.VIP{Name: name, Tenant: "red", Address: addr("203.0.113.9")}
	for _, port := range ports {
		vip.Endpoints = append(vip.Endpoints, model.Endpoint{Protocol: model.TCP, Port: port, Backends: backends})
	}
	return vip
}

// inSwitches is a VIP with a backend on each of two tunnels, in these switches.
func inSwitches(name string, switches ...string) model.VIP {
	vip := tenantVIP(name, []uint16{80, 443}, on("host1", "10.3.1.20"), on("host2", "10.3.2.20"))
	vip.Hardware = &model.Hardware{Placement: model.PlacementRequire, Switches: switches}
	return vip
}

func TestQuotasOfTenants(t *testing.T) {
	limit := func(n uint32) *uint32 { return &n }
	auto := func(spread int) model.VIP {
		vip := inSwitches("new")
		vip.Hardware = &model.Hardware{Placement: model.PlacementAuto, Spread: spread}
		return vip
	}
	b := on("host1", "10.3.1.20")
	s := state([]model.VIP{tenantVIP("old", []uint16{80, 443}, b)}) // 1 VIP, 2 endpoints, 2 backends, 2 ports
	for what, c := range map[string]struct {
		limits model.Quotas
		vip    model.VIP
		want   string
	}{
		"VIPs":      {model.Quotas{VIPs: limit(1)}, tenantVIP("new", nil), "vips[0].tenant: tenant red may have 1 VIPs, and would have 2"},
		"endpoints": {model.Quotas{Endpoints: limit(3)}, tenantVIP("new", []uint16{1, 2}), "vips[0].endpoints: tenant red may have 3 endpoints, and would have 4"},
		"backends":  {model.Quotas{Backends: limit(3)}, tenantVIP("new", []uint16{1}, b, b), "vips[0].endpoints: tenant red may have 3 backends, and would have 4"},
		"ports":     {model.Quotas{Ports: limit(2)}, tenantVIP("new", []uint16{1}), "vips[0].endpoints: tenant red may have 2 ports, and would have 3"},
		"all ports": {
			model.Quotas{Ports: limit(1000)},
			tenantVIP("new", []uint16{model.AllPorts}),
			"vips[0].endpoints: tenant red may have 1000 ports, and would have 65537",
		},
		"switches":            {model.Quotas{SwitchHosts: limit(1)}, inSwitches("new", "sw1", "sw2"), "vips[0].hardware.switches: tenant red may have 1 places in switches, and would have 2"},
		"tunnels":             {model.Quotas{SwitchTunnels: limit(3)}, inSwitches("new", "sw1", "sw2"), "vips[0].hardware.switches: tenant red may have 3 tunnels in switches, and would have 4"},
		"chosen switches":     {model.Quotas{SwitchHosts: limit(0)}, auto(0), "vips[0].hardware.switches: tenant red may have 0 places in switches, and would have 1"},
		"spread":              {model.Quotas{SwitchTunnels: limit(5)}, auto(3), "vips[0].hardware.switches: tenant red may have 5 tunnels in switches, and would have 6"},
		"spread, up to it":    {model.Quotas{SwitchHosts: limit(3), SwitchTunnels: limit(6)}, auto(3), ""},
		"as many switches":    {model.Quotas{SwitchHosts: limit(2), SwitchTunnels: limit(4)}, inSwitches("new", "sw1", "sw2"), ""},
		"up to the limit":     {model.Quotas{VIPs: limit(2), Endpoints: limit(4), Ports: limit(4)}, tenantVIP("new", []uint16{1, 2}), ""},
		"none":                {model.Quotas{}, tenantVIP("new", []uint16{model.AllPorts}, b, b), ""},
		"the same again":      {model.Quotas{Endpoints: limit(2)}, tenantVIP("old", []uint16{1, 2}), ""},
		"more in one":         {model.Quotas{Endpoints: limit(2)}, tenantVIP("old", []uint16{1, 2, 3}), "may have 2 endpoints, and would have 3"},
		"less, but too many":  {model.Quotas{Endpoints: limit(0)}, tenantVIP("old", []uint16{1}), ""},
		"as much, over limit": {model.Quotas{VIPs: limit(0), Ports: limit(1)}, tenantVIP("old", []uint16{1, 2}), ""},
	} {
		err := TenantVIPs(s, []model.VIP{c.vip}, NewTenants(map[string]model.Tenant{"red": {Name: "red", Limits: c.limits}}), false)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
}

// A TIP is an address that the network brings to a VIP, as its own is: a tenant has it in its ranges, or an operator has
// declared it for TIPs of the tenant's VIPs.
func TestATenantsTIPsAreInItsRanges(t *testing.T) {
	tenants := map[string]model.Tenant{
		"red":  {Name: "red", Ranges: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
		"blue": {Name: "blue", Ranges: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/28")}},
		"grey": {Name: "grey"},
	}
	for _, c := range []struct{ tenant, tip, want string }{
		{"red", "203.0.113.200", ""},
		{"red", "198.51.100.1", "tips[0].address: 198.51.100.1 is not in the ranges of tenant red: 203.0.113.0/24"},
		{"red", "203.0.114.1", ""},
		{"blue", "203.0.114.1", "tips[0].address: 203.0.114.1 is not in the ranges of tenant blue: 192.0.2.0/28"},
		{"grey", "192.0.2.1", "tips[0].address: 192.0.2.1 is another tenant's"},
		{"grey", "203.0.114.1", ""},
		{"grey", "203.0.114.9", "tips[0].address: 203.0.114.9 is in the tips of no address pool for tenant grey, which has no ranges"},
		{"grey", "203.0.115.1", "tips[0].address: 203.0.115.1 is in the tips of no address pool for tenant grey, which has no ranges"},
	} {
		ours, others := pool("ours", "203.0.114.0/24"), pool("others", "203.0.115.0/24")
		ours.TIPs, ours.Tenants = []netip.Prefix{netip.MustParsePrefix("203.0.114.0/29")}, []string{"red", "grey"}
		others.TIPs, others.Tenants = others.Prefixes, []string{"blue"}
		s := With(state(nil), nil, []model.AddressPool{ours, others})
		o := ownership{State: s, tenants: NewTenants(tenants), tenant: tenants[c.tenant]}
		vip := behind(newVIP("rose", "203.0.113.9"), c.tip)
		switch c.tenant {
		case "grey":
			vip.Address = addr("198.51.100.9")
		case "blue":
			vip.Address = addr("192.0.2.9")
		}
		o.vip("vip", vip)
		got := ""
		for _, err := range model.FieldErrors(o.errs.Err()) {
			got += strings.TrimPrefix(err.Error(), "vip.hardware.")
		}
		if got != c.want {
			t.Errorf("tenant %s, TIP %s: %q, want %q", c.tenant, c.tip, got, c.want)
		}
	}
}

// Places that managers chose beyond what an owner asks for count while switches share the VIP's backends.
func TestQuotasCountSplits(t *testing.T) {
	limit := func(n uint32) *uint32 { return &n }
	auto := func(name string) model.VIP {
		vip := inSwitches(name)
		vip.Hardware = &model.Hardware{Placement: model.PlacementAuto}
		return vip
	}
	old := auto("old")
	for what, c := range map[string]struct {
		chosen int
		split  bool
		limits model.Quotas
		vip    model.VIP
		want   string
	}{
		"one switch":               {1, false, model.Quotas{SwitchHosts: limit(2)}, auto("new"), ""},
		"four have parts":          {4, true, model.Quotas{SwitchHosts: limit(4)}, auto("new"), "tenant red may have 4 places in switches, and would have 5"},
		"four have parts, of five": {4, true, model.Quotas{SwitchHosts: limit(5), SwitchTunnels: limit(7)}, auto("new"), ""},
		"tunnels of parts":         {4, true, model.Quotas{SwitchTunnels: limit(6)}, auto("new"), "tenant red may have 6 tunnels in switches, and would have 7"},
		"it is written again":      {4, true, model.Quotas{SwitchHosts: limit(1)}, old, ""},
		"it leaves":                {4, true, model.Quotas{SwitchHosts: limit(1)}, tenantVIP("old", nil), ""},
		"whole in four":            {4, false, model.Quotas{SwitchHosts: limit(2)}, auto("new"), ""},
	} {
		s := state([]model.VIP{old})
		chosen := []string{"sw1", "sw2", "sw3", "sw4"}[:c.chosen]
		s.Placements.Put(old.Address, placementpolicy.State{VIP: "old", Tenant: "red", Chosen: chosen, Split: c.split})
		if c.vip.Name == "new" {
			c.vip.Address = addr("203.0.113.10")
		}
		err := TenantVIPs(s, []model.VIP{c.vip}, NewTenants(map[string]model.Tenant{"red": {Name: "red", Limits: c.limits}}), false)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: got %v, want %q", what, err, c.want)
		}
	}
	s := state([]model.VIP{old})
	s.Placements.Put(old.Address, placementpolicy.State{VIP: "old", Chosen: []string{"sw1", "sw2"}, Split: true})
	s.Placements.Put(old.Address, placementpolicy.State{VIP: "old", Chosen: []string{"sw1"}})
	if u := s.Usage("red"); u.SwitchHosts != 1 || u.SwitchTunnels != 2 {
		t.Errorf("after the split %+v", u)
	}
}

// Tenants are not told what others call their VIPs and pools.
func TestRefusalsNameNothingOfOtherTenants(t *testing.T) {
	blue := newVIP("sea", "203.0.113.20", on("host1", "10.3.1.20"))
	blue.Tenant = "blue"
	s := state([]model.VIP{blue}, model.Node{Name: "host1", Role: model.RoleHost}, model.Node{Name: "host2", Role: model.RoleHost})
	hidden := pool("lagoon", "192.0.2.0/28")
	hidden.Tenants = []string{"blue"}
	s = With(s, nil, []model.AddressPool{hidden})
	for what, vip := range map[string]model.VIP{
		"its address":              newVIP("rose", "203.0.113.20"),
		"its backend's address":    newVIP("rose", "10.3.1.20"),
		"a backend of its address": newVIP("rose", "203.0.113.21", on("host1", "203.0.113.20")),
		"a tunnel of its address":  newVIP("rose", "203.0.113.21", through(on("host1", "10.3.1.21"), "203.0.113.20")),
		"its host's tunnel":        newVIP("rose", "203.0.113.21", on("host2", "10.3.1.20")),
		"an address of its pool":   newVIP("rose", "192.0.2.1"),
		"a pool of no such name":   pooled("rose", "lagun"),
	} {
		vip.Tenant = "red"
		_, err := VIPs(s, []model.VIP{vip}, true)
		if err == nil {
			t.Errorf("%s: admitted", what)
			continue
		}
		for _, name := range []string{"sea", "lagoon"} {
			if strings.Contains(err.Error(), name) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}
