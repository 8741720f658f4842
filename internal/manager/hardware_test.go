package manager

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/rpc"
)

// fakeSwitch follows a manager as weir-switch does.
type fakeSwitch struct {
	name   string
	client *rpc.Client

	reporting  sync.Mutex // one report after the other
	mu         sync.Mutex
	generation uint64
	entries    map[string]*weirv1.SwitchEntry
	history    []string // of one VIP: what the switch was told, each once
	mute       bool     // it does not report
	refuses    bool
	others     int      // VIPs of others that it refuses
	unrouted   []string // VIPs that it has withdrawn for want of a route
}

func startSwitch(t *testing.T, url, name string, mute bool, addresses ...string) *fakeSwitch {
	sw := &fakeSwitch{name: name, client: dial(t, url), entries: map[string]*weirv1.SwitchEntry{}, mute: mute}
	goFollow(t, name, func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.SyncSwitchResponse], error) {
		return sw.client.SyncSwitch(ctx, &weirv1.SyncSwitchRequest{Name: name, Addresses: addresses, Version: "test"})
	}, sw.apply)
	return sw
}

func (s *fakeSwitch) apply(p *weirv1.SyncSwitchResponse) error {
	s.mu.Lock()
	if p.GetSnapshot() {
		s.entries = map[string]*weirv1.SwitchEntry{}
	}
	for _, e := range p.GetEntries() {
		s.entries[e.GetVip()] = e
	}
	for _, vip := range p.GetRemoved() {
		delete(s.entries, vip)
	}
	s.generation = p.GetGeneration()
	if text := s.text(); len(s.history) == 0 || s.history[len(s.history)-1] != text {
		s.history = append(s.history, text)
	}
	mute := s.mute
	s.mu.Unlock()
	if mute {
		return nil
	}
	return s.report()
}

// text is what the switch holds.
func (s *fakeSwitch) text() string {
	var lines []string
	for _, vip := range slices.Sorted(maps.Keys(s.entries)) {
		line := vip + ":"
		for _, m := range s.entries[vip].GetMembers() {
			line += fmt.Sprintf(" %s×%d", m.GetTunnel(), m.GetEntries())
		}
		if inner := s.entries[vip].GetInner(); inner != "" {
			line += " for " + inner
		}
		if s.entries[vip].GetAnnounce() {
			line += ", announced"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "; ")
}

func (s *fakeSwitch) holds() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text()
}

func (s *fakeSwitch) report() error {
	s.reporting.Lock()
	defer s.reporting.Unlock()
	s.mu.Lock()
	r := &weirv1.ReportSwitchRequest{Name: s.name, Generation: s.generation, Status: &weirv1.SwitchStatus{
		Driver: "fake", Members: 64, Weights: true, Tips: true, Ecmp: &weirv1.SwitchTable{Size: 64}, Tunnels: &weirv1.SwitchTable{Size: 64},
		Unrouted: s.unrouted,
	}}
	for i := range s.others {
		r.Refused = append(r.Refused, &weirv1.SwitchRefusal{Vip: fmt.Sprintf("198.51.100.%d", i), Table: "tunnels", Need: 2, Free: 1})
	}
	for vip := range s.entries {
		if s.refuses {
			r.Refused = append(r.Refused, &weirv1.SwitchRefusal{Vip: vip, Table: "tunnels", Need: 2, Free: 1})
		}
	}
	s.mu.Unlock()
	_, err := s.client.ReportSwitch(context.Background(), r)
	return err
}

// set has the switch report or not, refuse or not, from now on.
func (s *fakeSwitch) set(t *testing.T, mute, refuses bool) {
	t.Helper()
	s.mu.Lock()
	s.mute, s.refuses = mute, refuses
	s.mu.Unlock()
	if !mute {
		eventually(t, s.name+" has reported", func() bool { return s.report() == nil })
	}
}

// refuseOthers has the switch refuse so many other VIPs, and what it is told too if there are any.
func (s *fakeSwitch) refuseOthers(t *testing.T, n int) {
	t.Helper()
	s.mu.Lock()
	s.others = n
	s.mu.Unlock()
	s.set(t, false, n > 0)
}

// inHardware is shop in switches, without a health check.
func inHardware(switches ...string) *weirv1.VIP {
	vip := shop()
	vip.Endpoints[0].HealthCheck = nil
	vip.Hardware = &weirv1.Hardware{Placement: "require", Switches: switches}
	return vip
}

// city is a manager with two hosts and a switch.
type city struct {
	clock
	t   *testing.T
	dir string
	m   *Manager
	url string
	api *rpc.Client

	stop  func()
	sw    *fakeSwitch
	hosts []*fakeHost
}

// begin starts the manager of the city, or one in its place.
func (c *city) begin(mute bool) {
	c.t.Helper()
	c.url, c.stop = start(c.t, Config{DataDir: c.dir}, c.set, func(m *Manager) { c.m = m })
	c.api = dial(c.t, c.url)
	c.hosts = []*fakeHost{startHost(c.t, c.url, "host1", "10.2.1.1"), startHost(c.t, c.url, "host2", "10.2.2.2")}
	c.sw = startSwitch(c.t, c.url, "sw1", mute, "10.1.0.1")
	eventually(c.t, "all are registered", func() bool { return c.m.store.State().Nodes.Len() == 3 })
}

func (c *city) apply(vip *weirv1.VIP) {
	c.t.Helper()
	if _, err := c.api.ApplyVIPs(c.t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}}); err != nil {
		c.t.Fatal(err)
	}
}

// awaitPhase waits until the VIP has a place in that phase; empty: none at all.
func (c *city) awaitPhase(want placementpolicy.Phase) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the place is in phase %q, is %q", want, c.phase()), func() bool { return c.phase() == want })
}

// passUntil has time pass until the VIP's place is in a phase: a leader measures from when it has seen the one before.
func (c *city) passUntil(want placementpolicy.Phase, by time.Duration) {
	c.t.Helper()
	eventually(c.t, fmt.Sprintf("the place is in phase %q", want), func() bool {
		c.pass(by / 8)
		return c.phase() == want
	})
}

func (c *city) phase() placementpolicy.Phase { return c.phaseIn("sw1") }

func (c *city) phaseIn(device string) placementpolicy.Phase {
	for state := range c.m.store.State().Placements.Values() {
		return state.Places[device].Phase
	}
	return ""
}

// A VIP goes into a switch and out of it in the order of the contract, the entry follows its backends, and what the switch
// refuses is tried again later.
func TestAVIPGoesIntoASwitchAndOut(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	c.apply(inHardware("sw1"))
	c.awaitPhase(placementpolicy.Hardware)
	one, both := "203.0.113.10: 10.3.1.11×1", "203.0.113.10: 10.3.1.11×1 10.3.2.11×2"
	if got, want := strings.Join(c.sw.history, "\n"), "\n"+both+"\n"+both+", announced"; got != want {
		t.Errorf("the switch was told\n%s\nwant\n%s", got, want)
	}
	less := inHardware("sw1")
	less.Endpoints[0].Backends = less.Endpoints[0].Backends[:1]
	c.apply(less)
	eventually(t, "the entry follows the backends", func() bool { return c.sw.holds() == one+", announced" })
	c.sw.set(t, false, true)
	c.awaitPhase(placementpolicy.Withdrawing)
	c.sw.set(t, false, false)
	c.passUntil(placementpolicy.Evicted, time.Second)
	if got := c.m.store.State().Placements.At(c.m.store.State().VIPs.At("shop").Address).Places["sw1"]; got.Attempts != 1 || got.Reason != "table tunnels has room for 1 rows, 2 are needed" {
		t.Errorf("evicted: %+v", got)
	}
	if got := c.sw.holds(); got != "" {
		t.Errorf("it holds %s", got)
	}
	c.passUntil(placementpolicy.Hardware, time.Minute)
	if _, err := c.api.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the entry is gone", func() bool { return c.sw.holds() == "" })
	c.passUntil(placementpolicy.Leaving, time.Second)
	_, err := c.api.DeleteNode(t.Context(), &weirv1.DeleteNodeRequest{Name: "sw1"})
	if err == nil {
		t.Error("a switch is forgotten whose packets hosts still take")
	}
	c.passUntil("", placementpolicy.LeaveTime)
	var reasons []string
	eventually(t, "events are written", func() bool {
		events, err := c.api.ListEvents(t.Context(), &weirv1.ListEventsRequest{Kind: "VIP", Object: "shop"})
		reasons = nil
		for _, e := range events.GetEvents() {
			reasons = append(reasons, e.GetReason())
		}
		return err == nil && slices.Contains(reasons, "HardwareWithdrawn")
	})
	for _, want := range []string{"HardwarePlaced", "HardwareRefused"} {
		if !slices.Contains(reasons, want) {
			t.Errorf("no event %s among %v", want, reasons)
		}
	}
}

// refuse has a host say that it does not steer these VIPs.
func (h *fakeHost) refuse(t *testing.T, vips ...string) {
	t.Helper()
	h.mu.Lock()
	h.unsteered = vips
	h.mu.Unlock()
	eventually(t, h.name+" has reported", func() bool { return h.report() == nil })
}

// A VIP waits for a host that has no room to steer it, and leaves its switch for one, while another VIP goes on.
func TestAVIPWaitsForItsHosts(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	other := inHardware("sw1")
	other.Name, other.Address = "other", "203.0.113.11"
	other.Endpoints[0].Backends = other.Endpoints[0].Backends[1:]
	c.hosts[0].refuse(t, "203.0.113.10", other.GetAddress())
	place := func(vip string) placementpolicy.Place {
		s := c.m.store.State()
		return s.Placements.At(s.VIPs.At(vip).Address).Places["sw1"]
	}
	await := func(vip string, want placementpolicy.Phase, host string) {
		t.Helper()
		eventually(t, vip+" is "+string(want), func() bool {
			c.pass(time.Second / 8)
			for _, h := range c.hosts { // what is old does not count
				_ = h.report()
			}
			return place(vip).Phase == want && place(vip).Host == host
		})
	}
	c.apply(inHardware("sw1"))
	c.apply(other)
	await("other", placementpolicy.Hardware, "")
	await("shop", placementpolicy.Preparing, "host1")
	if got := c.sw.holds(); strings.Contains(got, "203.0.113.10") {
		t.Errorf("the switch holds %s", got)
	}
	response, err := c.api.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	status := response.GetVip().GetStatus()
	if err != nil || len(status.GetSteeringRefused()) != 1 || status.GetSteeringRefused()[0].GetHost() != "host1" ||
		status.GetSteeringRefused()[0].GetReason() != "needs 2 endpoints, has room for 1" ||
		status.GetSwitches()[0].GetReason() != "host host1 does not steer it: needs 2 endpoints, has room for 1" {
		t.Errorf("users are told %v, %v", status, err)
	}
	c.hosts[0].refuse(t)
	await("shop", placementpolicy.Hardware, "")
	c.hosts[1].refuse(t, "203.0.113.10")
	await("shop", placementpolicy.Evicted, "host2")
	if got := c.sw.holds(); got != "203.0.113.11: 10.3.2.11×1, announced" {
		t.Errorf("the switch holds %s", got)
	}
	c.hosts[1].refuse(t)
	eventually(t, "it comes back", func() bool {
		c.pass(time.Minute / 8)
		return place("shop").Phase == placementpolicy.Hardware
	})
}

// Of a switch that refuses more than is kept of it, an entry that is not named may be refused: it is not announced.
func TestMoreRefusalsThanAreKept(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	c.sw.refuseOthers(t, 64)
	startSwitch(t, c.url, "sw2", false, "10.1.0.2")
	eventually(t, "sw2 is registered", func() bool { return c.m.store.State().Nodes.Len() == 4 })
	c.apply(inHardware("sw1", "sw2"))
	eventually(t, "the other switch serves the VIP", func() bool { return c.phaseIn("sw2") == placementpolicy.Hardware })
	if got := c.sw.holds(); strings.Contains(got, "announced") {
		t.Errorf("the switch was told %s", got)
	}
	c.awaitPhase(placementpolicy.Programming)
	c.sw.refuseOthers(t, 0)
	c.awaitPhase(placementpolicy.Hardware)
}

// Whichever phase a leader stops in, the next one goes on from there.
func TestALeaderGoesOnWhereTheOneBeforeStopped(t *testing.T) {
	c := &city{t: t, dir: t.TempDir()}
	again := func(in placementpolicy.Phase, mute bool) {
		t.Helper()
		c.awaitPhase(in)
		c.stop()
		c.begin(mute)
	}
	c.begin(true)
	c.apply(inHardware("sw1"))
	again(placementpolicy.Programming, true)
	if c.awaitPhase(placementpolicy.Programming); c.sw.holds() != "" {
		eventually(t, "it is not announced", func() bool { return !strings.Contains(c.sw.holds(), "announced") })
	}
	eventually(t, "the switch has the entry again", func() bool { return c.sw.holds() != "" })
	c.sw.set(t, false, false)
	c.sw.set(t, true, false)
	again(placementpolicy.Announcing, false)
	again(placementpolicy.Hardware, true)
	away := inHardware("sw1")
	away.Hardware.Placement = "never"
	c.apply(away)
	again(placementpolicy.Withdrawing, true)
	eventually(t, "the switch has the entry, not announced", func() bool { return c.sw.holds() != "" && !strings.Contains(c.sw.holds(), "announced") })
	c.sw.set(t, false, false)
	c.sw.set(t, true, false)
	c.passUntil(placementpolicy.Removing, time.Second)
	again(placementpolicy.Removing, false)
	again(placementpolicy.Leaving, false)
	c.passUntil("", placementpolicy.LeaveTime)
}

// Two switches share the backends of a VIP that is split; when one is refused its entry, the other one has all.
func TestSwitchesShareBackends(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	two := startSwitch(t, c.url, "sw2", false, "10.1.0.2")
	eventually(t, "sw2 is registered", func() bool { return c.m.store.State().Nodes.Len() == 4 })
	vip := inHardware("sw1", "sw2")
	vip.Hardware.Split = true
	vip.Endpoints[0].Backends[1].Weight = vip.Endpoints[0].Backends[0].Weight
	c.apply(vip)
	serves := func(sw *fakeSwitch, want string) {
		t.Helper()
		want = "203.0.113.10: " + want + ", announced"
		eventually(t, sw.name+" has "+want, func() bool { return sw.holds() == want })
	}
	serves(c.sw, "10.3.1.11×1")
	serves(two, "10.3.2.11×1")
	response, err := c.api.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range response.GetVip().GetStatus().GetSwitches() {
		if p.GetPart() != uint32(i+1) || p.GetParts() != 2 || p.GetMembers() != 1 || p.GetEntries() != 1 || p.GetShareErrorPercent() != 0 {
			t.Errorf("the VIP is in %v", p)
		}
	}
	two.set(t, false, true)
	eventually(t, "sw2 is refused", func() bool { return c.phaseIn("sw2") == placementpolicy.Withdrawing })
	serves(c.sw, "10.3.1.11×1 10.3.2.11×1")
	vip.Hardware.Split = false
	vip.Hardware.Switches = []string{"sw1"}
	c.apply(vip)
	serves(c.sw, "10.3.1.11×1 10.3.2.11×1")
}

// Switches behind TIPs share the backends, and the one that routers bring packets to has the TIPs.
func TestSwitchesSendToTIPs(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	two := startSwitch(t, c.url, "sw2", false, "10.1.0.2")
	three := startSwitch(t, c.url, "sw3", false, "10.1.0.3")
	eventually(t, "all are registered", func() bool { return c.m.store.State().Nodes.Len() == 5 })
	vip := inHardware("sw1")
	vip.Hardware.Tips = []*weirv1.TIP{{Switch: "sw2", Address: "192.0.2.2"}, {Switch: "sw3", Address: "192.0.2.3"}}
	vip.Endpoints[0].Backends[1].Weight = vip.Endpoints[0].Backends[0].Weight
	c.apply(vip)
	serves := func(sw *fakeSwitch, want string) {
		t.Helper()
		eventually(t, sw.name+" has "+want, func() bool {
			c.pass(time.Second / 8)
			return sw.holds() == want
		})
	}
	serves(two, "192.0.2.2: 10.3.1.11×1 for 203.0.113.10, announced")
	serves(three, "192.0.2.3: 10.3.2.11×1 for 203.0.113.10, announced")
	serves(c.sw, "203.0.113.10: 192.0.2.2×1 192.0.2.3×1, announced")
	response, err := c.api.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil {
		t.Fatal(err)
	}
	for i, p := range response.GetVip().GetStatus().GetSwitches() {
		if want := []string{"", "192.0.2.2", "192.0.2.3"}[i]; p.GetTip() != want || p.GetMembers() != []uint32{2, 1, 1}[i] {
			t.Errorf("the VIP is in %v", p)
		}
	}
	vip.Hardware.Tips = vip.Hardware.Tips[:1]
	c.apply(vip)
	serves(c.sw, "203.0.113.10: 192.0.2.2×1, announced")
	serves(two, "192.0.2.2: 10.3.1.11×1 10.3.2.11×1 for 203.0.113.10, announced")
	serves(three, "")
	vip.Hardware = &weirv1.Hardware{Placement: "never"}
	dry, err := c.api.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}, DryRun: true})
	if err != nil {
		t.Fatal(err)
	}
	if move := dry.GetVips()[0].GetMove(); !slices.Equal(move.GetFrom(), []string{"sw1", "sw2"}) || len(move.GetTo()) > 0 {
		t.Errorf("a dry run tells %v", move)
	}
	c.apply(vip)
	serves(c.sw, "")
	serves(two, "")
}
