package bgp

import (
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
)

func TestRoutesOfTwoSpeakersAreSpread(t *testing.T) {
	n := newNetwork(t, nil)
	one, two := n.startSpeaker(1, n.config(1), vip4, vip6), n.startSpeaker(2, n.config(2), vip4, vip6)
	n.wantNextHops(vip4, "10.8.1.2 10.8.2.2")
	n.wantNextHops(vip6, "fd00:8:1::2 fd00:8:2::2")
	state := one.want("established", PeerState.Established)
	if state.Routes != 2 || state.LastError != "" || state.BFD != "off" || state.AS != routerAS {
		t.Errorf("state %+v", state)
	}

	// Only the difference is told: what stays, stays.
	other := netip.MustParsePrefix("203.0.113.11/32")
	events := n.routeEvents(vip4)
	one.say("announce " + vip4.String() + " " + other.String())
	n.wantNextHops(other, "10.8.1.2")
	n.wantNextHops(vip6, "fd00:8:2::2")
	if lines := events(); len(lines) > 0 {
		t.Errorf("a route that did not change had events: %q", lines)
	}

	two.say("announce")
	n.wantNextHops(vip4, "10.8.1.2")
	n.wantNextHops(vip6, "")
}

func TestAggregateOverIPv6Session(t *testing.T) {
	n := newNetwork(t, nil)
	config := n.config(1)
	config.Peers[0].Address = netip.MustParseAddr("fd00:8:1::1")
	v4, v6 := netip.MustParsePrefix("203.0.113.0/24"), netip.MustParsePrefix("2001:db8:a::/48")
	n.startSpeaker(1, config, v4, v6)
	eventually(t, func() bool {
		routes := run(t, n.router, "ip route show 203.0.113.0/24") + run(t, n.router, "ip -6 route show 2001:db8:a::/48")
		return strings.Contains(routes, "via 10.8.1.2") && strings.Contains(routes, "via fd00:8:1::2")
	}, func() string { return "the aggregates never arrived:\n" + run(t, n.router, "ip route") })
}

// A router's OPEN says which families it takes and whether it keeps routes. Routes of others are not counted as sent.
func TestWhatTheRouterOffers(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*frr.Config)
		ipv6   bool
		keeps  bool
		routes int
	}{
		"all":                     {func(*frr.Config) {}, true, true, 3},
		"IPv6 is not activated":   {func(c *frr.Config) { c.NoIPv6 = true }, false, true, 1},
		"graceful restart is off": {func(c *frr.Config) { c.NoHelp = true }, true, false, 3},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNetwork(t, c.change)
			config := n.config(1)
			config.GracefulRestart = time.Minute
			s := n.startSpeaker(1, config, vip4, vip6, netip.MustParsePrefix("2001:db8:a::11/128"))
			n.wantNextHops(vip4, "10.8.1.2")
			state := s.want("established", PeerState.Established)
			want := []Family{{"ipv4", true, 1}, {"ipv6", c.ipv6, 2}}
			if !slices.Equal(state.Families, want) || state.KeepsRoutes != c.keeps || state.Routes != c.routes {
				t.Errorf("families %+v, keeps routes %t, %d routes; want %+v, %t, %d",
					state.Families, state.KeepsRoutes, state.Routes, want, c.keeps, c.routes)
			}
			if c.ipv6 {
				n.wantNextHops(vip6, "fd00:8:1::2")
			} else if got := n.nextHops(vip6); got != "" {
				t.Errorf("the router has a route of IPv6 by %s", got)
			}
		})
	}
}

func TestPassword(t *testing.T) {
	n := newNetwork(t, func(c *frr.Config) { c.Password = "s3cret" })
	right, wrong := n.config(1), n.config(2)
	right.Peers[0].PasswordFile = password(t, "s3cret")
	wrong.Peers[0].PasswordFile = password(t, "secret")
	n.startSpeaker(1, right, vip4)
	refused := n.startSpeaker(2, wrong, vip4)
	n.wantNextHops(vip4, "10.8.1.2")

	state := refused.want("an error", func(p PeerState) bool { return p.LastError != "" })
	want := "peer 10.8.2.1: no answer for 10s: is the address reachable, does it listen for AS 65010 and the password the same on both sides?"
	if state.LastError != want || state.Established() || state.Routes != 0 {
		t.Errorf("state %+v, want the error %q", state, want)
	}
	if n := strings.Count(refused.log.String(), "no answer"); n != 1 {
		t.Errorf("logged %d times, want once:\n%s", n, refused.log)
	}
	n.wantNextHops(vip4, "10.8.1.2")
}

func TestWrongASIsNamed(t *testing.T) {
	n := newNetwork(t, nil)
	ours, theirs := n.config(1), n.config(2)
	ours.AS = 65011
	theirs.Peers[0].AS = 65001
	cases := []struct {
		speaker *speaker
		want    string
	}{
		{n.startSpeaker(1, ours, vip4), "peer 10.8.1.1 refuses us by a NOTIFICATION: does it expect AS 65011"},
		{n.startSpeaker(2, theirs, vip4), "peer 10.8.2.1 was refused by a NOTIFICATION: is its AS 65001?"},
	}
	for _, c := range cases {
		state := c.speaker.want("an error", func(p PeerState) bool { return p.LastError != "" })
		if !strings.HasPrefix(state.LastError, c.want) {
			t.Errorf("error %q, want %q", state.LastError, c.want)
		}
	}
}

func TestCleanStopWithdraws(t *testing.T) {
	n := newNetwork(t, func(c *frr.Config) { c.GracefulRestart = true })
	config := n.config(1)
	config.GracefulRestart = time.Minute
	s := n.startSpeaker(1, config, vip4, vip6)
	n.wantNextHops(vip4, "10.8.1.2")
	n.wantNextHops(vip6, "fd00:8:1::2")

	// The routes of a session that merely breaks would outlive it by a minute.
	s.end("stop")
	n.wantNextHops(vip4, "")
	n.wantNextHops(vip6, "")
}

func TestRestartNeverWithdraws(t *testing.T) {
	for _, how := range []string{"kill", "handover"} {
		for name, router := range map[string]struct {
			interval time.Duration
			dynamic  bool
		}{"without bfd": {0, false}, "with bfd": {300 * time.Millisecond, false}, "with bfd, from a listen range": {300 * time.Millisecond, true}} {
			t.Run(how+" "+name, func(t *testing.T) {
				interval := router.interval
				n := newNetwork(t, func(c *frr.Config) {
					c.GracefulRestart, c.BFD = true, interval
					if router.dynamic {
						dynamicNeighbors(t, c)
					}
				})
				config := n.config(1)
				config.GracefulRestart = 30 * time.Second
				config.Peers[0].BFD = interval
				first := n.startSpeaker(1, config, vip4, vip6)
				n.wantNextHops(vip4, "10.8.1.2")
				n.wantNextHops(vip6, "fd00:8:1::2")
				up := func(p PeerState) bool { return p.Established() && (interval == 0 || p.BFD == "up") }
				first.want("up", up)
				n.wantSteady(1, interval > 0)

				events := n.routeEvents(vip4, vip6)
				if how == "kill" {
					first.kill()
				} else {
					first.end(how)
				}
				second := n.restartSpeaker(1, config, vip4, vip6)
				second.want("up again", up)
				// What follows proves that the router is done with the restart: a new route arrives.
				second.say("announce " + vip4.String() + " " + vip6.String() + " 203.0.113.11/32")
				n.wantNextHops(netip.MustParsePrefix("203.0.113.11/32"), "10.8.1.2")
				if lines := events(); len(lines) > 0 {
					t.Errorf("the routes had events: %q", lines)
				}
			})
		}
	}
}

// dynamicNeighbors has the router accept from a range whom it is not told of. From FRR 10.2 on it opens no session of those,
// as their BFD begins with it.
func dynamicNeighbors(t *testing.T, c *frr.Config) {
	t.Helper()
	major, minor, err := frr.Version()
	if err != nil {
		t.Fatal(err)
	}
	if major > 10 || major == 10 && minor >= 2 {
		t.Skipf("FRR %d.%d wants BFD before a session", major, minor)
	}
	c.Neighbors, c.Ranges = nil, []netip.Prefix{netip.MustParsePrefix("10.8.0.0/16"), netip.MustParsePrefix("fd00:8::/32")}
}

// A restarted speaker whose second peer is away must not wait for it with its routes.
func TestRestartWithOnePeerAway(t *testing.T) {
	n := newNetwork(t, func(c *frr.Config) { c.GracefulRestart = true })
	config := n.config(1)
	config.GracefulRestart = 30 * time.Second
	config.Peers = append(config.Peers, Peer{Address: netip.MustParseAddr("10.8.1.77"), AS: routerAS})
	n.restartSpeaker(1, config, vip4)
	n.wantNextHops(vip4, "10.8.1.2")
}

func TestBFDFindsASilentPeer(t *testing.T) {
	n := newNetwork(t, func(c *frr.Config) { c.BFD = 100 * time.Millisecond; c.HoldTime = 90 * time.Second })
	config := n.config(1)
	config.HoldTime = 90 * time.Second
	config.Peers[0].BFD = 100 * time.Millisecond
	s := n.startSpeaker(1, config, vip4, vip6)
	s.want("bfd up", func(p PeerState) bool { return p.BFD == "up" })
	n.wantSteady(1, true)
	n.wantNextHops(vip4, "10.8.1.2")

	// Nothing passes any more, and no end sees its link go down: only BFD can notice before the
	// hold time of 90 s is over.
	run(t, n.router, "nft add table inet silence")
	run(t, n.router, "nft add chain inet silence in { type filter hook input priority 0 ; policy drop ; }")
	run(t, n.router, "nft add chain inet silence out { type filter hook output priority 0 ; policy drop ; }")
	n.wantNextHops(vip4, "")
	n.wantNextHops(vip6, "")
	state := s.want("down", func(p PeerState) bool { return !p.Established() })
	if !strings.Contains(state.LastError, "session lost") {
		t.Errorf("state %+v", state)
	}

	run(t, n.router, "nft delete table inet silence")
	n.wantNextHops(vip4, "10.8.1.2")
	s.want("bfd up again", func(p PeerState) bool { return p.BFD == "up" })
}

// A speaker that stood still for longer than the router waits for it loses its session once. It finds the router's NOTIFICATION
// and a silence of BFD together, whichever of them first.
func TestWhatIsLostIsLostOnce(t *testing.T) {
	const stops = 3
	n := newNetwork(t, func(c *frr.Config) {
		c.BFD = 150 * time.Millisecond
		c.HoldTime = 90 * time.Second
		c.GracefulRestart = true
	})
	config := n.config(1)
	config.HoldTime, config.GracefulRestart, config.Peers[0].BFD = 90*time.Second, 30*time.Second, 150*time.Millisecond
	s := n.startSpeaker(1, config, vip4, vip6)
	up := func(p PeerState) bool { return p.Established() && p.BFD == "up" }
	s.want("bfd up", up)
	for range stops {
		n.wantSteady(1, true)
		before := strings.Count(s.log.String(), "session is down") // FRR from 10.2 on loses the first one, see wantSteady
		n.wantNextHops(vip4, "10.8.1.2")
		n.wantNextHops(vip6, "fd00:8:1::2")
		s.signal(syscall.SIGSTOP)
		n.wantNextHops(vip4, "")
		time.Sleep(2 * bfdHears * bfdMultiplier * config.Peers[0].BFD) // longer than the speaker waits for the router
		s.signal(syscall.SIGCONT)
		goesOn := time.Now()
		eventually(t, func() bool { return strings.Count(s.log.String(), "session is down") > before }, func() string { return "the speaker lost nothing" })
		s.want("bfd up again", up)
		t.Logf("up %v after the speaker goes on", time.Since(goesOn).Round(10*time.Millisecond))
		if lost := strings.Count(s.log.String(), "session is down") - before; lost != 1 {
			t.Fatalf("after one stop the session was lost %d times:\n%s", lost, s.log)
		}
	}
}

// A router that takes no part in BFD keeps its session, and is told of.
func TestBFDOfOneSide(t *testing.T) {
	n := newNetwork(t, nil)
	config := n.config(1)
	config.Peers[0].BFD = 100 * time.Millisecond
	s := n.startSpeaker(1, config, vip4)
	eventually(t, func() bool { return strings.Contains(s.log.String(), "bfd does not come up") },
		func() string { return "no line about bfd:\n" + s.log.String() })
	state := s.want("up without bfd", PeerState.Established)
	if state.BFD != "down" || strings.Contains(s.log.String(), "is down") {
		t.Errorf("state %+v", state)
	}
	n.wantNextHops(vip4, "10.8.1.2")
}
