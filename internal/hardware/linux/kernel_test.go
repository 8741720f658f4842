package linux_test

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/hardware/linux"
	"github.com/weirlb/weir/internal/lab/netns"
)

var ours = linux.Config{Source: drivertest.Source(true), Configure: true}

// router is a namespace without traffic.
type router struct {
	*testing.T
	ns *netns.NS
}

func newRouter(t *testing.T) *router {
	t.Helper()
	return &router{t, netns.New(t, "hwrouter")}
}

func (r *router) ip(args string) string {
	r.Helper()
	out, err := r.ns.Run("ip", strings.Fields(args)...)
	must(r.T, err)
	return out
}

func (r *router) open(config linux.Config) *linux.Driver {
	r.Helper()
	d := open(r.T, r.ns, config)
	r.Cleanup(func() { must(r.T, d.Close()) })
	return d
}

func entry(vip string, tunnels ...int) hardware.Entry {
	e := hardware.Entry{VIP: netip.MustParseAddr(vip), Source: drivertest.Source(true)}
	for _, n := range tunnels {
		e.Members = append(e.Members, hardware.Member{Tunnel: drivertest.Tunnel(true, n), Entries: 1})
	}
	return e
}

func (r *router) program(d *linux.Driver, e hardware.Entry) {
	r.Helper()
	must(r.T, d.Program(r.Context(), e))
}

func (r *router) want(d *linux.Driver, want ...hardware.Entry) {
	r.Helper()
	got, err := d.Read(r.Context())
	must(r.T, err)
	if len(got) != len(want) {
		r.Fatalf("the kernel has %d entries, want %d: %+v", len(got), len(want), got)
	}
	for i := range want {
		if !got[i].Equal(want[i]) {
			r.Fatalf("the kernel has %+v, want %+v", got[i], want[i])
		}
	}
}

// objects is how many next hops and groups have our protocol.
func (r *router) objects() int { return strings.Count(r.ip("nexthop show protocol 87"), "id ") }

// A driver that was cut off between two steps leaves next hops and groups without a route; the next one removes them.
func TestLeftOversAreRemoved(t *testing.T) {
	r := newRouter(t)
	d := r.open(ours)
	r.program(d, entry("203.0.113.1", 1, 2, 3))
	r.ip("route del 203.0.113.1/32")
	r.ip("nexthop add id 1459617900 encap seg6 mode encap segs fd64::9 dev weir-tunnels protocol 87") // 0x570000ac, of another mode
	if n := r.objects(); n != 5 {
		t.Fatalf("%d next hops and groups, want 5", n)
	}
	again := r.open(ours)
	r.program(again, entry("203.0.113.2", 4))
	r.want(again, entry("203.0.113.2", 4))
	if n := r.objects(); n != 3 { // what is not of our form stays, whoever made it
		t.Errorf("%d next hops and groups, want 3: %s", n, r.ip("nexthop"))
	}
}

func TestNextHopsOfOthersStay(t *testing.T) {
	r := newRouter(t)
	d := r.open(ours)
	_, err := d.Boot(t.Context())
	must(t, err)
	const ids = "1459617793 1459617794 1468006401" // of our ranges: 0x57000001, 0x57000002, 0x57800001
	for id := range strings.FieldsSeq(ids) {
		r.ip("nexthop add id " + id + " dev weir-tunnels protocol static")
	}
	e := entry("203.0.113.1", 1, 2, 3)
	r.program(d, e)
	r.want(d, e)
	must(t, d.Remove(t.Context(), e.VIP))
	for id := range strings.FieldsSeq(ids) {
		r.ip("nexthop get id " + id)
	}
	if n := r.objects(); n != 0 {
		t.Errorf("%d next hops of ours are left", n)
	}
}

// Routes that a routing daemon writes, of what other switches announce, and ours are there side by side: packets take ours.
func TestRoutesOfARoutingDaemonStay(t *testing.T) {
	r := newRouter(t)
	r.ip("link add other type veth peer name another")
	r.ip("link set other up")
	d := r.open(ours)
	takes := func(vip, protocol string) {
		t.Helper()
		if route := r.ip("route get fibmatch " + vip); !strings.Contains(route, "proto "+protocol) {
			t.Errorf("packets to %s do not take the route of %s: %s", vip, protocol, route)
		}
	}
	for _, c := range []struct{ vip, before, route string }{
		{"203.0.113.1", "203.0.113.2", "dev other proto bgp metric 20"},
		{"2001:db8::1", "2001:db8::2", "dev other proto bgp metric 20"},
	} {
		e := entry(c.vip, 1, 2)
		r.program(d, e)
		r.ip("route add " + c.vip + " " + c.route) // the daemon hears of it later
		takes(c.vip, "87")
		r.program(d, entry(c.vip, 1, 2, 3))
		r.ip("route replace " + c.vip + " " + c.route + " mtu 1400")
		takes(c.vip, "87")
		before := entry(c.before, 4)
		r.ip("route add " + c.before + " " + c.route) // and earlier
		takes(c.before, "bgp")
		r.program(d, before)
		takes(c.before, "87")
		r.want(d, entry(c.vip, 1, 2, 3), before)
		r.program(d, before)
		r.ip("route del " + c.before + " " + c.route)
		takes(c.before, "87")
		for _, vip := range []string{c.vip, c.before} {
			must(t, d.Remove(t.Context(), netip.MustParseAddr(vip)))
		}
		r.want(d)
		takes(c.vip, "bgp")
	}
	r.ip("route add 203.0.113.3 dev other proto bgp") // of the same metric as ours
	var refusal *hardware.Refusal
	if err := d.Program(t.Context(), entry("203.0.113.3", 1)); !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, "metric 0") {
		t.Errorf("got %v, want a refusal that names the metric", err)
	}
}

func TestSourceOfOthersStays(t *testing.T) {
	r := newRouter(t)
	r.ip("sr tunsrc set fd99::1")
	err := r.ns.Do(func() error {
		_, err := linux.New(t.Context(), linux.Config{Source: drivertest.Source(true)})
		return err
	})
	if err == nil || !strings.Contains(err.Error(), "fd99::1") {
		t.Fatalf("got %v, want that the source of others is named", err)
	}
	d := r.open(linux.Config{})
	var refusal *hardware.Refusal
	if err := d.Program(t.Context(), entry("203.0.113.1", 1)); !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, "fd99::1") {
		t.Errorf("got %v, want a refusal that names the source", err)
	}
	e := entry("203.0.113.1", 1)
	e.Source = netip.MustParseAddr("fd99::1")
	r.program(d, e)
	r.want(d, e)
}

func TestWhatIsNotSetUpIsTold(t *testing.T) {
	r := newRouter(t)
	must(t, r.ns.Sysctl("net.ipv4.fib_multipath_hash_policy", "0"))
	must(t, r.ns.Sysctl("net.ipv4.nexthop_compat_mode", "1"))
	c, err := r.open(linux.Config{Source: drivertest.Source(true)}).Capabilities(t.Context())
	must(t, err)
	for _, name := range []string{"net.ipv4.fib_multipath_hash_policy", "net.ipv4.nexthop_compat_mode", "net.ipv4.ip_forward"} {
		if !strings.Contains(strings.Join(c.Warnings, "\n"), name) {
			t.Errorf("warnings do not name %s: %q", name, c.Warnings)
		}
	}
	if c.MaxMembers != 256 {
		t.Errorf("groups of %d entries, want 256", c.MaxMembers)
	}
	c, err = r.open(ours).Capabilities(t.Context())
	must(t, err)
	if warnings := strings.Join(c.Warnings, "\n"); strings.Contains(warnings, "hash_policy") || c.MaxMembers != 1024 {
		t.Errorf("groups of %d entries, warnings %q", c.MaxMembers, warnings)
	}
}

// iproute2 can't write such groups, and reads them.
func TestLargeGroups(t *testing.T) {
	r := newRouter(t)
	d := r.open(ours)
	numbers := make([]int, 1000)
	for i := range numbers {
		numbers[i] = i + 1
	}
	small, large := entry("203.0.113.1", 1, 2), entry("203.0.113.1", numbers...)
	small.Members[1].Entries = 3
	for _, e := range []hardware.Entry{small, large, small, large} { // its buckets do not suffice at first
		r.program(d, e)
		r.want(d, e)
	}
	six := large.Clone()
	six.VIP = netip.MustParseAddr("2001:db8::1")
	r.program(d, six)
	r.want(d, large, six)
	if routes := r.ip("route show"); !strings.Contains(routes, "203.0.113.1 nhid") {
		t.Errorf("routes are %s", routes)
	}
}

func TestTooManyEntriesOfAMember(t *testing.T) {
	r := newRouter(t)
	d := r.open(ours)
	e := entry("203.0.113.1", 1, 2)
	e.Members[0].Entries = 257
	var refusal *hardware.Refusal
	if err := d.Program(t.Context(), e); !errors.As(err, &refusal) || !strings.Contains(refusal.Reason, "256") {
		t.Errorf("got %v, want a refusal that names the bound", err)
	}
	e.Members[0].Entries = 256
	r.program(d, e)
	r.want(d, e)
}

// Whatever someone else does to what is ours, it is seen, and the next Program mends it.
func TestDamageIsMended(t *testing.T) {
	e, kept := entry("203.0.113.1", 1, 2, 3), entry("203.0.113.2", 3, 4)
	for name, damage := range map[string]func(r *router){
		"a next hop is deleted":     func(r *router) { r.ip("nexthop del id 1459617793") },
		"the group is deleted":      func(r *router) { r.ip("nexthop del id 1468006401") },
		"the route is deleted":      func(r *router) { r.ip("route del 203.0.113.1/32") },
		"the interface goes down":   func(r *router) { r.ip("link set weir-tunnels down") },
		"the interface is deleted":  func(r *router) { r.ip("link del weir-tunnels") },
		"the group has fewer":       func(r *router) { r.ip("nexthop replace id 1468006401 group 1459617793 type resilient") },
		"the route leads elsewhere": func(r *router) { r.ip("route replace 203.0.113.1/32 nhid 1468006402 protocol 87") },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRouter(t)
			d := r.open(ours)
			r.program(d, e)
			r.program(d, kept)
			damage(r)
			got, err := d.Read(t.Context())
			must(t, err)
			if len(got) == 2 && got[0].Equal(e) {
				t.Fatal("the damage is not seen")
			}
			r.program(d, e)
			r.program(d, kept)
			r.want(d, e, kept)
			if n := r.objects(); n != 6 {
				t.Errorf("%d next hops and groups, want 6: %s", n, r.ip("nexthop"))
			}
		})
	}
}

// What others do to routes, next hops and the interface is told at once; what the driver does itself, or what is none of ours,
// is not.
func TestWhatOthersDoIsTold(t *testing.T) {
	r := newRouter(t)
	r.program(r.open(ours), entry("203.0.113.1", 1, 2)) // the interface is there
	d := open(r.T, r.ns, ours)
	ctx, stop := context.WithCancel(t.Context())
	told, ended := make(chan struct{}, 1<<10), make(chan error, 1)
	go func() { ended <- d.Watch(ctx, func() { told <- struct{}{} }) }()
	t.Cleanup(func() {
		stop()
		must(t, <-ended)
		must(t, d.Close())
	})
	r.program(d, entry("203.0.113.1", 1, 2, 3))
	r.program(d, entry("203.0.113.2", 4))
	must(t, d.Remove(t.Context(), netip.MustParseAddr("203.0.113.2")))
	for _, quiet := range []string{
		"link add other type veth peer name another", "link set other up", "route add 198.51.100.0/24 dev other",
		"route add 203.0.113.99/32 dev other table 99", "route add 203.0.113.98/32 dev other proto bgp metric 20", "nexthop add id 77 blackhole", "link set other down",
	} {
		r.ip(quiet)
	}
	// The kernel tells in order: what was told before the first of these is told by then.
	for i, change := range []string{
		"route del 203.0.113.1/32", "route add 203.0.113.1/32 dev weir-tunnels", "nexthop flush protocol 87", "link set weir-tunnels down",
		"link del weir-tunnels",
	} {
		r.ip(change)
		select {
		case <-told:
		case <-time.After(10 * time.Second):
			t.Fatalf("%s: it is not told", change)
		}
		if n := len(told); i == 0 && n > 0 {
			t.Errorf("it was told %d times before others did anything", n)
		}
	}
}
