package netlink

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

// The topology of these tests:
//
//	mux eth0 ──────── eth0 router            10.7.0.0/24, fd00:7::/64: .1, .2 and .3 are the router's
//	mux eth1 ──────── eth1 router            10.6.0.0/24
type network struct {
	t           *testing.T
	mux, router *netns.NS
}

func newNetwork(t *testing.T) *network {
	t.Helper()
	n := &network{t: t, mux: netns.New(t, "nl-mux"), router: netns.New(t, "nl-router")}
	for _, dev := range []string{"eth0", "eth1"} {
		must(t, netns.Veth(n.mux, dev, n.router, dev))
	}
	n.ip(n.mux, "addr add 10.7.0.9/24 dev eth0")
	n.ip(n.mux, "addr add fd00:7::9/64 dev eth0 nodad")
	n.ip(n.mux, "addr add 10.6.0.9/24 dev eth1")
	for i := 1; i <= 3; i++ {
		n.ip(n.router, fmt.Sprintf("addr add 10.7.0.%d/24 dev eth0", i))
		n.ip(n.router, fmt.Sprintf("addr add fd00:7::%d/64 dev eth0 nodad", i))
	}
	return n
}

func (n *network) ip(ns *netns.NS, args string) string {
	n.t.Helper()
	out, err := ns.Run("ip", strings.Fields(args)...)
	must(n.t, err)
	return out
}

// mac is the address of dev in ns.
func (n *network) mac(ns *netns.NS, dev string) [6]byte {
	n.t.Helper()
	address, err := ns.MAC(dev)
	must(n.t, err)
	return [6]byte(address)
}

// watcher is a running NextHops.
type watcher struct {
	n     *network
	hops  *NextHops
	mu    sync.Mutex
	state State
	calls int
}

func (n *network) watch(destinations ...string) *watcher {
	n.t.Helper()
	w := &watcher{n: n}
	err := n.mux.Do(func() (err error) {
		w.hops, err = New(Config{Interface: "eth0", Log: slog.New(slog.DiscardHandler), Changed: func(s State) {
			w.mu.Lock()
			defer w.mu.Unlock()
			w.state = s
			w.calls++
		}})
		return err
	})
	if err != nil {
		n.t.Fatal(err)
	}
	w.want(destinations...)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error)
	go func() { ended <- w.hops.Run(ctx) }()
	n.t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			n.t.Error(err)
		}
	})
	return w
}

func (w *watcher) want(destinations ...string) {
	var addrs []netip.Addr
	for _, d := range destinations {
		addrs = append(addrs, netip.MustParseAddr(d))
	}
	w.hops.SetDestinations(addrs)
}

func (w *watcher) current() (State, int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state, w.calls
}

func (w *watcher) eventually(what string, ok func(State) bool) {
	w.n.t.Helper()
	for end := time.Now().Add(15 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		state, _ := w.current()
		if ok(state) {
			return
		}
		if time.Now().After(end) {
			w.n.t.Fatalf("never came to: %s; is %+v", what, state)
		}
	}
}

// resolves waits until destination has the next hop to the router's MAC address.
func (w *watcher) resolves(destination string, mac [6]byte) {
	w.n.t.Helper()
	want := model.NextHop{Source: w.n.mac(w.n.mux, "eth0"), Destination: mac}
	w.eventually(fmt.Sprintf("%s by %x", destination, mac), func(s State) bool {
		return s.NextHops[netip.MustParseAddr(destination)] == want
	})
}

// fails waits until destination has no next hop, for the reason given.
func (w *watcher) fails(destination, reason string) {
	w.n.t.Helper()
	w.eventually(destination+": "+reason, func(s State) bool {
		addr := netip.MustParseAddr(destination)
		return !s.NextHops[addr].Resolved() && s.Problems[addr] == reason
	})
}

func TestNextHops(t *testing.T) {
	n := newNetwork(t)
	n.ip(n.mux, "route add default via 10.7.0.1")
	n.ip(n.mux, "route add default via fd00:7::1")
	n.ip(n.mux, "route add 10.99.0.0/16 via 10.6.0.1")
	n.ip(n.mux, "route add blackhole 10.98.0.0/16")
	n.ip(n.mux, "route add 10.97.0.0/16 via inet6 fd00:7::2 dev eth0")
	w := n.watch("10.7.0.2", "192.0.2.1", "2001:db8::1", "fd00:7::3", "10.99.0.1", "10.98.0.1", "10.7.0.9", "10.7.0.77", "10.97.0.1")
	router := n.mac(n.router, "eth0")
	for _, d := range []string{"10.7.0.2", "192.0.2.1", "2001:db8::1", "fd00:7::3", "10.97.0.1"} {
		w.resolves(d, router)
	}
	w.fails("10.99.0.1", "the route to 10.99.0.1 leaves by eth1, not by eth0")
	w.fails("10.98.0.1", "the route to 10.98.0.1 refuses packets")
	w.fails("10.7.0.9", "10.7.0.9 is an address of this machine")
	w.fails("10.7.0.77", "10.7.0.77 does not answer on eth0")

	w.want("192.0.2.1")
	w.eventually("one destination", func(s State) bool { return len(s.NextHops) == 1 && len(s.Problems) == 0 })
}

func TestNextHopsFollowRoutes(t *testing.T) {
	n := newNetwork(t)
	w := n.watch("192.0.2.1")
	w.fails("192.0.2.1", "no route to 192.0.2.1")
	n.ip(n.mux, "route add 192.0.2.0/24 via 10.7.0.77")
	w.fails("192.0.2.1", "gateway 10.7.0.77 to 192.0.2.1 does not answer on eth0")
	n.ip(n.mux, "route replace 192.0.2.0/24 via 10.7.0.2")
	w.resolves("192.0.2.1", n.mac(n.router, "eth0"))
	n.ip(n.mux, "route del 192.0.2.0/24")
	w.fails("192.0.2.1", "no route to 192.0.2.1")
}

// A gateway that changes its MAC address and says so, as after a failover, is followed.
func TestNextHopsFollowNeighbors(t *testing.T) {
	n := newNetwork(t)
	n.ip(n.mux, "route add default via 10.7.0.1")
	n.ip(n.mux, "route add default via fd00:7::1")
	w := n.watch("192.0.2.1", "2001:db8::1")
	w.resolves("192.0.2.1", n.mac(n.router, "eth0"))
	w.resolves("2001:db8::1", n.mac(n.router, "eth0"))

	n.ip(n.mux, "neigh replace 10.7.0.1 lladdr 02:00:00:00:00:77 dev eth0 nud reachable")
	n.ip(n.mux, "neigh replace fd00:7::1 lladdr 02:00:00:00:00:78 dev eth0 nud reachable")
	w.resolves("192.0.2.1", [6]byte{2, 0, 0, 0, 0, 0x77})
	w.resolves("2001:db8::1", [6]byte{2, 0, 0, 0, 0, 0x78})
	n.ip(n.mux, "neigh replace 10.7.0.1 lladdr 02:00:00:00:00:77 dev eth0 nud permanent")
	n.ip(n.mux, "neigh del 10.7.0.1 dev eth0")
	w.resolves("192.0.2.1", n.mac(n.router, "eth0"))
}

// Nothing in the kernel uses the neighbours: they stay resolved only because NextHops asks for it.
func TestNextHopsKeepNeighborsResolved(t *testing.T) {
	n := newNetwork(t)
	n.ip(n.mux, "route add default via 10.7.0.1")
	w := n.watch("192.0.2.1")
	w.resolves("192.0.2.1", n.mac(n.router, "eth0"))
	n.ip(n.mux, "neigh change 10.7.0.1 lladdr 02:00:00:00:00:77 dev eth0 nud stale")
	w.resolves("192.0.2.1", [6]byte{2, 0, 0, 0, 0, 0x77})
	w.resolves("192.0.2.1", n.mac(n.router, "eth0")) // probed: nobody had answered at 02:..:77
}

// A next hop that comes back at once was never away.
func TestNextHopsBearFlapping(t *testing.T) {
	n := newNetwork(t)
	n.ip(n.mux, "route add default via 10.7.0.1")
	w := n.watch("192.0.2.1")
	w.resolves("192.0.2.1", n.mac(n.router, "eth0"))
	_, before := w.current()
	for range 20 {
		n.ip(n.mux, "route del default")
		n.ip(n.mux, "neigh flush dev eth0")
		n.ip(n.mux, "route add default via 10.7.0.1")
	}
	w.want("192.0.2.1", "10.7.0.2") // a change that must be told comes after all of those
	w.resolves("10.7.0.2", n.mac(n.router, "eth0"))
	state, after := w.current()
	if after-before != 1 || !state.NextHops[netip.MustParseAddr("192.0.2.1")].Resolved() {
		t.Errorf("%d changes were told, want 1; state %+v", after-before, state)
	}
}

func TestNextHopsSpreadOverGateways(t *testing.T) {
	n := newNetwork(t)
	n.ip(n.mux, "neigh replace 10.7.0.1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent")
	n.ip(n.mux, "neigh replace 10.7.0.2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent")
	n.ip(n.mux, "neigh replace fd00:7::1 lladdr 02:00:00:00:00:01 dev eth0 nud permanent")
	n.ip(n.mux, "neigh replace fd00:7::2 lladdr 02:00:00:00:00:02 dev eth0 nud permanent")
	n.ip(n.mux, "route add default nexthop via 10.7.0.1 nexthop via 10.7.0.2 nexthop via 10.6.0.1")
	n.ip(n.mux, "-6 route add default nexthop via fd00:7::1 dev eth0 nexthop via fd00:7::2 dev eth0")
	var destinations []string
	for i := range 64 {
		destinations = append(destinations, fmt.Sprintf("192.0.2.%d", i), fmt.Sprintf("2001:db8::%x", i))
	}
	w := n.watch(destinations...)
	count := func(s State, family func(netip.Addr) bool) map[byte]int {
		by := map[byte]int{}
		for d, hop := range s.NextHops {
			if family(d) {
				by[hop.Destination[5]]++
			}
		}
		return by
	}
	w.eventually("all resolved", func(s State) bool { return len(s.NextHops) == len(destinations) })
	before, _ := w.current()
	for name, family := range map[string]func(netip.Addr) bool{"IPv4": netip.Addr.Is4, "IPv6": netip.Addr.Is6} {
		if by := count(before, family); by[1] < 16 || by[2] < 16 {
			t.Errorf("%s destinations by gateway: %v of 64", name, by)
		}
	}

	// A gateway that does not answer leaves its share to the other, and no more moves than that.
	// The address goes first: a router that still answers is reachable again, for as long as 45 s.
	n.ip(n.router, "addr del 10.7.0.2/24 dev eth0")
	n.ip(n.mux, "neigh del 10.7.0.2 dev eth0")
	w.eventually("all by the other gateway", func(s State) bool { return count(s, netip.Addr.Is4)[1] == 64 })
	after, _ := w.current()
	if got, want := fmt.Sprint(count(after, netip.Addr.Is6)), fmt.Sprint(count(before, netip.Addr.Is6)); got != want {
		t.Errorf("IPv6 destinations by gateway: %s, were %s", got, want)
	}
}

func TestNextHopsTellTheLink(t *testing.T) {
	n := newNetwork(t)
	w := n.watch("10.7.0.1")
	w.resolves("10.7.0.1", n.mac(n.router, "eth0"))
	n.ip(n.mux, "link set eth0 mtu 9000")
	w.eventually("the new MTU", func(s State) bool { return s.MTU == 9000 })
	n.ip(n.mux, "link set eth0 address 02:00:00:00:07:07")
	w.eventually("the new MAC", func(s State) bool { return s.MAC == [6]byte{2, 0, 0, 0, 7, 7} })
	n.ip(n.router, "link set eth0 down") // takes the carrier
	w.eventually("down", func(s State) bool { return s.Link == "interface eth0 is down" })
	n.ip(n.router, "link set eth0 up")
	w.eventually("up", func(s State) bool { return s.Link == "" })
	w.resolves("10.7.0.1", n.mac(n.router, "eth0"))
	n.ip(n.mux, "link del eth0")
	w.eventually("gone", func(s State) bool {
		return s.Link == "interface eth0 not found; this machine has: eth1, lo"
	})
}

func TestFindInterface(t *testing.T) {
	n := newNetwork(t)
	n.ip(n.mux, "link set eth0 mtu 9000")
	err := n.mux.Do(func() error {
		found, err := FindInterface("eth0")
		if err != nil {
			return err
		}
		if found.MTU != 9000 || !found.Up || found.MAC != n.mac(n.mux, "eth0") {
			t.Errorf("found %+v", found)
		}
		if found.Address4() != netip.MustParseAddr("10.7.0.9") || found.Address6() != netip.MustParseAddr("fd00:7::9") {
			t.Errorf("addresses %v, %v of %v", found.Address4(), found.Address6(), found.Addresses)
		}
		_, err = FindInterface("eth9")
		if want := "interface eth9 not found; this machine has: eth0, eth1, lo"; err == nil || err.Error() != want {
			t.Errorf("error %v, want %q", err, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
