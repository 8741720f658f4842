package resource

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

func anyTenant(string) bool { return true }

func told(s *store.State, sees func(string) bool) *weirv1.GetStatusResponse {
	response := &weirv1.GetStatusResponse{}
	hosts := map[string]bool{}
	for name := range s.Nodes.All() {
		hosts[name] = true
	}
	addSummary(response, summarize(s, answering.New(nil, s)), sees, hosts)
	return response
}

// crowd is a State of n VIPs of two tenants, with two backends each, on 100 hosts; those that broken names have one
// that is unhealthy.
func crowd(n int, broken func(i int) bool) *store.State {
	s := &store.State{}
	health := make([]desired.HostHealth, 100)
	for i := range health {
		health[i] = desired.HostHealth{}
		s.PutNode(model.Node{Name: fmt.Sprintf("host%02d", i), Role: model.RoleHost})
	}
	for i := range n {
		vip := model.VIP{Name: fmt.Sprintf("vip%06d", i), Tenant: []string{"red", "blue"}[i%2], Address: netip.AddrFrom4([4]byte{203, byte(i >> 16), byte(i >> 8), byte(i)})}
		e := model.Endpoint{Protocol: model.TCP, Port: 80, HealthCheck: &model.HealthCheck{}}
		for j := range 2 {
			host := (i + j) % len(health)
			b := model.Backend{Host: fmt.Sprintf("host%02d", host), Address: netip.AddrFrom4([4]byte{10, 3, byte(host), 1}), Port: uint16(1024 + i%30000), Weight: 1}
			state := model.BackendHealth{Health: model.HealthHealthy}
			if j == 0 && broken(i) {
				state = model.BackendHealth{Health: model.HealthUnhealthy, Reason: strings.Repeat("x", 4096)}
			}
			health[host][desired.HealthKey{Endpoint: desired.Key(vip, e), Backend: b.AddrPort()}] = state
			e.Backends = append(e.Backends, b)
		}
		vip.Endpoints = []model.Endpoint{e}
		s.PutVIP(vip)
	}
	for i, h := range health {
		s.Health.Set(fmt.Sprintf("host%02d", i), h)
	}
	return s
}

// The answer tells of each of 100 000 VIPs and is as large as for few: bytes by hosts and lines, not by VIPs.
func TestStatusOfManyVIPsIsSmall(t *testing.T) {
	t.Parallel()
	const n = 100_000
	s := crowd(n, func(i int) bool { return i%2 == 1 || i == n-2 }) // all of blue, and one of red
	bare := model.VIP{Name: "zz-bare", Tenant: "red", Address: netip.MustParseAddr("2001:db8::1"), Endpoints: []model.Endpoint{{Protocol: model.UDP, Port: 53}}}
	s.PutVIP(bare)

	all := told(s, anyTenant)
	if all.Vips != n+1 || all.Backends != 2*n || all.BackendsUnhealthy != n/2+1 || all.VipWarningsTotal != n/2+2 {
		t.Errorf("counted %d VIPs, %d backends, %d of them unhealthy, %d warnings", all.Vips, all.Backends, all.BackendsUnhealthy, all.VipWarningsTotal)
	}
	if len(all.VipWarnings) != maxWarnings || !strings.HasPrefix(all.VipWarnings[0], "vip zz-bare, UDP 53: has no backends") {
		t.Errorf("%d lines, the first is %q: want the worst VIP first, whatever its name", len(all.VipWarnings), all.VipWarnings[0])
	}
	var serving, unhealthy uint32
	for _, h := range all.HostBackends {
		serving, unhealthy = serving+h.Serving, unhealthy+h.Unhealthy
	}
	if serving != n+n/2-1 || unhealthy != n/2+1 || len(all.HostBackends) != 100 || !slices.Equal(all.HostBackends[7].Tunnels, []string{"10.3.7.1"}) {
		t.Errorf("hosts have %d backends that serve, and %d unhealthy: %v", serving, unhealthy, all.HostBackends[7])
	}
	if size := proto.Size(all); size > 64<<10 {
		t.Errorf("the answer has %d bytes for %d VIPs, want 64 KiB at most", size, n)
	}

	// A viewer of one tenant is told of its own VIPs, and not less for what there is of others.
	red := told(s, func(tenant string) bool { return tenant == "red" })
	if red.Vips != n/2+1 || red.VipWarningsTotal != 2 || len(red.VipWarnings) != 2 || !strings.HasPrefix(red.VipWarnings[1], "vip vip099998, TCP 80: backend 10.3.98.1:") {
		t.Errorf("red is told of %d VIPs, and %.200q", red.Vips, red.VipWarnings)
	}
}

// A summary is made once for a State, and for another one only when what it took is a small part of the time.
func TestSummariesAreShared(t *testing.T) {
	var c summaries
	now, took := time.Now(), 100*time.Millisecond
	clock := func() time.Time { now = now.Add(took); return now }
	one, other := crowd(3, func(int) bool { return false }), crowd(4, func(int) bool { return false })
	one.Generation, other.Generation = 1, 2
	vips := func(s *store.State) (n uint32) {
		for _, t := range c.get(&Config{}, s, s, clock) {
			n += t.vips
		}
		return n
	}
	for range 100 {
		if vips(one) != 3 {
			t.Fatal("not the State's summary")
		}
	}
	took = 0
	if c.made != 1 || vips(other) != 4 || c.made != 2 {
		t.Fatalf("made %d summaries of two States", c.made)
	}
	c.until = now.Add(time.Second)
	if vips(one) != 4 || c.made != 2 {
		t.Error("a summary was made although the last one took a large part of the time")
	}
	now = now.Add(time.Second)
	if vips(one) != 3 || c.made != 3 {
		t.Error("an old summary is told for ever")
	}
}

// A State that differs in what no summary tells of has the summary of the one before; whatever it tells of makes another one.
func TestASummaryIsMadeOfWhatItTells(t *testing.T) {
	now := time.Now()
	clock := func() time.Time { now = now.Add(time.Hour); return now } // what a summary took does not matter
	var c summaries
	neighbors := []string{"203.0.113.1"}
	config := &Config{Reported: func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) {
		return nodestatus.Status{}, &weirv1.NodeStatus{Mux: &weirv1.MuxStatus{Neighbors: neighbors}}
	}}
	s := crowd(3, func(int) bool { return false })
	s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux, NeighborPrefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}})
	step := func(what string, want int, change func(*store.State)) {
		t.Helper()
		next := s.Clone()
		change(next)
		s = next
		before := c.made
		now = now.Add(1000 * time.Hour)
		if c.get(config, s, s, clock); c.made-before != want {
			t.Errorf("%s: made %d summaries, want %d", what, c.made-before, want)
		}
	}
	step("the first", 1, func(*store.State) {})
	step("a host's status", 0, func(s *store.State) { s.Status.Set("host01", nodestatus.Status{Generation: 7, Seen: now}) })
	step("when a mux was heard", 0, func(s *store.State) { s.Status.Set("mux1", nodestatus.Status{Seen: now}) })
	step("a change", 1, func(s *store.State) { s.Generation++ })
	step("a host's health", 1, func(s *store.State) { s.Reported.Set("host01", 9) })
	step("another host's health", 1, func(s *store.State) { s.Reported.Set("host02", 11) })
	step("the same host's health again", 1, func(s *store.State) { s.Reported.Set("host02", 12) })
	step("a host that is gone", 1, func(s *store.State) { s.Reported.Delete("host01") })
	step("a mux that connects", 1, func(s *store.State) { s.Streams.Set("mux1", true) })
	step("a mux that refuses", 1, func(s *store.State) { s.Status.Set("mux1", nodestatus.Status{Rejected: 3, Reason: "full"}) })
	step("why it does", 1, func(s *store.State) { s.Status.Set("mux1", nodestatus.Status{Rejected: 3, Reason: "odd"}) })
	step("a mux that is excluded", 1, func(s *store.State) { s.Excluded.Set("mux1", "silent") })
	step("a mux that may answer", 1, func(s *store.State) { s.Neighbors.Set("mux1", neighbor.Mux{Name: "mux1"}) })
	step("for other addresses", 1, func(s *store.State) {
		s.Neighbors.Set("mux1", neighbor.Mux{Name: "mux1", Prefixes: []netip.Prefix{netip.MustParsePrefix("203.0.113.0/25")}})
	})
	neighbors = nil
	step("a mux that answers no more", 1, func(*store.State) {})
}

// A refusal of many VIPs is one line, of all tenants together.
func TestRefusalIsOneLine(t *testing.T) {
	s := crowd(5, func(int) bool { return false })
	s.PutNode(model.Node{Name: "mux1", Role: model.RoleMux})
	s.PutNode(model.Node{Name: "mux2", Role: model.RoleMux})
	s.Streams.Set("mux1", true)
	s.Status.Set("mux1", nodestatus.Status{Generation: 7})
	s.Status.Set("mux2", nodestatus.Status{Rejected: 7, Reason: "the table buckets is full"})
	all := told(s, anyTenant)
	if want := []string{"vip vip000001 and 4 others: refused by mux2: weir describe mux mux2 says why"}; !slices.Equal(all.VipWarnings, want) {
		t.Errorf("told %q, want %q", all.VipWarnings, want)
	}
}

// Hosts that are named and not there take no row each of what all are told: a line for each VIP says that they are missing.
func TestHostsThatAreNotThere(t *testing.T) {
	s := &store.State{}
	for i := range 50 {
		vip := model.VIP{Name: fmt.Sprintf("vip%02d", i), Tenant: "red", Address: netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})}
		e := model.Endpoint{Protocol: model.TCP, Port: 80}
		for j := range 1000 {
			b := model.Backend{Host: fmt.Sprintf("nowhere%02d-%d", i, j), Address: netip.AddrFrom4([4]byte{10, byte(i), byte(j >> 8), byte(j)}), Port: 80, Weight: 1}
			e.Backends = append(e.Backends, b)
		}
		vip.Endpoints = []model.Endpoint{e}
		s.PutVIP(vip)
	}
	all := told(s, anyTenant)
	if len(all.HostBackends) != 0 || all.Backends != 50_000 || all.VipWarningsTotal != 100 {
		t.Errorf("%d hosts are told of, %d backends, %d warnings", len(all.HostBackends), all.Backends, all.VipWarningsTotal)
	}
	if want := "vip vip00, TCP 80: no host of a backend has joined: new connections are dropped"; all.VipWarnings[0] != want {
		t.Errorf("the first warning is %q, want %q", all.VipWarnings[0], want)
	}
	if size := proto.Size(all); size > 64<<10 {
		t.Errorf("the answer has %d bytes", size)
	}
	s.PutNode(model.Node{Name: "nowhere07-3", Role: model.RoleHost})
	if all = told(s, anyTenant); len(all.HostBackends) != 1 || all.HostBackends[0].Serving != 1 {
		t.Errorf("one host joined, and these are told of: %v", all.HostBackends)
	}
}

// A VIP that was made a moment ago is not in the trouble of one whose backends are broken.
func TestAnEndpointThatDoesNotServeSaysWhy(t *testing.T) {
	e := model.Endpoint{Protocol: model.TCP, Port: 80, HealthCheck: &model.HealthCheck{}, Backends: []model.Backend{
		{Host: "host1", Address: netip.MustParseAddr("10.3.1.11"), Port: 80, Weight: 1},
		{Host: "host1", Address: netip.MustParseAddr("10.3.1.12"), Port: 80, Weight: 1},
	}}
	vip := model.VIP{Name: "shop", Address: netip.MustParseAddr("203.0.113.10"), Endpoints: []model.Endpoint{e}}
	refusing := e
	refusing.AllUnhealthy = model.Refuse
	for _, c := range []struct {
		of     model.Endpoint
		health []model.Health
		want   string
	}{
		{e, nil, "no backend was checked yet: connections go to all of them"},
		{refusing, nil, "no backend was checked yet: new connections are dropped"},
		{e, []model.Health{model.HealthUnhealthy}, "no backend is healthy: connections go to all of them"},
		{refusing, []model.Health{model.HealthUnhealthy, model.HealthUnhealthy}, "no backend is healthy: new connections are dropped"},
		{e, []model.Health{model.HealthUnhealthy, model.HealthHealthy}, ""},
	} {
		s := &store.State{}
		s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
		reported := desired.HostHealth{}
		for i, health := range c.health {
			reported[desired.HealthKey{Endpoint: desired.Key(vip, e), Backend: e.Backends[i].AddrPort()}] = model.BackendHealth{Health: health}
		}
		s.Health.Set("host1", reported)
		if got := endpointWarning(s, vip, c.of); got != c.want {
			t.Errorf("%v of two backends: %q, want %q", c.health, got, c.want)
		}
	}
}
