package admission

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// newNetwork is one of tenant acme with a workload on host1, that allows tenant default.
func newNetwork(name string, vni uint32) vnet.Network {
	return vnet.Network{
		Name: name, Tenant: "acme", VNI: vni, MTU: vnet.DefaultMTU, GatewayMAC: vnet.DefaultGatewayMAC,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}, AllowedTenants: []string{"default"},
		Workloads: []vnet.Workload{
			{Name: "web", Addresses: []netip.Addr{addr("192.168.0.5")}, MAC: vnet.MAC{2, 0, 0, 0, 0, 1}, Host: "host1", Interface: "tap-" + name},
		},
	}
}

// joinedTown is town with an overlay, the network prod, and the VIP db, which is attached to prod.
func joinedTown() desired.State {
	s := WithNetworks(town(), []vnet.Network{newNetwork("prod", 100)}, newOverlay())
	s.PutVIP(attached("db", "203.0.113.30", "prod", "10.99.0.1"))
	return s
}

func newOverlay() *vnet.Overlay {
	return &vnet.Overlay{Addresses: []netip.Addr{addr("203.0.113.250")}, LocalPrefixes: vnet.DefaultLocalPrefixes}
}

func attached(name, address, network, at string) model.VIP {
	vip := newVIP(name, address, on("host2", "10.3.2.30"))
	vip.Attachments = []model.Attachment{{Network: network, Address: addr(at), Mode: model.ModeBypass}}
	return vip
}

// acme is a tenant that may have workloads on host1 and host2.
func acme(limits model.Quotas) *Tenants {
	return NewTenants(map[string]model.Tenant{"acme": {
		Name: "acme", Backends: model.TenantBackends{Hosts: []string{"host1", "host2"}}, Limits: limits,
	}})
}

// refusals are what err says, in order, each up to the length of what is wanted there.
func refusals(err error, want []string) (all []string) {
	for i, e := range model.FieldErrors(err) {
		text := e.Error()
		if i < len(want) && strings.HasPrefix(text, want[i]) {
			text = want[i]
		}
		all = append(all, text)
	}
	return all
}

// networkCase is networks that are written to joinedTown, and what the call is refused with.
type networkCase struct {
	networks []vnet.Network
	limits   model.Quotas
	want     []string
}

func admitNetworks(t *testing.T, cases map[string]networkCase) {
	t.Helper()
	for what, c := range cases {
		_, err := Networks(joinedTown(), c.networks, acme(c.limits), false, true)
		if got := refusals(err, c.want); !slices.Equal(got, c.want) {
			t.Errorf("%s: refused with %q, want %q", what, got, c.want)
		}
	}
}

// changed is n after do.
func changed(n vnet.Network, do func(*vnet.Network)) vnet.Network {
	n.Workloads = slices.Clone(n.Workloads)
	do(&n)
	return n
}

// most is a quota.
func most(n uint32) *uint32 { return &n }

func TestAdmitNetworks(t *testing.T) {
	admitNetworks(t, map[string]networkCase{
		"another":               {[]vnet.Network{newNetwork("test", 101)}, model.Quotas{}, nil},
		"the same again":        {[]vnet.Network{newNetwork("prod", 100)}, model.Quotas{Networks: most(0)}, nil},
		"another VNI":           {[]vnet.Network{newNetwork("prod", 7)}, model.Quotas{}, nil},
		"VNIs that are swapped": {[]vnet.Network{newNetwork("prod", 101), newNetwork("test", 100)}, model.Quotas{}, nil},
		"a VNI twice":           {[]vnet.Network{newNetwork("test", 100)}, model.Quotas{}, []string{"networks[0].vni: 100 is that of network prod already"}},
		"a VNI twice at once": {
			[]vnet.Network{newNetwork("test", 101), newNetwork("next", 101)},
			model.Quotas{},
			[]string{"networks[1].vni: 101 is that of network test already"},
		},
		"another tenant's VNI": {
			[]vnet.Network{changed(newNetwork("test", 100), func(n *vnet.Network) { n.Tenant, n.Workloads = "bolt", nil })},
			model.Quotas{},
			[]string{"networks[0].vni: 100 is that of another tenant's network already"},
		},
		"a name twice": {
			[]vnet.Network{newNetwork("test", 101), newNetwork("test", 102)},
			model.Quotas{},
			[]string{"networks[1].name: is test again", "networks[1].workloads[0].interface: tap-test of host1 is in network test already"},
		},
		"local prefixes": {
			[]vnet.Network{changed(newNetwork("test", 101), func(n *vnet.Network) { n.Prefixes = append(n.Prefixes, netip.MustParsePrefix("100.96.0.0/12")) })},
			model.Quotas{},
			[]string{"networks[0].prefixes[1]: 100.96.0.0/12 overlaps 100.64.0.0/10"},
		},
		"one that is not allowed any more": {
			[]vnet.Network{changed(newNetwork("prod", 100), func(n *vnet.Network) { n.AllowedTenants = nil })}, model.Quotas{}, nil,
		},
		"too many": {[]vnet.Network{newNetwork("test", 101)}, model.Quotas{Networks: most(1)}, []string{"networks[0].tenant: tenant acme may have 1 virtual networks, and would have 2"}},
	})
}

func TestAdmitWorkloads(t *testing.T) {
	admitNetworks(t, map[string]networkCase{
		"a host by its address": {
			[]vnet.Network{changed(newNetwork("test", 101), func(n *vnet.Network) { n.Workloads[0].Host = "10.2.2.2" })}, model.Quotas{}, nil,
		},
		"no host": {
			[]vnet.Network{changed(newNetwork("test", 101), func(n *vnet.Network) { n.Workloads[0].Host = "host9" })},
			model.Quotas{},
			[]string{`networks[0].workloads[0].host: no host "host9" is registered`, "networks[0].workloads[0].host: host9 is not in backends.hosts of tenant acme"},
		},
		"a mux": {
			[]vnet.Network{changed(newNetwork("test", 101), func(n *vnet.Network) { n.Workloads[0].Host = "mux1" })},
			model.Quotas{},
			[]string{"networks[0].workloads[0].host: mux1 is a mux, not a host", "networks[0].workloads[0].host: mux1 is not in"},
		},
		"another network's interface": {
			[]vnet.Network{changed(newNetwork("test", 101), func(n *vnet.Network) { n.Workloads[0].Interface = "tap-prod" })},
			model.Quotas{},
			[]string{"networks[0].workloads[0].interface: tap-prod of host1 is in network prod already"},
		},
		"an address of its VIP": {
			[]vnet.Network{changed(newNetwork("prod", 100), func(n *vnet.Network) {
				n.Prefixes = append(n.Prefixes, netip.MustParsePrefix("10.99.0.0/16"))
				n.Workloads[0].Addresses = append(slices.Clone(n.Workloads[0].Addresses), addr("10.99.0.1"))
			})},
			model.Quotas{},
			[]string{"networks[0].workloads[0].addresses[1]: 10.99.0.1 is the address of a VIP of another tenant"},
		},
		"too many workloads": {[]vnet.Network{newNetwork("test", 101)}, model.Quotas{Workloads: most(1)}, []string{"networks[0].workloads: tenant acme may have 1 workloads in virtual networks, and would have 2"}},
	})
}

// A VTEP is none of the cluster's own addresses, and the tenant's.
func TestAdmitHostsWithoutAgent(t *testing.T) {
	tenants := NewTenants(map[string]model.Tenant{"acme": {Name: "acme", Backends: model.TenantBackends{
		Hosts: []string{"host1"}, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("203.0.113.0/24")},
	}}})
	for vtep, want := range map[string][]string{
		"10.8.0.5":      nil,
		"10.2.2.2":      {"networks[0].withoutAgent.vteps[0]: 10.2.2.2 is in use already"},
		"203.0.113.30":  {"networks[0].withoutAgent.vteps[0]: 203.0.113.30 is in use already"},
		"203.0.113.250": {"networks[0].withoutAgent.vteps[0]: 203.0.113.250 is an address of the overlay"},
		"172.16.0.5":    {"networks[0].withoutAgent.vteps[0]: 172.16.0.5 is not in backends.prefixes of tenant acme"},
	} {
		n := changed(newNetwork("test", 101), func(n *vnet.Network) { n.WithoutAgent = []netip.Addr{addr(vtep)} })
		_, err := Networks(joinedTown(), []vnet.Network{n}, tenants, false, true)
		if got := refusals(err, want); !slices.Equal(got, want) {
			t.Errorf("%s is refused with %q, want %q", vtep, got, want)
		}
	}
	n := changed(newNetwork("test", 101), func(n *vnet.Network) { n.WithoutAgent = []netip.Addr{addr("10.8.0.5")} })
	if _, err := Networks(joinedTown(), []vnet.Network{n}, NewTenants(nil), true, true); err == nil {
		t.Error("a tenant without a manifest has a VTEP")
	}
}

// A tenant whose backends name no host has no workloads on any, nor has one that there is none of, if it is confined.
func TestWorkloadsOnHostsOfOthers(t *testing.T) {
	const want = "networks[0].workloads[0].host: host1 is not in backends.hosts of tenant acme"
	for _, tenants := range []*Tenants{NewTenants(nil), NewTenants(map[string]model.Tenant{"acme": {Name: "acme"}})} {
		_, err := Networks(joinedTown(), []vnet.Network{newNetwork("test", 101)}, tenants, true, true)
		if got := refusals(err, []string{want}); !slices.Equal(got, []string{want}) {
			t.Errorf("refused with %q", got)
		}
	}
	resolved, err := Networks(joinedTown(), []vnet.Network{newNetwork("test", 101)}, NewTenants(nil), false, true)
	if err != nil || resolved[0].Workloads[0].Host != "host1" {
		t.Errorf("an operator of the cluster may: %v", err)
	}
}

// When two VIPs have one address in a network that allows neither, it may allow one of them again.
func TestAllowedAgain(t *testing.T) {
	s := joinedTown()
	n := newNetwork("prod", 100)
	n.AllowedTenants = nil
	s.Networks.Put(n)
	own := attached("own", "203.0.113.31", "prod", "10.99.0.1") // default's has the address no more
	own.Tenant = "acme"
	admitted, err := VIPs(s, []model.VIP{own}, true)
	if err != nil {
		t.Fatal(err)
	}
	s.PutVIP(admitted[0])
	const want = "networks[0].allowedTenants: 10.99.0.1 would be the address of a VIP of another tenant and of VIP own"
	if got := refusals(second(Networks(s, []vnet.Network{newNetwork("prod", 100)}, acme(model.Quotas{}), false, true)), []string{want}); !slices.Equal(got, []string{want}) {
		t.Errorf("refused with %q", got)
	}
}

func second[T any](_ T, err error) error { return err }

func TestAdmitAttachments(t *testing.T) {
	none := joinedTown()
	none.Networks.Overlay = nil
	withdrawn := joinedTown()
	closed := newNetwork("prod", 100)
	closed.AllowedTenants = nil
	withdrawn.Networks.Put(closed)
	for what, c := range map[string]struct {
		state desired.State
		vip   model.VIP
		want  []string
	}{
		"another address":      {joinedTown(), attached("new", "203.0.113.31", "prod", "10.99.0.2"), nil},
		"one of the subnet":    {joinedTown(), attached("new", "203.0.113.31", "prod", "192.168.9.9"), nil},
		"the same again":       {joinedTown(), attached("db", "203.0.113.30", "prod", "10.99.0.1"), nil},
		"another VIP's":        {joinedTown(), attached("new", "203.0.113.31", "prod", "10.99.0.1"), []string{"vips[0].attachments[0].address: 10.99.0.1 is the address of VIP db in network prod already"}},
		"a workload's":         {joinedTown(), attached("new", "203.0.113.31", "prod", "192.168.0.5"), []string{"vips[0].attachments[0].address: 192.168.0.5 is the address of a workload of network prod"}},
		"no network":           {joinedTown(), attached("new", "203.0.113.31", "prd", "10.99.0.2"), []string{"vips[0].attachments[0].network: no network prd allows tenant default"}},
		"without consent":      {withdrawn, attached("new", "203.0.113.31", "prod", "10.99.0.2"), []string{"vips[0].attachments[0].network: no network prod allows tenant default"}},
		"consent is withdrawn": {withdrawn, attached("db", "203.0.113.30", "prod", "10.99.0.1"), nil},
		"and it moves there":   {withdrawn, attached("db", "203.0.113.30", "prod", "10.99.0.2"), []string{"vips[0].attachments[0].network: no network prod allows tenant default"}},
		"no overlay":           {none, attached("new", "203.0.113.31", "prod", "10.99.0.2"), []string{"vips[0].attachments[0]: the cluster has no overlay"}},
		"the overlay's own":    {joinedTown(), newVIP("new", "203.0.113.250"), []string{"vips[0].address: 203.0.113.250 is an address of the overlay"}},
		"a local address":      {joinedTown(), newVIP("new", "100.64.0.1"), []string{"vips[0].address: 100.64.0.1 is in 100.64.0.0/10"}},
		"a local backend":      {joinedTown(), newVIP("new", "203.0.113.31", on("host1", "100.127.0.1")), []string{first + ".address: 100.127.0.1 is in 100.64.0.0/10"}},
		"a local tunnel":       {joinedTown(), newVIP("new", "203.0.113.31", through(on("host1", "10.9.0.1"), "100.64.0.1")), []string{first + ".tunnel: 100.64.0.1 is in 100.64.0.0/10"}},
	} {
		_, err := VIPs(c.state, []model.VIP{c.vip}, true)
		if got := refusals(err, c.want); !slices.Equal(got, c.want) {
			t.Errorf("%s: refused with %q, want %q", what, got, c.want)
		}
	}
}

func TestQuotaOfAttachments(t *testing.T) {
	one := uint32(1)
	tenants := NewTenants(map[string]model.Tenant{"default": {Name: "default", Limits: model.Quotas{Attachments: &one}}})
	const want = "vips[0].attachments: tenant default may have 1 attachments to virtual networks, and would have 2"
	err := TenantVIPs(joinedTown(), []model.VIP{attached("new", "203.0.113.31", "prod", "10.99.0.2")}, tenants, false)
	if got := refusals(err, []string{want}); !slices.Equal(got, []string{want}) {
		t.Errorf("refused with %q", got)
	}
	if err := TenantVIPs(joinedTown(), []model.VIP{attached("db", "203.0.113.30", "prod", "10.99.0.2")}, tenants, false); err != nil {
		t.Errorf("the same one elsewhere: %v", err)
	}
}

func TestAdmitOverlay(t *testing.T) {
	for what, c := range map[string]struct {
		change func(*vnet.Overlay)
		want   []string
	}{
		"the same":         {func(*vnet.Overlay) {}, nil},
		"a VIP's":          {func(o *vnet.Overlay) { o.Addresses = []netip.Addr{addr("203.0.113.20")} }, []string{"overlays[0].addresses[0]: 203.0.113.20 is the address of VIP blog"}},
		"a node's":         {func(o *vnet.Overlay) { o.Addresses = []netip.Addr{addr("10.1.1.2")} }, []string{"overlays[0].addresses[0]: 10.1.1.2 is an address of node mux1"}},
		"around backends":  {func(o *vnet.Overlay) { o.LocalPrefixes = []netip.Prefix{netip.MustParsePrefix("10.3.0.0/16")} }, []string{"overlays[0].localPrefixes[0]: 10.3.0.0/16 has 10.3.1.20, which is the address of a backend of VIP blog"}},
		"around a network": {func(o *vnet.Overlay) { o.LocalPrefixes = []netip.Prefix{netip.MustParsePrefix("192.160.0.0/12")} }, []string{"overlays[0].localPrefixes[0]: 192.160.0.0/12 overlaps a prefix of network prod"}},
	} {
		o := *newOverlay()
		c.change(&o)
		if got := refusals(Overlay(joinedTown(), o), c.want); !slices.Equal(got, c.want) {
			t.Errorf("%s: refused with %q, want %q", what, got, c.want)
		}
	}
}

// What has VIPs stays, and tells of those alone that the caller may see.
func TestRemovalOfNetworks(t *testing.T) {
	s := joinedTown()
	for _, seen := range []bool{true, false} {
		err := NetworkRemoval(s, "prod", func(model.VIP) bool { return seen })
		if err == nil || strings.Contains(err.Error(), "db") != seen {
			t.Errorf("seen %t: %v", seen, err)
		}
	}
	if err := OverlayRemoval(s); err == nil {
		t.Error("the overlay goes although a VIP is attached")
	}
	n := newNetwork("prod", 100)
	n.AllowedTenants = nil
	s.Networks.Put(n)
	if err := NetworkRemoval(s, "prod", func(model.VIP) bool { return true }); err != nil {
		t.Errorf("it has no VIP any more: %v", err)
	}
	if err := OverlayRemoval(s); err != nil {
		t.Errorf("no VIP is attached any more: %v", err)
	}
}

func TestNodesKeepOffTheOverlay(t *testing.T) {
	for address, want := range map[string]string{
		"203.0.113.250": "addresses[0]: 203.0.113.250 is an address of the overlay",
		"100.64.0.9":    "addresses[0]: 100.64.0.9 is in 100.64.0.0/10",
	} {
		n := model.Node{Name: "host3", Role: model.RoleHost, Addresses: []netip.Addr{addr(address)}}
		if got := refusals(Node(joinedTown(), n, NewTenants(nil), nil), []string{want}); !slices.Equal(got, []string{want}) {
			t.Errorf("refused with %q", got)
		}
	}
}

// What muxes and hosts have tables for is not exceeded by all tenants together.
func TestRoomForNetworks(t *testing.T) {
	s := joinedTown()
	left := vnet.MaxAttachments
	attachments, places := network.Rows(s.Networks)
	for i := 0; left > attachments; i++ {
		vip := model.VIP{Name: fmt.Sprintf("many%d", i), Tenant: "default"}
		for j := 0; j < model.MaxAttachments && left > attachments; j++ {
			vip.Attachments = append(vip.Attachments, model.Attachment{Network: fmt.Sprintf("n%d", j), Address: addr("10.0.0.1"), Mode: model.ModeBypass})
			left--
		}
		s.PutVIP(vip)
	}
	const want = "vips: there may be 16383 attachments of all VIPs, and would be 16384"
	if got := refusals(second(VIPs(s, []model.VIP{attached("new", "203.0.113.31", "prod", "10.99.0.2")}, true)), []string{want}); !slices.Equal(got, []string{want}) {
		t.Errorf("refused with %q", got)
	}
	if _, err := VIPs(s, []model.VIP{attached("db", "203.0.113.30", "prod", "10.99.0.2")}, true); err != nil {
		t.Errorf("one in the place of another: %v", err)
	}
	many := vnet.Network{Name: "many", Tenant: "default", VNI: 7}
	for i := places; i < vnet.MaxPlaces; i++ {
		many.Workloads = append(many.Workloads, vnet.Workload{Host: fmt.Sprintf("h%d", i), Interface: "tap0"})
	}
	s.Networks.Put(many)
	n := newNetwork("new", 200)
	_, err := Networks(s, []vnet.Network{n}, NewTenants(nil), false, true)
	if err == nil || !strings.Contains(err.Error(), "networks: there may be workloads of networks in 32768 places") {
		t.Errorf("refused with %v", err)
	}
	if _, err := Networks(s, []vnet.Network{newNetwork("prod", 100)}, NewTenants(nil), false, true); err != nil {
		t.Errorf("one in the place of another: %v", err)
	}
}
