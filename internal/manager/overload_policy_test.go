package manager

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// complain has the mux report that VIPs have too much come, or that none has.
func (m *fakeMux) complain(t *testing.T, pressures ...*weirv1.VIPPressure) {
	t.Helper()
	m.mu.Lock()
	m.pressures = pressures
	m.mu.Unlock()
	eventually(t, m.name+" has reported", m.report)
}

// report has the mux report as it does every two seconds.
func (m *fakeMux) report() bool {
	m.reports.Lock()
	defer m.reports.Unlock()
	m.mu.Lock()
	report := &weirv1.ReportMuxRequest{
		Name: m.name, Generation: uint64(m.generation), Status: &weirv1.MuxStatus{Pressures: m.pressures, Snat: m.snatStatus()},
	}
	m.mu.Unlock()
	_, err := m.client.ReportMux(context.Background(), report)
	return err == nil
}

// announces is how the mux announces a VIP: "as usual", "withdrawn", or by which next hop and communities.
func (m *fakeMux) announces(vip string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, r := range m.routes {
		switch {
		case r.VIP.String() != vip:
		case r.Withdrawn:
			return fmt.Sprintf("%s: withdrawn", r.Action)
		default:
			return fmt.Sprintf("%s: via %s with %v", r.Action, r.NextHop, r.Communities)
		}
	}
	return "as usual"
}

// limits are what the mux takes for the endpoints of a VIP.
func (m *fakeMux) limits(vip string) (l model.Limits) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for key, e := range m.tables {
		if key.VIP.String() == vip && e.Limits != nil {
			l = *e.Limits
		}
	}
	return l
}

func flooded(vip, tenant string) *weirv1.VIPPressure {
	return &weirv1.VIPPressure{Vip: vip, Tenant: tenant, Cause: "overload", Evidence: "811034 packets/s come for " + vip}
}

// clock is a clock that can be moved on.
type clock struct{ ahead atomic.Int64 }

func (c *clock) set(m *Manager) {
	m.now = func() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }
}
func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// flooding is a cluster in which a pool has a scrubber, and a VIP of each family a policy of all steps.
type flooding struct {
	t      *testing.T
	clock  clock
	client *rpc.Client
	mux    *fakeMux
}

func policy() *weirv1.Overload {
	return &weirv1.Overload{
		Steps: []*weirv1.OverloadStep{
			{Action: "limit", After: durationpb.New(10 * time.Second), Limits: &weirv1.Limits{Packets: 5000, Connections: 7}},
			{Action: "scrub", After: durationpb.New(20 * time.Second), Scrubber: "east"},
			{Action: "blackhole", After: durationpb.New(30 * time.Second)},
		},
		HoldDown: durationpb.New(10 * time.Minute),
	}
}

func scrubbedPool() *weirv1.AddressPool {
	return &weirv1.AddressPool{
		Name: "public", Prefixes: []string{"203.0.113.0/24", "2001:db8:a::/64"},
		Scrubbers: []*weirv1.Scrubber{{Name: "east", NextHops: []string{"10.0.9.2", "fd00:9::2"}, Communities: []string{"64999:911"}}},
	}
}

// shop6 is shop with an address of IPv6.
func shop6() *weirv1.VIP {
	vip := shop()
	vip.Name, vip.Address = "shop6", "2001:db8:a::10"
	vip.Endpoints[0].Backends = []*weirv1.Backend{{Address: "fd00:3:1::11", Port: 8080, Host: "host1"}}
	return vip
}

func newFlooding(t *testing.T, change func(*Manager)) *flooding {
	f := &flooding{t: t}
	url, _ := start(t, Config{}, f.clock.set, change)
	f.client = dial(t, url)
	f.begin(url)
	return f
}

func (f *flooding) begin(url string) {
	t := f.t
	t.Helper()
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	f.mux = startMux(t, url, "mux1", "10.1.1.2")
	eventually(t, "all are connected", func() bool { return nodes(t, f.client) == 3 })
	one, other := shop(), shop6()
	one.Limits, one.Overload, other.Overload = &weirv1.Limits{Packets: 9000, Bytes: 1 << 30}, policy(), policy()
	if _, err := f.client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{
		Vips: []*weirv1.VIP{one, other}, Pools: []*weirv1.AddressPool{scrubbedPool()},
	}); err != nil {
		t.Fatal(err)
	}
}

// until waits for something, while the mux goes on reporting.
func (f *flooding) until(what string, done func() bool) {
	f.t.Helper()
	eventually(f.t, what, func() bool { return f.mux.report() && done() })
}

// pass waits for something while time passes: slowly enough that the leader has a report of the mux that is not stale.
func (f *flooding) pass(what string, done func() bool) {
	f.t.Helper()
	f.until(what, func() bool { f.clock.pass(500 * time.Millisecond); return done() })
}

// looked waits until the leader has looked at all that muxes say, by the clock as it is now: until it takes a step for
// another VIP.
func (f *flooding) looked(address string) {
	f.t.Helper()
	f.mux.mu.Lock()
	before := f.mux.pressures
	f.mux.mu.Unlock()
	f.mux.complain(f.t, append(slices.Clone(before), flooded(address, "acme"))...)
	f.until("the leader has looked", func() bool {
		f.clock.pass(100 * time.Millisecond)
		return f.mux.limits(address).Packets == 5000
	})
	f.mux.complain(f.t, before...)
}

// condition is the condition overloaded of a VIP.
func (f *flooding) condition(name string) *weirv1.Condition {
	f.t.Helper()
	r, err := f.client.GetVIP(f.t.Context(), &weirv1.GetVIPRequest{Name: name})
	if err != nil {
		return nil
	}
	conditions := r.Vip.Status.Conditions
	if i := slices.IndexFunc(conditions, func(c *weirv1.Condition) bool { return c.Type == "overloaded" }); i >= 0 {
		return conditions[i]
	}
	return nil
}

// reasons are those of the events of a VIP that are about its policy, the latest last.
func (f *flooding) reasons(name string) (all []string) {
	f.t.Helper()
	list, err := f.client.ListEvents(f.t.Context(), &weirv1.ListEventsRequest{Kind: "VIP", Object: name})
	if err != nil {
		return nil
	}
	for _, e := range list.Events {
		if slices.Contains([]string{"Limited", "Scrubbed", "BlackHoled", "Restored"}, e.Reason) {
			all = append(all, e.Reason)
		}
	}
	return all
}

// Steps are taken in turn for what muxes complain of, for VIPs of both families, and end by themselves; each is an
// event with its evidence, and the VIP says what is in force. A VIP of which nobody complains is as usual all the while.
func TestStepsReachTheMuxesAndEnd(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ vip, address, scrub, other string }{
		{"shop", "203.0.113.10", "scrub: via 10.0.9.2 with [64999:911]", "2001:db8:a::10"},
		{"shop6", "2001:db8:a::10", "scrub: via fd00:9::2 with [64999:911]", "203.0.113.10"},
	} {
		t.Run(c.vip, func(t *testing.T) {
			f := newFlooding(t, func(*Manager) {})
			f.until("the tables are there", func() bool { return f.mux.limits("203.0.113.10") == model.Limits{Packets: 9000, Bytes: 1 << 30} })
			own := f.mux.limits(c.address)
			if now := f.condition(c.vip); now.GetStatus() != "false" || now.GetReason() != "AsUsual" {
				t.Errorf("before: %v", now)
			}
			f.mux.complain(t, flooded(c.address, "acme"))
			limited := model.Limits{Packets: 5000, Bytes: own.Bytes, Connections: 7}
			f.pass("it is limited", func() bool { return f.mux.limits(c.address) == limited })
			if got := f.mux.announces(c.address); got != "as usual" {
				t.Errorf("limited, it is announced %s", got)
			}
			f.pass("it is scrubbed", func() bool { return f.mux.announces(c.address) == c.scrub })
			if f.mux.limits(c.address) != limited {
				t.Errorf("scrubbed, its limits are %v", f.mux.limits(c.address))
			}
			f.pass("it is black-holed", func() bool { return f.mux.announces(c.address) == "blackhole: withdrawn" })
			f.until("it says so", func() bool {
				now := f.condition(c.vip)
				return now.GetStatus() == "true" && now.GetReason() == "BlackHoled" && now.GetLastTransitionTime() != nil &&
					strings.Contains(now.GetMessage(), "mux1: 811034 packets/s come for "+c.address)
			})
			f.mux.complain(t)
			f.clock.pass(5 * time.Minute)
			f.looked(c.other)
			if got := f.mux.announces(c.address); got != "blackhole: withdrawn" {
				t.Errorf("before its time was over: %s", got)
			}
			f.clock.pass(6 * time.Minute)
			f.until("it is as usual again", func() bool { return f.mux.announces(c.address) == "as usual" && f.mux.limits(c.address) == own })
			f.until("its events are told", func() bool {
				return slices.Equal(f.reasons(c.vip), []string{"Limited", "Scrubbed", "BlackHoled", "Restored"})
			})
			if got := f.mux.announces(c.other); got != "as usual" {
				t.Errorf("the other VIP is announced %s", got)
			}
		})
	}
}

// Nothing is done for a VIP of another tenant than muxes name, for a cause that its policy does not have, for what a
// mux that is gone said, or without a policy.
func TestStepsAreOnlyForWhatWasSaid(t *testing.T) {
	f := newFlooding(t, func(*Manager) {})
	plain := shop()
	plain.Name, plain.Address = "plain", "203.0.113.12"
	if _, err := f.client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{plain}}); err != nil {
		t.Fatal(err)
	}
	cause := flooded("203.0.113.10", "acme")
	cause.Cause = "syn-flood"
	f.mux.complain(t, flooded("203.0.113.10", "other"), cause, flooded("203.0.113.12", "acme"), flooded("nonsense", ""), flooded("203.0.113.99", ""))
	f.clock.pass(time.Minute)
	f.looked("2001:db8:a::10")
	if f.mux.limits("203.0.113.10").Packets != 9000 || f.mux.limits("203.0.113.12") != (model.Limits{}) || len(f.reasons("shop"))+len(f.reasons("plain")) > 0 {
		t.Errorf("steps were taken: %v, %v", f.mux.limits("203.0.113.10"), f.mux.limits("203.0.113.12"))
	}
	if f.condition("plain") != nil {
		t.Errorf("a VIP without a policy says %v", f.condition("plain"))
	}
	// The same, with what the policy does have.
	vip := shop()
	vip.Overload = policy()
	vip.Overload.Triggers = []string{"overload", "syn-flood"}
	if _, err := f.client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
		t.Fatal(err)
	}
	f.pass("it is limited", func() bool { return f.mux.limits("203.0.113.10").Packets == 5000 })
}

// Taking the policy away ends what is in force with the same generation; so does taking the VIP away.
func TestWithoutThePolicyAllIsAsUsual(t *testing.T) {
	f := newFlooding(t, func(*Manager) {})
	for _, vip := range []*weirv1.VIP{shop(), shop6()} {
		f.mux.complain(t, flooded(vip.Address, ""))
		f.until(vip.Name+" is scrubbed", func() bool {
			f.clock.pass(time.Second)
			return strings.HasPrefix(f.mux.announces(vip.Address), "scrub")
		})
	}
	r, err := f.client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{shop()}})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mux has it", func() bool { return f.mux.has(r.Generation) })
	if got := f.mux.announces("203.0.113.10"); got != "as usual" || f.mux.limits("203.0.113.10") != (model.Limits{}) {
		t.Errorf("without a policy: %s, %v", got, f.mux.limits("203.0.113.10"))
	}
	f.until("it is told", func() bool { return slices.Contains(f.reasons("shop"), "Restored") })
	if _, err := f.client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop6"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "its route is gone", func() bool { return f.mux.announces("2001:db8:a::10") == "as usual" })
}

// What is in force outlives a leader, and its end is not forgotten: the muxes are never told otherwise in between. A
// manager that does not lead does nothing, whatever it knows.
func TestStepsOutliveTheLeader(t *testing.T) {
	t.Parallel()
	f := &flooding{t: t}
	managers := map[string]*Manager{}
	r := startReplicas(t, 3, f.clock.set, func(m *Manager) { managers[m.cfg.Name] = m })
	f.client = dial(t, r.urls[1])
	f.begin(r.urls[2])
	hole := shop()
	hole.Overload = policy()
	hole.Overload.Steps = hole.Overload.Steps[2:]
	hole.Overload.Steps[0].After = durationpb.New(5 * time.Second)
	apply(t, r.urls[0], hole)
	f.mux.complain(t, flooded("203.0.113.10", "acme"))
	f.until("it is black-holed", func() bool {
		// Slowly: what the mux said must not be old when the leader hears of it.
		f.clock.pass(50 * time.Millisecond)
		return f.mux.announces("203.0.113.10") == "blackhole: withdrawn"
	})
	f.until("its condition is everywhere", func() bool { return f.condition("shop").GetReason() == "BlackHoled" })

	follower := managers["m3"]
	later := follower.now().Add(time.Hour)
	if err := follower.overload.Watch().Step(t.Context(), later); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("a manager that does not lead: %v", err)
	}

	f.mux.complain(t)
	f.mux.mu.Lock()
	f.mux.usual = 0
	f.mux.mu.Unlock()
	r.stops[0]()
	f.until("another one leads", func() bool {
		leader := leaderOf(listManagers(t, f.client))
		return leader != "" && leader != "m1"
	})
	vip := shop()
	vip.Name, vip.Address = "after", "203.0.113.99"
	generation := apply(t, r.urls[1], vip)
	f.until("the mux follows it", func() bool { return f.mux.has(generation) })
	f.mux.mu.Lock()
	usual := f.mux.usual
	f.mux.mu.Unlock()
	if got := f.mux.announces("203.0.113.10"); got != "blackhole: withdrawn" || usual != 0 {
		t.Errorf("after a change of leaders it is announced %s; %d messages told otherwise", got, usual)
	}
	f.clock.pass(time.Hour)
	f.until("it is as usual again", func() bool { return f.mux.announces("203.0.113.10") == "as usual" })
	f.until("the end is told", func() bool { return slices.Contains(f.reasons("shop"), "Restored") })
}

// A pool with a black hole of its own has it announced. What a policy needs of a pool can't be taken from it.
func TestWhatPoolsHaveForPolicies(t *testing.T) {
	f := newFlooding(t, func(*Manager) {})
	apply := func(pool *weirv1.AddressPool, vips ...*weirv1.VIP) error {
		_, err := f.client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: vips, Pools: []*weirv1.AddressPool{pool}})
		return err
	}
	pool := scrubbedPool()
	pool.Blackhole = &weirv1.Diversion{Communities: []string{"65535:666"}}
	if err := apply(pool); err != nil {
		t.Fatal(err)
	}
	f.mux.complain(t, flooded("203.0.113.10", "acme"))
	f.until("it is black-holed", func() bool {
		f.clock.pass(time.Second)
		return f.mux.announces("203.0.113.10") == "blackhole: via invalid IP with [65535:666]"
	})

	bare, half := proto.CloneOf(pool), proto.CloneOf(pool)
	bare.Scrubbers = nil
	half.Scrubbers[0].NextHops, half.Scrubbers[0].Communities = []string{"10.0.9.2"}, nil
	outside := shop()
	outside.Name, outside.Address, outside.Overload = "outside", "198.51.100.10", policy()
	unknown := shop()
	unknown.Overload = policy()
	unknown.Overload.Steps[1].Scrubber = "west"
	for want, err := range map[string]error{
		"pools[0].scrubbers: the overload policy of VIP shop needs it: pool public has no scrubber":                                                apply(bare),
		"pools[0].scrubbers: the overload policy of VIP shop6 needs it: scrubber east of pool public has neither an ipv6 next hop nor a community": apply(half),
		"vips[0].overload.steps[1].scrubber: there is no scrubber east: the address is in no pool, and pools have the scrubbers":                   apply(pool, outside),
		"vips[0].overload.steps[1].scrubber: pool public has no scrubber west: there are east":                                                     apply(pool, unknown),
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
	if _, err := f.client.DeleteAddressPool(t.Context(), &weirv1.DeleteAddressPoolRequest{Name: "public"}); err == nil {
		t.Error("a pool that policies need was deleted")
	}
}
