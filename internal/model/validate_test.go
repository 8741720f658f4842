package model

import (
	"net/netip"
	"strings"
	"testing"
	"time"
)

func validVIP() VIP {
	return VIP{
		Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.10"),
		Endpoints: []Endpoint{{
			Protocol: TCP, Port: 80,
			Backends: []Backend{
				{Address: netip.MustParseAddr("10.3.1.11"), Port: 8080, Host: "host1", Weight: 1},
				{Address: netip.MustParseAddr("10.3.2.11"), Port: 8080, Host: "host2", Weight: 0},
			},
			HealthCheck: &HealthCheck{
				Type: CheckHTTP, Path: "/healthz", Interval: 2 * time.Second, Timeout: time.Second, Rise: 2, Fall: 3,
			},
		}},
	}
}

func TestValidVIP(t *testing.T) {
	if err := validVIP().Validate(); err != nil {
		t.Fatal(err)
	}
}

// Each case spoils one thing of a valid VIP.
func TestInvalidVIP(t *testing.T) {
	backend := func(v *VIP) *Backend { return &v.Endpoints[0].Backends[0] }
	check := func(v *VIP) *HealthCheck { return v.Endpoints[0].HealthCheck }
	cases := []struct {
		name  string
		spoil func(*VIP)
		want  string // "field: part of the reason"
	}{
		{"name", func(v *VIP) { v.Name = "Shop" }, `name: must be a DNS label`},
		{"name too long", func(v *VIP) { v.Name = strings.Repeat("a", 64) }, "name: must be a DNS label"},
		{"no tenant", func(v *VIP) { v.Tenant = "" }, "tenant: is required"},
		{"no address", func(v *VIP) { v.Address = netip.Addr{} }, "address: must be an IP address"},
		{"mapped", func(v *VIP) { v.Address = netip.MustParseAddr("::ffff:1.2.3.4") }, "address: must be written as IPv4"},
		{"zone", func(v *VIP) { v.Address = netip.MustParseAddr("2001:db8::1%eth0") }, "address: must have no zone"},
		{"multicast", func(v *VIP) { v.Address = netip.MustParseAddr("224.0.0.1") }, "address: must be a routable unicast address"},
		{"loopback", func(v *VIP) { v.Address = netip.MustParseAddr("127.0.0.1") }, "address: must be a routable unicast address"},
		{"broadcast", func(v *VIP) { v.Address = netip.MustParseAddr("255.255.255.255") }, "address: must be a routable unicast address"},
		{"this network", func(v *VIP) { v.Address = netip.MustParseAddr("0.1.2.3") }, "address: must be a routable unicast address"},
		{"no endpoints", func(v *VIP) { v.Endpoints = nil }, "endpoints: must have at least one, unless there is snat"},
		{"endpoint twice", func(v *VIP) { v.Endpoints = append(v.Endpoints, v.Endpoints[0]) }, "endpoints[1]: is TCP 80 again, as endpoints[0]"},
		{"protocol", func(v *VIP) { v.Endpoints[0].Protocol = 1 }, "endpoints[0].protocol: must be TCP or UDP"},
		{"policy", func(v *VIP) { v.Endpoints[0].AllUnhealthy = "panic" }, `endpoints[0].allUnhealthy: must be keep or refuse, is "panic"`},
		{"family", func(v *VIP) { backend(v).Address = netip.MustParseAddr("2001:db8::1") }, "endpoints[0].backends[0].address: must be of the VIP's family (IPv4)"},
		{"itself", func(v *VIP) { backend(v).Address = v.Address }, "endpoints[0].backends[0].address: must not be the VIP itself"},
		{"backend port", func(v *VIP) { backend(v).Port = 0 }, "endpoints[0].backends[0].port: must be 1 to 65535"},
		{"host", func(v *VIP) { backend(v).Host = "" }, "endpoints[0].backends[0].host: is required"},
		{"weight", func(v *VIP) { backend(v).Weight = MaxWeight + 1 }, "endpoints[0].backends[0].weight: must be at most 1000000"},
		{"path of two lines", func(v *VIP) { check(v).Path = "/a\r\nHost: metadata" }, "endpoints[0].healthCheck.http.path: must be printable ASCII"},
		{"path with a space", func(v *VIP) { check(v).Path = "/a HTTP/1.0" }, "endpoints[0].healthCheck.http.path: must be printable ASCII"},
		{"path too long", func(v *VIP) { check(v).Path = "/" + strings.Repeat("a", 1024) }, "endpoints[0].healthCheck.http.path: must be at most 1024 bytes, is 1025"},
		{"header of two lines", func(v *VIP) { check(v).Host = "a\r\nX: y" }, "endpoints[0].healthCheck.http.host: must be a name or an address"},
		{"header with a user", func(v *VIP) { check(v).Host = "a@b" }, "endpoints[0].healthCheck.http.host: must be a name or an address"},
		{"header too long", func(v *VIP) { check(v).Host = strings.Repeat("a", 260) }, "endpoints[0].healthCheck.http.host: must be a name or an address"},
		{"tunnel", func(v *VIP) { backend(v).Tunnel = netip.MustParseAddr("ff02::1") }, "endpoints[0].backends[0].tunnel: must be a routable"},
		{"same backend", func(v *VIP) { v.Endpoints[0].Backends[1] = *backend(v) }, "endpoints[0].backends[1]: is 10.3.1.11:8080 again, as backends[0]"},
		{"same tunnel", func(v *VIP) { v.Endpoints[0].Backends[1].Tunnel = backend(v).Address }, "endpoints[0].backends[1].tunnel: 10.3.1.11 is that of backends[0] too"},
		{"check type", func(v *VIP) { check(v).Type = "ping" }, "endpoints[0].healthCheck: must say how: tcp, http, https, grpc or udp"},
		{"check path", func(v *VIP) { check(v).Path = "healthz" }, "endpoints[0].healthCheck.http.path: must begin with /"},
		{"tcp path", func(v *VIP) { check(v).Type = CheckTCP }, "endpoints[0].healthCheck: has what is for another type of check than tcp"},
		{"interval", func(v *VIP) { check(v).Interval = -1 }, "endpoints[0].healthCheck.interval: must be positive"},
		{"timeout", func(v *VIP) { check(v).Timeout = time.Minute }, "endpoints[0].healthCheck.timeout: must be positive and at most the interval"},
		{"rise", func(v *VIP) { check(v).Rise = 0 }, "endpoints[0].healthCheck.rise: must be 1 to 1000"},
		{"fall", func(v *VIP) { check(v).Fall = 0 }, "endpoints[0].healthCheck.fall: must be 1 to 1000"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) { expectRefusal(t, c.spoil, c.want) })
	}
}

// Settings of how flows keep their backend, and endpoints of all ports.
func TestInvalidSettings(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(*VIP)
		want  string
	}{
		{"backend's port beside all ports", func(v *VIP) { v.Endpoints[0].Port = AllPorts }, "endpoints[0].backends[0].port: must be left out for an endpoint of all ports, is 8080"},
		{"no port to check", func(v *VIP) { v.Endpoints[0].Port = AllPorts }, "endpoints[0].healthCheck.port: is required for an endpoint of all ports"},
		{"all ports twice", func(v *VIP) {
			v.Endpoints = append(v.Endpoints, Endpoint{Protocol: UDP}, Endpoint{Protocol: UDP})
		}, "endpoints[2]: is UDP, all ports again, as endpoints[1]"},
		{"consistency", func(v *VIP) { v.Consistency = "cookies" }, `consistency: must be auto or flow-table, is "cookies"`},
		{"ping", func(v *VIP) { v.Ping = "pong" }, `ping: must be answer or ignore, is "pong"`},
		{"flow limit", func(v *VIP) { v.FlowLimit = MaxFlowLimit + 1 }, "flowLimit: must be at most 16777216, is 16777217"},
		{"fastpath of nobody", func(v *VIP) { v.Fastpath = &Fastpath{} }, "fastpath.sources: must be 1 to 64, are 0"},
		{"fastpath twice", func(v *VIP) {
			v.Fastpath = &Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28"), netip.MustParsePrefix("203.0.113.0/28")}}
		}, "fastpath.sources[1]: is 203.0.113.0/28 again, as sources[0]"},
		{"fastpath of another family", func(v *VIP) {
			v.Fastpath = &Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")}}
		}, "fastpath.sources[0]: must be of the VIP's family (IPv4), is 2001:db8::/64"},
		{"fastpath with bits", func(v *VIP) {
			v.Fastpath = &Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.7/28")}}
		}, "fastpath.sources[0]: must have no bits set behind its length, is 203.0.113.7/28"},
		{"fastpath late", func(v *VIP) {
			v.Fastpath = &Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28")}, UDPPackets: 1<<20 + 1}
		}, "fastpath.udpPackets: must be at most 1048576, is 1048577"},
		{"no limit", func(v *VIP) { v.Limits = &Limits{} }, "limits: must limit packets, bytes or connections"},
		{"limit", func(v *VIP) { v.Limits = &Limits{Bytes: MaxLimit + 1} }, "limits.bytes: must be at most 1000000000000, is 1000000000001"},
		{
			"source of another family", func(v *VIP) { v.Endpoints[0].Deny = []netip.Prefix{netip.MustParsePrefix("2001:db8::/64")} },
			"endpoints[0].deny[0]: must be of the VIP's family (IPv4), is 2001:db8::/64",
		},
		{
			"source with bits", func(v *VIP) { v.Endpoints[0].Allow = []netip.Prefix{netip.MustParsePrefix("10.1.1.1/8")} },
			"endpoints[0].allow[0]: must have no bits set behind its length, is 10.1.1.1/8",
		},
		{"source twice", func(v *VIP) {
			v.Endpoints[0].Allow = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("10.0.0.0/8")}
		}, "endpoints[0].allow[1]: is 10.0.0.0/8 again, as [0]"},
		{"source that is none", func(v *VIP) { v.Endpoints[0].Deny = make([]netip.Prefix, 1) }, "endpoints[0].deny[0]: must be an address or a prefix"},
		{"too many sources", func(v *VIP) { v.Endpoints[0].Deny = make([]netip.Prefix, MaxSources+1) }, "endpoints[0].deny: must be at most 4096, are 4097"},
		{"affinity", func(v *VIP) { v.Endpoints[0].Affinity = "server" }, `endpoints[0].affinity: must be none or client, is "server"`},
		{"short idle", func(v *VIP) { v.Endpoints[0].IdleTimeout = time.Millisecond }, "endpoints[0].idleTimeout: must be 1s to 24h0m0s, is 1ms"},
		{"long idle", func(v *VIP) { v.Endpoints[0].IdleTimeout = 25 * time.Hour }, "endpoints[0].idleTimeout: must be 1s to 24h0m0s, is 25h0m0s"},
	} {
		t.Run(c.name, func(t *testing.T) { expectRefusal(t, c.spoil, c.want) })
	}
}

func expectRefusal(t *testing.T, spoil func(*VIP), want string) {
	vip := validVIP()
	spoil(&vip)
	for _, e := range FieldErrors(vip.Validate()) {
		if strings.HasPrefix(e.Error(), want) {
			return
		}
	}
	t.Errorf("got %v, want an error that begins with %q", vip.Validate(), want)
}

func TestValidateTellsEverythingAtOnce(t *testing.T) {
	vip := validVIP()
	vip.Name = ""
	vip.Ping = "pong"
	vip.Endpoints[0].Backends[1].Port = 0
	if got := FieldErrors(vip.Validate()); len(got) != 3 {
		t.Errorf("got %d field errors, want 3: %v", len(got), got)
	}
}

func TestWhatMustBeAllowed(t *testing.T) {
	vip := validVIP()
	vip.Endpoints[0].Backends = nil // an endpoint may wait for its backends
	vip.Endpoints = append(vip.Endpoints, Endpoint{Protocol: UDP, Port: 80})
	vip.Endpoints = append(vip.Endpoints, Endpoint{ // beside exact ports
		Protocol: TCP, Port: AllPorts, Affinity: AffinityClient, IdleTimeout: MaxIdle,
		Backends:    []Backend{{Address: netip.MustParseAddr("10.3.1.11"), Host: "host1"}},
		HealthCheck: &HealthCheck{Type: CheckTCP, Port: 22, Interval: time.Second, Timeout: time.Second, Rise: 1, Fall: 1},
	})
	vip.Consistency, vip.Ping, vip.FlowLimit = ConsistencyFlowTable, PingIgnore, MaxFlowLimit
	vip.Fastpath = &Fastpath{Sources: []netip.Prefix{netip.MustParsePrefix("203.0.113.20/32")}, UDPPackets: 1}
	vip.Endpoints[0].Allow = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("10.0.0.0/8")}
	vip.Endpoints[0].Deny = vip.Endpoints[0].Allow
	if err := vip.Validate(); err != nil {
		t.Error(err)
	}
}

func TestTakes(t *testing.T) {
	list := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	for _, c := range []struct {
		allow, deny []netip.Prefix
		source      string
		want        bool
	}{
		{nil, nil, "198.51.100.7", true},
		{list("198.51.100.0/24"), nil, "198.51.100.7", true},
		{list("198.51.100.0/24"), nil, "198.51.101.7", false},
		{list("198.51.100.0/24"), list("198.51.100.7/32"), "198.51.100.7", false},
		{nil, list("198.51.100.7/32"), "198.51.100.8", true},
	} {
		e := Endpoint{Allow: c.allow, Deny: c.deny}
		if got := e.Takes(netip.MustParseAddr(c.source), nil); got != c.want {
			t.Errorf("allow %v, deny %v: takes %s: %v", c.allow, c.deny, c.source, got)
		}
	}
}

func TestProtocolText(t *testing.T) {
	for _, p := range []Protocol{TCP, UDP} {
		var back Protocol
		text, _ := p.MarshalText()
		if err := back.UnmarshalText(text); err != nil || back != p {
			t.Errorf("%s came back as %s, %v", p, back, err)
		}
	}
	if _, err := ParseProtocol("icmp"); err == nil {
		t.Error("icmp was accepted")
	}
}

func TestNodeValidate(t *testing.T) {
	for addresses, want := range map[string]string{
		"10.1.1.2 fd00:1:1::2": "",
		"":                     "addresses: must have at least one",
		"127.0.0.1":            "addresses[0]: must be a routable unicast address, is 127.0.0.1",
		"10.1.1.2 224.0.0.1":   "addresses[1]: must be a routable unicast address, is 224.0.0.1",
		"10.1.1.2 10.1.1.2":    "addresses[1]: is 10.1.1.2 again, as addresses[0]",
		"10.1.1.2 10.9.0.0/24": "",
		"10.1.1.2 fd09::/64":   "",
		"10.1.1.2 10.9.0.1/24": "prefixes[0]: must have no bits set behind its length, is 10.9.0.1/24",
		"10.1.1.2 10.0.0.0/8":  "prefixes[0]: must be at least 16 bits long, is 10.0.0.0/8",
		"10.1.1.2 fd00::/16":   "prefixes[0]: must be at least 32 bits long, is fd00::/16",
	} {
		n := Node{Name: "mux1", Role: RoleMux}
		for _, a := range strings.Fields(addresses) {
			if strings.Contains(a, "/") {
				n.Prefixes = append(n.Prefixes, netip.MustParsePrefix(a))
				continue
			}
			n.Addresses = append(n.Addresses, netip.MustParseAddr(a))
		}
		got := ""
		if err := n.Validate(); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%q: got %q, want %q", addresses, got, want)
		}
	}
}

// What a user wrote comes back to him shortened.
func TestLongNamesAreNotRepeated(t *testing.T) {
	if err := (Node{Name: strings.Repeat("a", 1<<20)}).Validate(); len(err.Error()) > 300 {
		t.Errorf("the error has %d bytes", len(err.Error()))
	}
}
