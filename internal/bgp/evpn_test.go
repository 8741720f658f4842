package bgp

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
)

// The router of these tests is a host of virtual network 100 too: its own VTEP is 10.255.0.1.
var (
	lip        = netip.MustParseAddr("10.9.0.1")
	gatewayMAC = [6]byte{0x02, 0, 0, 0, 0x63, 1}
	attached4  = MACRoute{VNI: 100, MAC: gatewayMAC, Address: netip.MustParseAddr("10.99.0.1"), VTEP: lip}
	attached6  = MACRoute{VNI: 100, MAC: gatewayMAC, Address: netip.MustParseAddr("fd99::1"), VTEP: lip}
)

// newOverlay is newNetwork with a router that speaks EVPN and has a bridge of network 100.
func newOverlay(t *testing.T, graceful bool) *network {
	t.Helper()
	n := newNetwork(t, func(c *frr.Config) { c.EVPN, c.GracefulRestart = true, graceful })
	for _, command := range []string{
		"ip addr add 10.255.0.1/32 dev lo",
		"ip link add br100 type bridge",
		"ip link set br100 addrgenmode none up",
		"ip addr add 10.99.0.254/24 dev br100",
		"ip addr add fd99::fe/64 dev br100 nodad",
		"ip link add vx100 type vxlan id 100 dstport 4789 local 10.255.0.1 nolearning",
		"ip link set vx100 addrgenmode none master br100 up",
		"bridge link set dev vx100 learning off neigh_suppress on",
	} {
		run(t, n.router, command)
	}
	return n
}

// overlayConfig is that of speaker i towards a router that takes EVPN.
func (n *network) overlayConfig(i int) Config {
	c := n.config(i)
	c.Peers[0].EVPN = true
	return c
}

// startAttached starts a speaker that announces the LIP and MAC routes.
func (n *network) startAttached(i int, j job) *speaker {
	n.t.Helper()
	j.Announce = append(j.Announce, netip.PrefixFrom(lip, 32))
	return n.start(i, j)
}

// macs has the speaker announce these MAC routes, and no others.
func (s *speaker) macs(routes ...MACRoute) {
	s.t.Helper()
	text, err := json.Marshal(routes)
	if err != nil {
		s.t.Fatal(err)
	}
	s.say("macs " + string(text))
}

// forwards says where the router's kernel sends what is for the gateway's MAC, and which addresses it answers ARP and
// neighbor solicitations for with that.
func (n *network) forwards() string {
	n.t.Helper()
	var text []string
	mac := "02:00:00:00:63:01"
	for _, line := range strings.Split(run(n.t, n.router, "bridge fdb show dev vx100"), "\n") {
		if _, dst, found := strings.Cut(line, " dst "); found && strings.HasPrefix(line, mac) {
			text = append(text, strings.Fields(dst)[0])
		}
	}
	for _, r := range []MACRoute{attached4, attached6} {
		if strings.Contains(run(n.t, n.router, "ip neigh show "+r.Address.String()+" dev br100"), mac) {
			text = append(text, r.Address.String())
		}
	}
	return strings.Join(text, " ")
}

func (n *network) wantForwards(want string) {
	n.t.Helper()
	var got string
	eventually(n.t, func() bool { got = n.forwards(); return got == want },
		func() string {
			routes, _ := n.frr.Vtysh("show bgp l2vpn evpn route")
			return fmt.Sprintf("the router forwards to %q, not to %q; it knows\n%s", got, want, routes)
		})
}

// holdsForwards looks for a while that the router goes on so.
func (n *network) holdsForwards(want string, during time.Duration) {
	n.t.Helper()
	for end := time.Now().Add(during); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got := n.forwards(); got != want {
			n.t.Fatalf("the router forwards to %q, not to %q", got, want)
		}
	}
}

const bothAttached = "10.9.0.1 10.99.0.1 fd99::1"

// Two muxes announce the same attachments. A host without an agent finds them, and does not notice when one mux goes.
func TestEVPNLeadsHostsToTheMuxes(t *testing.T) {
	n := newOverlay(t, false)
	one, two := n.startAttached(1, job{Config: n.overlayConfig(1)}), n.startAttached(2, job{Config: n.overlayConfig(2)})
	one.macs(attached4, attached6)
	n.wantForwards(bothAttached)
	two.macs(attached4, attached6)
	two.want("its routes are counted", func(p PeerState) bool { return p.Established() && p.Routes == 3 })
	eventually(t, func() bool {
		out, err := n.frr.Vtysh("show bgp l2vpn evpn route")
		return err == nil && strings.Count(out, "10.8.1.2:1") > 0 && strings.Count(out, "10.8.2.2:1") > 0
	}, func() string { return "the router does not have the routes of both" })
	one.end("stop")
	n.holdsForwards(bothAttached, 4*time.Second)

	two.macs(attached4)
	n.wantForwards("10.9.0.1 10.99.0.1")
	moved := attached4
	moved.VTEP = netip.MustParseAddr("10.9.0.2")
	two.say("announce 10.9.0.1/32 10.9.0.2/32")
	two.macs(moved)
	n.wantForwards("10.9.0.2 10.99.0.1")
	two.macs()
	n.wantForwards("")
}

// FRR has no graceful restart for EVPN (as of 8.4 it is for unicast and VPN families alone). A hand-over is bridged by the
// other muxes, and the successor announces anew.
func TestEVPNOutlivesAHandOver(t *testing.T) {
	n := newOverlay(t, true)
	attached := func(i int, comesBack bool) *speaker {
		config := n.overlayConfig(i)
		config.GracefulRestart = 30 * time.Second
		return n.startAttached(i, job{Config: config, MACs: []MACRoute{attached4, attached6}, SetRestarting: comesBack})
	}
	one, two := attached(1, false), attached(2, false)
	for _, s := range []*speaker{one, two} {
		s.want("the session is up", PeerState.Established)
	}
	n.wantForwards(bothAttached)
	one.end("handover")
	n.holdsForwards(bothAttached, time.Second)
	one = attached(1, true)
	one.want("the session is up", PeerState.Established)
	eventually(t, func() bool {
		out, err := n.frr.Vtysh("show bgp l2vpn evpn route")
		return err == nil && strings.Contains(out, "10.8.1.2:1")
	}, func() string { return "the successor's routes do not come" })
	two.end("handover")
	n.holdsForwards(bothAttached, time.Second)
}

// A peer that was not told to take EVPN has the session as ever, and none of it.
func TestEVPNIsForPeersThatTakeIt(t *testing.T) {
	n := newNetwork(t, nil)
	one := n.startAttached(1, job{Config: n.config(1), MACs: []MACRoute{attached4}})
	state := one.want("the session is up", PeerState.Established)
	n.wantNextHops(netip.PrefixFrom(lip, 32), "10.8.1.2")
	if state.Routes != 1 {
		t.Errorf("%d routes are told to the peer, not 1", state.Routes)
	}
}

// What no router could use is refused by name; the rest is announced.
func TestEVPNRoutesThatCannotBe(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	bad := []MACRoute{attached4, attached4, attached4, attached4, attached4}
	bad[0].VNI, bad[1].VNI, bad[2].MAC[0], bad[3].VTEP, bad[4].Address = 0, MaxVNI+1, 1, netip.Addr{}, netip.Addr{}
	err = s.AnnounceMACs(append(bad, attached6))
	if err == nil || len(strings.Split(err.Error(), "\n")) != len(bad) {
		t.Errorf("refused: %v", err)
	}
	if len(s.macs) != 1 || !s.macs[attached6] {
		t.Errorf("announced are %v", s.macs)
	}
}

// Each network has a number of its own in route distinguishers, as long as it has routes; there are 65 535.
func TestEVPNNumbers(t *testing.T) {
	s, err := New(Config{})
	if err != nil {
		t.Fatal(err)
	}
	route := func(vni int) MACRoute { r := attached4; r.VNI = uint32(vni); return r }
	var all []MACRoute
	for vni := 1; vni <= maxEVIs+1; vni++ {
		all = append(all, route(vni))
	}
	if err := s.AnnounceMACs(all); err == nil || !strings.Contains(err.Error(), "VNI 65536") {
		t.Errorf("one too many: %v", err)
	}
	if err := s.AnnounceMACs([]MACRoute{route(7), route(1 << 20)}); err != nil || len(s.evis.used) != 2 || s.evis.of[7] == s.evis.of[1<<20] {
		t.Errorf("numbers are %v, %v", s.evis.of, err)
	}
}
