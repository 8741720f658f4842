package admission

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/placementpolicy"
)

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

// town has two hosts, a mux and the VIP blog.
func town() desired.State {
	return state([]model.VIP{newVIP("blog", "203.0.113.20", on("host1", "10.3.1.20"))},
		model.Node{Name: "host1", Role: model.RoleHost, Addresses: []netip.Addr{addr("10.2.1.2"), addr("2001:db8:2::2")}},
		model.Node{Name: "host2", Role: model.RoleHost, Addresses: []netip.Addr{addr("10.2.2.2")}},
		model.Node{Name: "mux1", Role: model.RoleMux, Addresses: []netip.Addr{addr("10.1.1.2")}})
}

func state(vips []model.VIP, nodes ...model.Node) desired.State {
	var s desired.State
	for _, n := range nodes {
		s.PutNode(n)
	}
	for _, vip := range vips {
		s.PutVIP(vip)
	}
	return s
}

func on(host, address string) model.Backend {
	return model.Backend{Address: addr(address), Port: 80, Host: host, Weight: 1}
}

func through(b model.Backend, tunnel string) model.Backend {
	b.Tunnel = addr(tunnel)
	return b
}

func newVIP(name, address string, backends ...model.Backend) model.VIP {
	return model.VIP{
		Name: name, Tenant: "default", Address: addr(address),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: backends}},
	}
}

// behind is a VIP with TIPs.
func behind(vip model.VIP, tips ...string) model.VIP {
	vip.Hardware = &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw"}}
	for i, tip := range tips {
		vip.Hardware.TIPs = append(vip.Hardware.TIPs, model.TIP{Switch: fmt.Sprint("sw", i), Address: addr(tip)})
	}
	return vip
}

// first is the path of the first backend of the first VIP.
const first = "vips[0].endpoints[0].backends[0]"

var admissions = []struct {
	name string
	vips []model.VIP
	want []string // all refusals, in order; none: admitted
}{
	{"fits", []model.VIP{newVIP("shop", "203.0.113.10", on("host1", "10.3.1.10"), on("host2", "10.3.2.10"))}, nil},
	{"behind TIPs", []model.VIP{behind(newVIP("shop", "203.0.113.10"), "192.0.2.1"), newVIP("other", "203.0.113.11")}, nil},
	{
		"TIPs of others",
		[]model.VIP{
			behind(newVIP("shop", "203.0.113.10"), "203.0.113.20", "10.3.1.20", "10.2.1.2", "192.0.2.1"),
			behind(newVIP("other", "203.0.113.11", on("host1", "192.0.2.2")), "192.0.2.1", "192.0.2.2"),
		},
		[]string{
			"vips[0].hardware.tips[0].address: 203.0.113.20 is an address of VIP blog already",
			"vips[0].hardware.tips[1].address: 10.3.1.20 is the address of a backend of VIP blog",
			"vips[0].hardware.tips[2].address: 10.2.1.2 is an address of node host1",
			"vips[0].hardware.tips[3].address: 192.0.2.1 is an address of VIP other already",
			"vips[1].hardware.tips[0].address: 192.0.2.1 is an address of VIP shop already",
			"vips[1].endpoints[0].backends[0].address: 192.0.2.2 is a TIP of VIP other",
		},
	},
	{"replaces itself", []model.VIP{newVIP("blog", "203.0.113.20", on("host2", "10.3.1.20"))}, nil},
	{"moves its address", []model.VIP{newVIP("blog", "203.0.113.21"), newVIP("shop", "203.0.113.20")}, nil},
	{"same DIP for two VIPs", []model.VIP{newVIP("shop", "203.0.113.10", on("host1", "10.3.1.20"))}, nil},
	{"the host's own address", []model.VIP{newVIP("shop", "203.0.113.10", on("host1", "10.2.1.2"))}, nil},
	{
		"name twice",
		[]model.VIP{newVIP("shop", "203.0.113.10"), newVIP("shop", "203.0.113.11")},
		[]string{"vips[1].name: is shop again, as vips[0]"},
	},
	{
		"address taken",
		[]model.VIP{newVIP("shop", "203.0.113.20")},
		[]string{"vips[0].address: 203.0.113.20 is the address of VIP blog already"},
	},
	{
		"address twice in one apply",
		[]model.VIP{newVIP("a", "203.0.113.1"), newVIP("b", "203.0.113.1")},
		[]string{
			"vips[0].address: 203.0.113.1 is the address of VIP b already",
			"vips[1].address: 203.0.113.1 is the address of VIP a already",
		},
	},
	{
		"address of a backend",
		[]model.VIP{newVIP("shop", "10.3.1.20")},
		[]string{"vips[0].address: 10.3.1.20 is the address of a backend of VIP blog"},
	},
	{
		"address of a node",
		[]model.VIP{newVIP("shop", "10.1.1.2")},
		[]string{"vips[0].address: 10.1.1.2 is an address of node mux1"},
	},
	{
		"backend is a VIP",
		[]model.VIP{newVIP("shop", "203.0.113.10", on("host1", "203.0.113.20"))},
		[]string{first + ".address: 203.0.113.20 is the address of VIP blog"},
	},
	{
		"tunnel is a VIP",
		[]model.VIP{newVIP("shop", "203.0.113.10", through(on("host1", "10.3.1.9"), "203.0.113.20"))},
		[]string{first + ".tunnel: 203.0.113.20 is the address of VIP blog"},
	},
	{
		"unknown host",
		[]model.VIP{newVIP("shop", "203.0.113.10", on("host3", "10.3.1.9"))},
		[]string{first + `.host: no host "host3" is registered: there are host1, host2`},
	},
	{
		"unknown address of a host",
		[]model.VIP{newVIP("shop", "203.0.113.10", on("10.2.9.9", "10.3.1.9"))},
		[]string{first + `.host: no host "10.2.9.9" is registered: there are host1, host2`},
	},
	{
		"mux as host",
		[]model.VIP{newVIP("shop", "203.0.113.10", on("mux1", "10.3.1.9"))},
		[]string{first + ".host: mux1 is a mux, not a host"},
	},
	{
		"tunnel of another VIP's other host",
		[]model.VIP{newVIP("shop", "203.0.113.10", on("host2", "10.3.1.20"))},
		[]string{first + ".address: 10.3.1.20 leads to host host1, by VIP blog: an address belongs to one host"},
	},
	{
		"tunnel is another node's address",
		[]model.VIP{newVIP("shop", "203.0.113.10", through(on("host1", "10.3.1.9"), "10.2.2.2"))},
		[]string{first + ".tunnel: 10.2.2.2 is an address of node host2, not of host1"},
	},
}

// A switch has one entry of an address: what a VIP gave up is another's when no switch has it any more.
func TestATIPIsAnothersWhenItIsGone(t *testing.T) {
	s := town()
	s.PutVIP(behind(newVIP("shop", "203.0.113.10"), "192.0.2.1"))
	held := placementpolicy.State{VIP: "shop", Tenant: "default", Places: map[string]placementpolicy.Place{
		"sw0": {Phase: placementpolicy.Hardware, TIP: addr("192.0.2.1")},
	}}
	s.Placements.Put(addr("203.0.113.10"), held)
	given := []model.VIP{behind(newVIP("shop", "203.0.113.10"), "192.0.2.2"), behind(newVIP("other", "203.0.113.11"), "192.0.2.1")}
	const still = "192.0.2.1 is still in a switch for VIP shop: apply this when it is gone from there"
	if _, err := VIPs(s, given, true); err == nil || err.Error() != "vips[1].hardware.tips[0].address: "+still {
		t.Errorf("it is given to another VIP: %v", err)
	}
	if _, err := VIPs(s, []model.VIP{given[0], newVIP("other", "192.0.2.1")}, true); err == nil {
		t.Error("it becomes another VIP's own address")
	}
	if _, err := VIPs(s, given[:1], true); err != nil {
		t.Errorf("its own VIP may not give it up: %v", err)
	}
	held.Places = map[string]placementpolicy.Place{"sw0": {Phase: placementpolicy.Leaving, TIP: addr("192.0.2.1")}}
	s.Placements.Put(addr("203.0.113.10"), held)
	if _, err := VIPs(s, given, true); err != nil {
		t.Errorf("no switch has it: %v", err)
	}
}

func TestVIPs(t *testing.T) {
	for _, c := range admissions {
		t.Run(c.name, func(t *testing.T) {
			_, err := VIPs(town(), c.vips, true)
			var got []string
			for _, e := range model.FieldErrors(err) {
				got = append(got, e.Error())
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("refused %q\nwant %q", got, c.want)
			}
		})
	}
}

func TestHostsByAddressBecomeNames(t *testing.T) {
	given := newVIP("shop", "203.0.113.10", on("10.2.2.2", "10.3.2.9"), on("2001:db8:2::2", "10.3.1.9"))
	admitted, err := VIPs(town(), []model.VIP{given}, true)
	if err != nil {
		t.Fatal(err)
	}
	backends := admitted[0].Endpoints[0].Backends
	if backends[0].Host != "host2" || backends[1].Host != "host1" {
		t.Errorf("hosts are %s and %s, want host2 and host1", backends[0].Host, backends[1].Host)
	}
	if given.Endpoints[0].Backends[0].Host != "10.2.2.2" {
		t.Error("VIPs changed what it was given")
	}
}

func TestNode(t *testing.T) {
	tenants := NewTenants(map[string]model.Tenant{"red": {Name: "red", Ranges: []netip.Prefix{netip.MustParsePrefix("2001:db8:a::/48")}}})
	host := func(name string, addresses ...string) model.Node {
		n := model.Node{Name: name, Role: model.RoleHost}
		for _, a := range addresses {
			n.Addresses = append(n.Addresses, addr(a))
		}
		return n
	}
	for _, c := range []struct {
		node    model.Node
		allowed []netip.Prefix
		want    string
	}{
		{node: host("host1", "10.2.1.9")},
		{node: host("host1", "10.3.1.20")},
		{node: host("host3", "10.2.3.2", "2001:db8:3::2")},
		{node: model.Node{Name: "host1", Role: model.RoleMux}, want: "name: host1 is registered as a host already: take another --name"},
		{node: host("evil", "203.0.113.20"), want: "addresses[0]: 203.0.113.20 is the address of VIP blog"},
		{node: host("evil", "10.3.1.20"), want: "addresses[0]: 10.3.1.20 leads to a backend of VIP blog on host1"},
		{node: host("evil", "10.3.1.21"), want: "addresses[0]: 10.3.1.21 leads to a backend of VIP blog on host1"},
		{node: host("evil", "10.2.9.9", "10.2.1.2"), want: "addresses[1]: 10.2.1.2 is an address of node host1: if that is gone, weir delete node host1"},
		{node: host("evil", "2001:db8:2::2"), want: "addresses[0]: 2001:db8:2::2 is an address of node host1: if that is gone, weir delete node host1"},
		{node: host("evil", "10.1.1.2"), want: "addresses[0]: 10.1.1.2 is an address of node mux1: if that is gone, weir delete node mux1"},
		{node: host("evil", "10.9.0.7"), want: "addresses[0]: 10.9.0.7 is in a prefix of mux mux1"},
		{node: host("evil", "192.0.2.3"), want: "addresses[0]: 192.0.2.3 is of pool lagoon: exclude it there, or let the node join by a token with --addresses"},
		{node: host("evil", "2001:db8:a::3"), want: "addresses[0]: 2001:db8:a::3 is in the ranges of a tenant: let the node join by a token with --addresses"},
		{node: host("host3", "192.0.2.3"), allowed: []netip.Prefix{netip.MustParsePrefix("192.0.2.3/32")}},
		{node: host("evil", "10.2.1.2"), allowed: []netip.Prefix{netip.MustParsePrefix("10.2.0.0/16")}, want: "addresses[0]: 10.2.1.2 is an address of node host1: if that is gone, weir delete node host1"},
		{node: host("evil", "10.2.3.3", "10.4.0.1"), allowed: []netip.Prefix{netip.MustParsePrefix("10.2.3.0/24")}, want: "addresses[1]: 10.4.0.1 is not in what evil joined for: 10.2.3.0/24"},
		{node: spreadMux("mux2", "10.2.0.0/16"), want: "prefixes[0]: 10.2.0.0/16 has 10.2.1.2, an address of node host1"},
		{node: spreadMux("mux2", "10.9.0.128/25"), want: "prefixes[0]: 10.9.0.128/25 overlaps source addresses of mux mux1"},
		{node: spreadMux("mux2", "10.8.0.0/24"), allowed: []netip.Prefix{netip.MustParsePrefix("10.8.0.0/25")}, want: "prefixes[0]: 10.8.0.0/24 is not in what mux2 joined for: 10.8.0.0/25"},
		{node: spreadMux("mux1", "10.9.0.0/24")},
	} {
		s := With(town(), nil, []model.AddressPool{pool("lagoon", "192.0.2.0/28")})
		s.PutNode(spreadMux("mux1", "10.9.0.0/24", "10.1.1.2"))
		s.PutVIP(newVIP("blog", "203.0.113.20", on("host1", "10.3.1.20"), through(on("host1", "10.3.1.21"), "10.5.0.1")))
		got := ""
		if err := Node(s, c.node, tenants, c.allowed); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.node, got, c.want)
		}
	}
}

// spreadMux is a mux that spreads its sources over a prefix.
func spreadMux(name, prefix string, addresses ...string) model.Node {
	n := model.Node{Name: name, Role: model.RoleMux, Prefixes: []netip.Prefix{netip.MustParsePrefix(prefix)}}
	for _, a := range addresses {
		n.Addresses = append(n.Addresses, addr(a))
	}
	return n
}

// Answers of backends to NAT addresses are one mux's: nobody else has them, and none of them is anything else.
func TestNATPrefixesAreOneMuxes(t *testing.T) {
	for _, c := range []struct {
		node    model.Node
		allowed []netip.Prefix
		want    string
	}{
		{node: natMux("mux2", "10.66.2.0/24")},
		{node: natMux("mux2", "10.66.1.128/25"), want: "natPrefixes[0]: 10.66.1.128/25 overlaps a NAT prefix of mux mux1"},
		{node: natMux("mux2", "10.9.0.128/25"), want: "natPrefixes[0]: 10.9.0.128/25 overlaps source addresses of mux mux1"},
		{node: spreadMux("mux2", "10.66.0.0/16"), want: "prefixes[0]: 10.66.0.0/16 overlaps a NAT prefix of mux mux1"},
		{node: natMux("mux2", "10.2.0.0/16"), want: "natPrefixes[0]: 10.2.0.0/16 has 10.2.1.2, an address of node host1"},
		{node: natMux("mux2", "203.0.113.0/24"), want: "natPrefixes[0]: 203.0.113.0/24 has 203.0.113.20, an address of VIP blog or of its backends"},
		{node: natMux("mux2", "192.0.2.0/29"), want: "natPrefixes[0]: 192.0.2.0/29 overlaps pool lagoon: exclude it there, or let the mux join by a token with --addresses"},
		{node: natMux("mux2", "10.1.2.0/24", "10.1.2.2"), want: "natPrefixes[0]: 10.1.2.0/24 has source addresses of the mux itself"},
		{node: natMux("mux2", "100.64.0.0/16"), want: "natPrefixes[0]: 100.64.0.0/16 overlaps 100.64.0.0/10, by which servers know clients of virtual networks"},
		{node: natMux("mux2", "10.255.0.0/24"), want: "natPrefixes[0]: 10.255.0.0/24 has an address of the overlay"},
		{node: neighborMux("mux2", "203.0.113.0/24")},
		{node: neighborMux("mux2", "203.0.113.0/24"), allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}},
		{node: neighborMux("mux2", "203.0.113.0/24"), allowed: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}, want: "neighborPrefixes[0]: 203.0.113.0/24 is not in what mux2 joined for: 203.0.113.0/25"},
		{node: natMux("mux2", "10.66.2.0/24"), allowed: []netip.Prefix{netip.MustParsePrefix("10.66.2.0/25")}, want: "natPrefixes[0]: 10.66.2.0/24 is not in what mux2 joined for: 10.66.2.0/25"},
		{node: model.Node{Name: "evil", Role: model.RoleHost, Addresses: []netip.Addr{addr("10.66.1.7")}}, want: "addresses[0]: 10.66.1.7 is in a prefix of mux mux1"},
	} {
		s := With(town(), nil, []model.AddressPool{pool("lagoon", "192.0.2.0/28")})
		mux := spreadMux("mux1", "10.9.0.0/24", "10.1.1.2")
		mux.NATPrefixes = []netip.Prefix{netip.MustParsePrefix("10.66.1.0/24")}
		s.PutNode(mux)
		s.Networks.Overlay = &vnet.Overlay{Addresses: []netip.Addr{addr("10.255.0.1")}, LocalPrefixes: vnet.DefaultLocalPrefixes}
		s.PutVIP(newVIP("blog", "203.0.113.20", on("host1", "10.3.1.20")))
		got := ""
		if err := Node(s, c.node, NewTenants(nil), c.allowed); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%+v: got %q, want %q", c.node, got, c.want)
		}
	}
}

// natMux is a mux with a NAT prefix.
func natMux(name, prefix string, addresses ...string) model.Node {
	n := spreadMux(name, prefix, addresses...)
	n.Prefixes, n.NATPrefixes = nil, n.Prefixes
	return n
}

// neighborMux is a mux that answers ARP and NDP for VIPs in a prefix.
func neighborMux(name, prefix string) model.Node {
	n := spreadMux(name, prefix)
	n.Prefixes, n.NeighborPrefixes = nil, n.Prefixes
	return n
}

func TestKnownHostsAreListedBriefly(t *testing.T) {
	if got := list(strings.Split("abcdefghijkl", "")); !strings.HasSuffix(got, "j and 2 more") {
		t.Errorf("got %q", got)
	}
}

func TestSpreadSourcesAreNobodysAddress(t *testing.T) {
	mux := model.Node{
		Name: "mux1", Role: model.RoleMux, Addresses: []netip.Addr{netip.MustParseAddr("10.1.1.2")},
		Prefixes: []netip.Prefix{netip.MustParsePrefix("10.9.0.0/24")},
	}
	host := model.Node{Name: "host1", Role: model.RoleHost, Addresses: []netip.Addr{netip.MustParseAddr("10.2.1.2")}}
	s := state(nil, mux, host)
	for _, c := range []struct {
		vip  model.VIP
		want string
	}{
		{newVIP("shop", "10.9.0.7", on("host1", "10.3.1.9")), "vips[0].address: 10.9.0.7 is in a prefix of mux mux1"},
		{newVIP("shop", "203.0.113.10", on("host1", "10.9.0.9")), "vips[0].endpoints[0].backends[0].address: 10.9.0.9 is in a prefix of mux mux1"},
		{newVIP("shop", "203.0.113.10", through(on("host1", "10.9.0.9"), "10.5.0.1")), "vips[0].endpoints[0].backends[0].address: 10.9.0.9 is in a prefix of mux mux1"},
		{newVIP("shop", "203.0.113.10", through(on("host1", "10.3.1.9"), "10.9.0.1")), "vips[0].endpoints[0].backends[0].tunnel: 10.9.0.1 is in a prefix of mux mux1"},
	} {
		if _, err := VIPs(s, []model.VIP{c.vip}, true); err == nil || err.Error() != c.want {
			t.Errorf("got %v, want %s", err, c.want)
		}
		s := state([]model.VIP{c.vip})
		if err := Node(s, mux, NewTenants(nil), nil); err == nil || !strings.HasPrefix(err.Error(), "prefixes[0]: 10.9.0.0/24 has 10.9.0.") {
			t.Errorf("the mux got %v", err)
		}
	}
	s.PutVIP(newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9")))
	if err := Node(s, mux, NewTenants(nil), nil); err != nil {
		t.Error(err)
	}
}

// Hosts that have not joined are waited for, by their names: an address of a host says nothing yet. Those of nodes that
// are no hosts are refused as ever.
func TestHostsThatHaveNotJoined(t *testing.T) {
	vip := newVIP("shop", "203.0.113.10", on("host3", "10.3.1.9"), on("host1", "10.3.1.10"))
	vip.SNAT = &model.SNAT{Workloads: []model.SNATWorkload{{Address: addr("10.3.1.11"), Host: "host4"}}}
	admitted, err := VIPs(town(), []model.VIP{vip}, false)
	if err != nil || admitted[0].Endpoints[0].Backends[0].Host != "host3" || admitted[0].SNAT.Workloads[0].Host != "host4" {
		t.Errorf("%+v: %v", admitted, err)
	}
	for _, c := range []struct{ host, want string }{
		{"10.2.9.9", "no host with the address 10.2.9.9 has joined: there are host1, host2; one that has not yet is given by its name"},
		{"mux1", "mux1 is a mux, not a host"},
	} {
		if _, err := VIPs(town(), []model.VIP{newVIP("shop", "203.0.113.10", on(c.host, "10.3.1.9"))}, false); err == nil || err.Error() != first+".host: "+c.want {
			t.Errorf("%s: %v, want %s", c.host, err, c.want)
		}
	}
	if _, err := VIPs(town(), []model.VIP{vip}, true); err == nil {
		t.Error("a strict call takes hosts that have not joined")
	}
}

// The host that a VIP waits for may join with its own addresses, and no other may have what leads to it.
func TestAHostThatIsWaitedForJoins(t *testing.T) {
	s := town()
	s.PutVIP(newVIP("shop", "203.0.113.10", on("host3", "10.2.3.3")))
	node := model.Node{Name: "host3", Role: model.RoleHost, Addresses: []netip.Addr{addr("10.2.3.3")}}
	if err := Node(s, node, NewTenants(nil), nil); err != nil {
		t.Errorf("it is refused: %v", err)
	}
	node.Name = "host4"
	if err := Node(s, node, NewTenants(nil), nil); err == nil {
		t.Error("another host takes the address of a backend on host3")
	}
}
