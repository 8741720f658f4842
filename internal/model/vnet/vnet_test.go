package vnet

import (
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

func valid() Network {
	return Network{
		Name: "prod", Tenant: "acme", VNI: 100, MTU: DefaultMTU, GatewayMAC: DefaultGatewayMAC, Reply: ReplyRelay,
		Prefixes: []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("fd12:3456::/48")},
		Workloads: []Workload{
			{Name: "web-1", Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.5"), netip.MustParseAddr("fd12:3456::5")}, MAC: MAC{2, 0, 0, 0, 2, 1}, Host: "host1", Interface: "vnet3"},
			{Name: "web-2", Addresses: []netip.Addr{netip.MustParseAddr("192.168.0.6")}, MAC: MAC{2, 0, 0, 0, 2, 2}, Host: "host2", Interface: "vnet3"},
		},
		AllowedTenants: []string{"platform"},
	}
}

func TestValidateNetwork(t *testing.T) {
	if err := valid().Validate(); err != nil {
		t.Fatal(err)
	}
	for wrong, change := range map[string]func(*Network){
		"name: is required":                                                     func(n *Network) { n.Name = "" },
		"tenant: must be a DNS label":                                           func(n *Network) { n.Tenant = strings.Repeat("a", 64) },
		`withoutAgent.reply: must be relay or direct, is "drop"`:                func(n *Network) { n.Reply = "drop" },
		"vni: must be 1 to 16777215, is 0":                                      func(n *Network) { n.VNI = 0 },
		"vni: must be 1 to 16777215, is 16777216":                               func(n *Network) { n.VNI = 1 << 24 },
		"vni: 5719369 is of packets that switches bring to hosts: take another": func(n *Network) { n.VNI = SwitchVNI },
		"mtu: must be 1280 to 9000, is 1279":                                    func(n *Network) { n.MTU = 1279 },
		"gateway.mac: must be unicast, is 01:00:5e:00:00:01":                    func(n *Network) { n.GatewayMAC = MAC{1, 0, 0x5e, 0, 0, 1} },
		"prefixes: must have at least one":                                      func(n *Network) { n.Prefixes, n.Workloads = nil, nil },
		"prefixes[1]: overlaps prefixes[0], 192.168.0.0/16":                     func(n *Network) { n.Workloads, n.Prefixes[1] = nil, netip.MustParsePrefix("192.168.4.0/24") },
		"prefixes[1]: has bits behind the prefix":                               func(n *Network) { n.Workloads, n.Prefixes[1] = nil, netip.MustParsePrefix("10.0.0.1/8") },
		"prefixes[1]: must be longer than /0":                                   func(n *Network) { n.Workloads, n.Prefixes[1] = nil, netip.MustParsePrefix("::/0") },
		"prefixes[1]: must be a routable unicast address, is 224.0.0.0":         func(n *Network) { n.Workloads, n.Prefixes[1] = nil, netip.MustParsePrefix("224.0.0.0/8") },
		"prefixes: must be at most 64, are 65":                                  func(n *Network) { n.Prefixes, n.Workloads = make([]netip.Prefix, 65), nil },
		"workloads[1].name: is web-1 again, as workloads[0]":                    func(n *Network) { n.Workloads[1].Name = "web-1" },
		"workloads[1].mac: is required":                                         func(n *Network) { n.Workloads[1].MAC = MAC{} },
		"workloads[1].host: is required":                                        func(n *Network) { n.Workloads[1].Host = "" },
		"workloads[1].interface: is required":                                   func(n *Network) { n.Workloads[1].Interface = "" },
		"workloads[1].interface: must be at most 15 bytes":                      func(n *Network) { n.Workloads[1].Interface = "a234567890123456" },
		"workloads[1].interface: must be the name of an interface":              func(n *Network) { n.Workloads[1].Interface = "../eth0" },
		"workloads[1].interface: vnet3 of host1 is that of workloads[0] too": func(n *Network) {
			n.Workloads[1].Host = "host1"
		},
		"workloads[1].addresses: must have at least one":                       func(n *Network) { n.Workloads[1].Addresses = nil },
		"workloads[1].addresses: must be at most 16, are 17":                   func(n *Network) { n.Workloads[1].Addresses = make([]netip.Addr, 17) },
		"workloads[1].addresses[0]: 10.0.0.1 is in none of the prefixes":       func(n *Network) { n.Workloads[1].Addresses[0] = netip.MustParseAddr("10.0.0.1") },
		"workloads[1].addresses[0]: must be written as IPv4":                   func(n *Network) { n.Workloads[1].Addresses[0] = netip.MustParseAddr("::ffff:192.168.0.9") },
		"workloads[1].addresses[0]: 192.168.0.5 is an address of workloads[0]": func(n *Network) { n.Workloads[1].Addresses[0] = netip.MustParseAddr("192.168.0.5") },
		"workloads: must be at most 16384, are 16385":                          func(n *Network) { n.Workloads = make([]Workload, 16385) },
		"allowedTenants[1]: is platform again, as allowedTenants[0]":           func(n *Network) { n.AllowedTenants = []string{"platform", "platform"} },
		"allowedTenants[0]: must be a DNS label":                               func(n *Network) { n.AllowedTenants[0] = "*" },
		"allowedTenants: must be at most 1024, are 1025":                       func(n *Network) { n.AllowedTenants = make([]string, 1025) },
	} {
		n := valid()
		change(&n)
		only(t, n.Validate(), wrong)
	}
}

// only holds that there is one error, which begins so.
func only(t *testing.T, err error, wrong string) {
	t.Helper()
	if all := model.FieldErrors(err); len(all) != 1 || !strings.HasPrefix(all[0].Error(), wrong) {
		t.Errorf("%v, want %q alone", err, wrong)
	}
}

func TestValidateOverlay(t *testing.T) {
	for wrong, change := range map[string]func(*Overlay){
		"addresses: must have at least one":                            func(o *Overlay) { o.Addresses = nil },
		"addresses[1]: must be of another family than addresses[0]":    func(o *Overlay) { o.Addresses[1] = netip.MustParseAddr("10.0.0.3") },
		"addresses[1]: must be a routable unicast address, is fe80::1": func(o *Overlay) { o.Addresses[1] = netip.MustParseAddr("fe80::1") },
		"localPrefixes[0]: must be /8 to /16, is /17":                  func(o *Overlay) { o.LocalPrefixes[0] = netip.MustParsePrefix("100.64.0.0/17") },
		"localPrefixes[1]: must be a /48, is a /64":                    func(o *Overlay) { o.LocalPrefixes[1] = netip.MustParsePrefix("fd00::/64") },
		"localPrefixes[1]: must be of another family than":             func(o *Overlay) { o.LocalPrefixes[1] = netip.MustParsePrefix("11.0.0.0/8") },
		"localPrefixes: must have one of each family":                  func(o *Overlay) { o.LocalPrefixes = o.LocalPrefixes[1:] },
		"localPrefixes[0]: has 10.0.0.2, which muxes announce":         func(o *Overlay) { o.LocalPrefixes[0] = netip.MustParsePrefix("10.0.0.0/8") },
	} {
		o := Overlay{
			Addresses:     []netip.Addr{netip.MustParseAddr("10.0.0.2"), netip.MustParseAddr("2001:db8::2")},
			LocalPrefixes: append([]netip.Prefix(nil), DefaultLocalPrefixes...),
		}
		if err := o.Validate(); err != nil {
			t.Fatal(err)
		}
		change(&o)
		only(t, o.Validate(), wrong)
	}
}

func TestValidateNATPrefixes(t *testing.T) {
	for prefixes, want := range map[string]string{
		"10.66.0.0/16 fd66::/112":   "",
		"10.66.0.0/9":               "natPrefixes[0]: has bits behind the prefix: did you mean 10.0.0.0/9?",
		"10.0.0.0/9":                "natPrefixes[0]: must be at least 10 bits long, is 10.0.0.0/9",
		"fd66::/96":                 "natPrefixes[0]: must be at least 106 bits long, is fd66::/96",
		"224.0.0.0/24":              "natPrefixes[0]: must be a routable unicast address, is 224.0.0.0",
		"10.66.0.0/16 10.67.0.0/16": "natPrefixes[1]: must be of another family than natPrefixes[0]",
	} {
		n := model.Node{Role: model.RoleMux}
		for _, p := range strings.Fields(prefixes) {
			n.NATPrefixes = append(n.NATPrefixes, netip.MustParsePrefix(p))
		}
		got := ""
		if err := ValidateNATPrefixes(n); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", prefixes, got, want)
		}
		if n.Role = model.RoleHost; ValidateNATPrefixes(n) == nil {
			t.Errorf("a host has NAT prefixes %s", prefixes)
		}
	}
}

func TestParseMAC(t *testing.T) {
	for _, text := range []string{"", "02:57:45:49:52", "02:57:45:49:52:01:02", "2:57:45:49:52:01", "02-57-45-49-52-01", "0257.4549.5201", "02:57:45:49:52:0g", "02:57:45:49:52:011"} {
		if m, err := ParseMAC(text); err == nil {
			t.Errorf("%q is taken as %s", text, m)
		}
	}
	m, err := ParseMAC("02:57:45:49:52:FF")
	if err != nil || m != (MAC{0x02, 0x57, 0x45, 0x49, 0x52, 0xff}) || m.String() != "02:57:45:49:52:ff" {
		t.Errorf("%s: %v", m, err)
	}
}
