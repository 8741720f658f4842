package bgp

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// routes has the speaker announce these, and no others.
func (s *speaker) routes(routes ...Route) {
	s.t.Helper()
	text, err := json.Marshal(routes)
	if err != nil {
		s.t.Fatal(err)
	}
	s.say("routes " + string(text))
}

// paths is what the router's BGP says of a prefix.
func (n *network) paths(p netip.Prefix) string {
	n.t.Helper()
	family := "ipv4"
	if p.Addr().Is6() {
		family = "ipv6"
	}
	out, err := n.frr.Vtysh("show bgp " + family + " unicast " + p.String())
	if err != nil {
		n.t.Fatal(err)
	}
	return out
}

// A route may have another next hop, and communities. It takes the place of the usual one without a gap, and gives
// it back; others are not touched.
func TestOverriddenRoutesReachTheRouter(t *testing.T) {
	n := newNetwork(t, nil)
	other := netip.MustParsePrefix("203.0.113.11/32")
	one := n.startSpeaker(1, n.config(1), vip4, vip6, other)
	two := n.startSpeaker(2, n.config(2), other)
	n.wantNextHops(vip4, "10.8.1.2")
	n.wantNextHops(vip6, "fd00:8:1::2")
	n.wantNextHops(other, "10.8.1.2 10.8.2.2")
	if strings.Contains(n.paths(vip4), "Community") {
		t.Errorf("a usual route has communities:\n%s", n.paths(vip4))
	}

	communities := []model.Community{{Admin: 64999, Value: 911}, {Large: true, Admin: 4_200_000_000, Value: 1, Rest: 2}}
	untouched, overridden := n.routeEvents(other), n.routeEvents(vip4)
	one.routes(
		Route{Prefix: vip4, NextHop: netip.MustParseAddr("10.8.1.77"), Communities: communities},
		Route{Prefix: vip6, NextHop: netip.MustParseAddr("fd00:8:1::77"), Communities: communities}, Plain(other),
	)
	n.wantNextHops(vip4, "10.8.1.77")
	n.wantNextHops(vip6, "fd00:8:1::77")
	for _, p := range []netip.Prefix{vip4, vip6} {
		if text := n.paths(p); !strings.Contains(text, "Community: 64999:911") || !strings.Contains(text, "Large Community: 4200000000:1:2") {
			t.Errorf("the router knows of %s:\n%s", p, text)
		}
	}
	one.routes(Plain(vip4), Plain(vip6), Plain(other))
	n.wantNextHops(vip4, "10.8.1.2")
	n.wantNextHops(vip6, "fd00:8:1::2")
	if lines := untouched(); len(lines) > 0 {
		t.Errorf("the other route had events: %q", lines)
	}
	for _, line := range overridden() {
		if strings.HasPrefix(line, "Deleted") {
			t.Errorf("there was a gap: %s", line)
		}
	}
	two.say("announce")
	n.wantNextHops(other, "10.8.1.2")
}

// RFC 7999: the router drops what is announced with the community BLACKHOLE, if it is told to.
func TestBlackholeIsDroppedByTheRouter(t *testing.T) {
	n := newNetwork(t, nil)
	run(t, n.router, "ip route add blackhole 192.0.2.1/32")
	run(t, n.router, "ip -6 route add blackhole 100::1/128")
	if _, err := n.frr.Vtysh(strings.Join([]string{
		"configure terminal",
		"bgp community-list standard BLACKHOLE permit blackhole",
		"route-map WEIR-IN permit 10", "match community BLACKHOLE", "set ip next-hop 192.0.2.1", "set ipv6 next-hop global 100::1", "exit",
		"route-map WEIR-IN permit 20", "exit",
		"router bgp 65000", "neighbor WEIR disable-connected-check",
		"address-family ipv4 unicast", "neighbor WEIR route-map WEIR-IN in", "exit-address-family",
		"address-family ipv6 unicast", "neighbor WEIR route-map WEIR-IN in", "exit-address-family",
	}, "\n")); err != nil {
		t.Fatal(err)
	}
	one := n.startSpeaker(1, n.config(1), vip4, vip6)
	n.wantNextHops(vip4, "10.8.1.2")
	n.wantNextHops(vip6, "fd00:8:1::2")
	hole := []model.Community{{Admin: 65535, Value: 666}}
	one.routes(Route{Prefix: vip4, Communities: hole}, Route{Prefix: vip6, Communities: hole})
	dropped := func(family string, p netip.Prefix) func() bool {
		return func() bool {
			return strings.HasPrefix(run(t, n.router, "ip "+family+" route show "+p.Addr().String()), "blackhole ")
		}
	}
	say := func() string {
		return n.paths(vip4) + n.paths(vip6) + run(t, n.router, "ip route") + run(t, n.router, "ip -6 route")
	}
	eventually(t, dropped("-4", vip4), say)
	eventually(t, dropped("-6", vip6), say)
	one.routes(Plain(vip4), Plain(vip6))
	n.wantNextHops(vip4, "10.8.1.2")
	n.wantNextHops(vip6, "fd00:8:1::2")
}

func TestRoutesOfAnotherFamilyAreRefused(t *testing.T) {
	s, err := New(valid())
	if err != nil {
		t.Fatal(err)
	}
	err = s.Announce([]Route{{Prefix: vip6, NextHop: netip.MustParseAddr("10.8.1.77")}})
	if err == nil || err.Error() != "announce 2001:db8:a::10/128: next hop 10.8.1.77 is of another family" || len(s.announced) != 0 {
		t.Errorf("error %v, announced %v", err, s.announced)
	}
}
