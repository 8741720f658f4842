package publish

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/steered"
	"github.com/weirlb/weir/internal/store"
)

// Muxes wait for the hosts, each for HostsGrace at most, and for other managers' hosts.
func TestGate(t *testing.T) {
	begin := time.Unix(1000, 0)
	g := newGate()
	host1, host2 := &HostFeed{}, &HostFeed{}
	s, others := &store.State{Generation: 10}, map[string]model.Generation{}
	steps := []struct {
		name  string
		after time.Duration
		do    func(now time.Time)
		ready model.Generation
		wait  time.Duration
	}{
		{"nothing is added", 0, func(time.Time) {}, 10, 0},
		{"two hosts must have something", 0, func(now time.Time) { g.need(host1, 8, now); g.need(host2, 10, now) }, 7, HostsGrace},
		{"one has it", HostsGrace / 4, func(time.Time) { host1.acked = 8; g.ack(host1) }, 9, HostsGrace * 3 / 4},
		{"more is added", HostsGrace / 2, func(now time.Time) { s.Generation = 12; g.need(host2, 12, now) }, 9, HostsGrace / 2},
		{"it had its time", HostsGrace, func(time.Time) {}, 12, 0},
		{"it is not waited for again", HostsGrace, func(now time.Time) { s.Generation = 13; g.need(host2, 13, now) }, 13, 0},
		{"until it is current", HostsGrace, func(now time.Time) {
			host2.acked = 13
			g.ack(host2)
			s.Generation = 14
			g.need(host2, 14, now)
		}, 13, HostsGrace},
		{"it goes", HostsGrace, func(time.Time) { g.forget(host2) }, 14, 0},
		{"another manager's hosts are behind", 2 * HostsGrace, func(time.Time) {
			others = map[string]model.Generation{"other": 12}
		}, 12, 2 * HostsGrace},
		{"they get on", 3 * HostsGrace, func(time.Time) { others["other"] = 13 }, 13, 2 * HostsGrace},
		{"that manager does nothing", 5 * HostsGrace, func(time.Time) {}, 14, 0},
		{"it does again", 6 * HostsGrace, func(time.Time) { others["other"] = 14 }, 14, 0},
	}
	for _, step := range steps {
		now := begin.Add(step.after)
		step.do(now)
		own, wait := g.ready(s, now)
		if ready, wait := g.all(others, own, wait, now); ready != step.ready || wait != step.wait {
			t.Errorf("%s: ready up to %d, look again after %s, want %d and %s", step.name, ready, wait, step.ready, step.wait)
		}
	}
}

// After a start, hosts get the time to connect.
func TestGateOpensLate(t *testing.T) {
	begin := time.Unix(1000, 0)
	s := &store.State{Generation: 10}
	s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
	g := newGate()
	g.begin(s, begin)
	if ready, wait := g.ready(s, begin); ready != 0 || wait != HostsGrace {
		t.Errorf("ready up to %d, look again after %s", ready, wait)
	}
	g.hosts++
	if ready, _ := g.ready(s, begin); ready != 10 {
		t.Errorf("ready up to %d with all hosts", ready)
	}
	g.hosts--
	if ready, wait := g.ready(s, begin.Add(HostsGrace)); ready != 10 || wait != 0 {
		t.Errorf("ready up to %d, look again after %s when hosts had their time", ready, wait)
	}
}

// What hosts need nothing of goes to muxes without a word of other managers, and nothing behind what hosts do need.
func TestWhatNeedsNoHost(t *testing.T) {
	at := func(generation model.Generation, alone bool) heldState {
		return heldState{state: &store.State{Generation: generation}, needsNoHost: alone}
	}
	h := &Hub{}
	if got := h.skipUnaffected(7); got != 7 {
		t.Errorf("before hosts were ready once: up to %d, want 7", got)
	}
	h.released = &store.State{Generation: 10}
	for _, c := range []struct {
		name  string
		held  []heldState
		ready model.Generation // by what all managers say
		want  model.Generation
	}{
		{"nothing is held", nil, 9, 10},
		{"hosts need it", []heldState{at(11, false)}, 10, 10},
		{"and have it", []heldState{at(11, false)}, 11, 11},
		{"they do not", []heldState{at(11, true), at(12, true)}, 10, 12},
		{"others said nothing for long", []heldState{at(11, true)}, 5, 11},
		{"behind what they need", []heldState{at(11, true), at(12, false), at(13, true)}, 10, 11},
		{"after what they have", []heldState{at(11, false), at(12, true), at(13, false)}, 11, 12},
	} {
		h.held = c.held
		if got := h.skipUnaffected(c.ready); got != c.want {
			t.Errorf("%s: up to %d, want %d", c.name, got, c.want)
		}
	}
	for _, c := range []struct {
		before, ready model.Generation
		want          bool
	}{{0, 10, true}, {10, 11, false}, {10, 12, true}, {11, 13, true}, {12, 13, false}, {12, 11, true}} {
		h.held, h.ready = []heldState{at(11, true), at(12, false), at(13, true)}, c.before
		if got := h.awaited(c.ready); got != c.want {
			t.Errorf("from %d to %d: awaited %t, want %t", c.before, c.ready, got, c.want)
		}
	}
}

func on(host, address string) model.Backend {
	return model.Backend{Address: netip.MustParseAddr(address), Port: 80, Host: host, Weight: 1}
}

func newVIP(name, address string, backends ...model.Backend) model.VIP {
	return model.VIP{
		Name: name, Tenant: "default", Address: netip.MustParseAddr(address),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80, Backends: backends}},
	}
}

// What muxes wait for: that a host has a backend, or what one must know before muxes run the tables.
func TestWhatAddsToHosts(t *testing.T) {
	old := newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9"), on("host2", "10.3.2.9"))
	weight := newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9"), on("host2", "10.3.2.9"))
	weight.Endpoints[0].Backends[0].Weight = 7
	checked, flowTable := newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9"), on("host2", "10.3.2.9")), old
	checked.Endpoints[0].HealthCheck, checked.Endpoints[0].AllUnhealthy = &model.HealthCheck{Type: model.CheckTCP}, model.KeepAll
	flowTable.Consistency = model.ConsistencyFlowTable
	start := time.Unix(1000, 0)
	put := func(s *store.State, vip model.VIP) {
		s.PutVIP(vip)
		for key, table := range s.ChangedTables(vip, start, nil, nil) {
			s.Tables.Set(key, table)
		}
	}
	through := on("host1", "10.3.1.9")
	through.Tunnel = netip.MustParseAddr("10.2.1.2")
	s := &store.State{}
	s.PutNode(model.Node{Name: "host1", Role: model.RoleHost})
	s.PutNode(model.Node{Name: "host2", Role: model.RoleHost})
	put(s, old)
	for _, c := range []struct {
		name string
		vip  model.VIP
		want bool
	}{
		{"the same", old, false},
		{"another check", checked, false},
		{"another weight: buckets move", weight, true},
		{"other cookies", flowTable, true},
		{"one less", newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9")), false},
		{"one more", newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9"), on("host1", "10.3.1.8")), true},
		{"another host", newVIP("shop", "203.0.113.10", on("host2", "10.3.1.9")), true},
		{"another tunnel", newVIP("shop", "203.0.113.10", through), true},
		{"another address", newVIP("shop", "203.0.113.11", on("host1", "10.3.1.9")), true},
	} {
		next := s.Clone()
		put(next, c.vip)
		adds := false
		for _, change := range newChanges(s, next, store.Delta{VIPs: map[string]bool{"shop": true}}, steered.New(s.State)).hosts {
			adds = adds || change.adds
		}
		if adds != c.want {
			t.Errorf("%s: adds %v, want %v", c.name, adds, c.want)
		}
	}
}

// A host that is replaced by one that can't, or can, hand on subflows of Multipath TCP changes the endpoint for muxes and all hosts.
func TestWhatAHostCanChangesItsEndpoints(t *testing.T) {
	vip := newVIP("shop", "203.0.113.10", on("host1", "10.3.1.9"), on("host2", "10.3.2.9"))
	vip.Endpoints[0].Multipath = true
	with := func(host1, host2 bool) *store.State {
		s := &store.State{}
		s.PutNode(model.Node{Name: "host1", Role: model.RoleHost, Multipath: host1})
		s.PutNode(model.Node{Name: "host2", Role: model.RoleHost, Multipath: host2})
		s.PutVIP(vip)
		for key, table := range s.ChangedTables(vip, time.Unix(1000, 0), nil, nil) {
			s.Tables.Set(key, table)
		}
		return s
	}
	for _, c := range []struct {
		name             string
		before, after    bool
		endpoints, hosts int
	}{{"it can", false, true, 1, 2}, {"it can't any more", true, false, 1, 2}, {"as before", true, true, 0, 0}} {
		before, after := with(c.before, true), with(c.after, true)
		changes := newChanges(before, after, store.Delta{Nodes: map[string]bool{"host1": true}}, steered.New(before.State))
		if len(changes.endpoints) != c.endpoints || len(changes.hosts) != c.hosts {
			t.Errorf("%s: %d endpoints and %d hosts change", c.name, len(changes.endpoints), len(changes.hosts))
		}
	}
}

// A host whose workload has some ranges more, which it asked for, can wait to be told; of all else it hears at once.
func TestWhatAHostOfSNATCanWaitFor(t *testing.T) {
	was := model.HostSNAT{Key: model.SNATKey{VIP: netip.MustParseAddr("203.0.113.10"), Address: netip.MustParseAddr("10.3.1.10")}, Ranges: []model.Range{200, 300}, MaxPorts: 1024, Written: 7}
	for name, c := range map[string]struct {
		change func(*model.HostSNAT)
		waits  bool
	}{
		"nothing":        {func(*model.HostSNAT) {}, true},
		"more":           {func(s *model.HostSNAT) { s.Ranges, s.Written = []model.Range{150, 200, 250, 300, 301}, 8 }, true},
		"less":           {func(s *model.HostSNAT) { s.Ranges, s.Written = []model.Range{300}, 8 }, false},
		"others":         {func(s *model.HostSNAT) { s.Ranges, s.Written = []model.Range{200, 301}, 8 }, false},
		"to be released": {func(s *model.HostSNAT) { s.Reclaim = []model.Range{200} }, false},
		"another limit":  {func(s *model.HostSNAT) { s.Ranges, s.MaxPorts = []model.Range{200, 300, 301}, 2048 }, false},
	} {
		is := was
		if c.change(&is); grew(was, is) != c.waits {
			t.Errorf("%s: it can wait: %v", name, !c.waits)
		}
	}
}
