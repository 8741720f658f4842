package table

import (
	"net/netip"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sessioncount"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

var (
	shopKey = model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	first   = model.HostBackendKey{Endpoint: shopKey, Tunnel: netip.MustParseAddr("10.3.1.11")}
)

// moving is a cluster of two muxes and two hosts, of whose VIP a bucket moves away from host1 at now; the second mux is
// behind.
func moving(t *testing.T, now time.Time, hardware *weirv1.Hardware) *store.State {
	t.Helper()
	vip, err := compile.VIP(&weirv1.VIP{Name: "shop", Tenant: "acme", Address: "203.0.113.10", Hardware: hardware, Endpoints: []*weirv1.Endpoint{{
		Protocol: "TCP", Port: 80,
		Backends: []*weirv1.Backend{{Address: "10.3.1.11", Port: 8080, Host: "host1"}, {Address: "10.3.2.11", Port: 8080, Host: "host2"}},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	s := &store.State{Computed: sorted.Of(map[model.EndpointKey]model.Generation{shopKey: 10})}
	s.PutVIP(vip)
	for name, role := range map[string]model.Role{"mux1": model.RoleMux, "mux2": model.RoleMux, "host1": model.RoleHost} {
		s.PutNode(model.Node{Name: name, Role: role})
		s.Streams.Set(name, true)
	}
	s.Status = sorted.Of(map[string]nodestatus.Status{"mux1": {Generation: 10}, "mux2": {Generation: 9}})
	rows := []desired.Row{
		{Slot: 1, Backend: netip.MustParseAddrPort("10.3.1.11:8080"), Tunnel: first.Tunnel},
		{Slot: 2, Backend: netip.MustParseAddrPort("10.3.2.11:8080"), Tunnel: netip.MustParseAddr("10.3.2.11")},
	}
	s.Tables.Set(shopKey, desired.Table{
		Rows: rows, Buckets: []model.Slot{1, 2}, Cookies: model.CookiesOn, Moves: []desired.Move{{Bucket: 1, From: 1, Since: now}},
	})
	return s
}

// moveStep is what happens next, and whether a move is over then.
type moveStep struct {
	name string
	do   func()
	over bool
}

func checkMoves(t *testing.T, s *store.State, counted sessioncount.Counts, now *time.Time, steps []moveStep) {
	t.Helper()
	moves := newTransitions(desired.SettleTime)
	for _, step := range steps {
		step.do()
		due, _ := moves.due(s, counted, *now)
		if over := len(due) == 1; over != step.over {
			t.Errorf("%s: over is %v, want %v", step.name, over, step.over)
		}
	}
}

// What must be true before a move is over, one condition after another.
func TestWhenAMoveIsOver(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	s, counted := moving(t, now, nil), sessioncount.New()
	report := func(generation model.Generation, draining uint64) { report(counted, now, generation, draining) }
	checkMoves(t, s, counted, &now, []moveStep{
		{"a mux is behind", func() { now = now.Add(time.Minute); report(10, 0) }, false},
		{"all muxes are current", func() { s.Status.Set("mux2", nodestatus.Status{Generation: 11}) }, false},
		{"the report is from before", func() { now = now.Add(desired.SettleTime) }, false},
		{"a connection is left", func() { report(10, 1) }, false},
		{"the host did not know of the move", func() { report(9, 0) }, false},
		{"none is left", func() { report(10, 0) }, true},
		{"a mux that joins is behind", func() { s.Status.Set("mux2", nodestatus.Status{}) }, false},
		{"it went away", func() { s.Streams.Delete("mux2") }, true},
		{"no mux is there to tell", func() { s.Streams.Delete("mux1") }, false},
		{"the idle bound", func() { now = now.Add(model.DefaultIdleTCP) }, true},
	})
}

// A move of a VIP that switches may serve is over when its host has counted no connection, or nothing for long.
func TestWhenAMoveOnSwitchesIsOver(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	s, counted := moving(t, now, &weirv1.Hardware{Placement: "auto"}), sessioncount.New()
	s.Status.Set("mux2", nodestatus.Status{Generation: 10})
	report := func(draining uint64) { report(counted, now, 10, draining) }
	checkMoves(t, s, counted, &now, []moveStep{
		{"a connection is left", func() { report(1) }, false},
		{"the idle bound, with a connection left", func() { now = now.Add(model.DefaultIdleTCP); report(1) }, false},
		{"none is left", func() { report(0) }, true},
		{"one was found again", func() { report(1) }, false},
		{"the host is away for minutes", func() { now = now.Add(UncountedTime - time.Second) }, false},
		{"it is away for too long", func() { now = now.Add(time.Second) }, true},
	})
	fresh := sessioncount.New()
	checkMoves(t, moving(t, now, &weirv1.Hardware{Placement: "auto"}), fresh, &now, []moveStep{
		{"the host has never counted", func() {}, false},
		{"almost the idle bound", func() { now = now.Add(model.DefaultIdleTCP - time.Second) }, false},
		{"the idle bound", func() { now = now.Add(time.Second) }, true},
	})
	checkMoves(t, moving(t, now.Add(-model.DefaultIdleTCP), &weirv1.Hardware{Placement: "auto"}), fresh, &now, []moveStep{
		{"a manager that began just now, and knows no count", func() {}, false},
		{"it has waited for one", func() { now = now.Add(UncountedTime) }, true},
	})
	checkMoves(t, moving(t, now, &weirv1.Hardware{Placement: "never"}), counted, &now, []moveStep{
		{"no switch may serve it, and a connection is left", func() { now = now.Add(model.DefaultIdleTCP); report(1) }, true},
	})
}

func report(counted sessioncount.Counts, now time.Time, generation model.Generation, draining uint64) {
	counted.Put("host1", sessioncount.Count{At: now, Generation: generation, Of: map[model.HostBackendKey]model.BackendSessions{
		first: {Key: first, Draining: draining},
	}})
}

// A host's report to another manager, whose clock is behind by an hour, ends a move as one to this does.
func TestAMoveEndsByAReportToAnotherManager(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	t0 := newTransitions(desired.SettleTime)
	s := &store.State{}
	tell := func(generation model.Generation, draining ...model.HostBackendKey) {
		s.Status.Set("host1", nodestatus.Status{SessionCount: nodestatus.SessionCount{At: now.Add(-time.Hour), Generation: generation, Draining: draining}})
		t0.observe(s, now)
	}
	own := sessioncount.New()
	own.Put("host1", sessioncount.Count{At: now.Add(-time.Minute), Generation: 9}) // from when it reported here
	if c, said := t0.newest("host1", own); !said || c.Generation != 9 {
		t.Errorf("without another it is %+v", c)
	}
	tell(10, first)
	if c, said := t0.newest("host1", own); !said || c.Generation != 10 || !c.At.Equal(now) || c.Of[first].Draining == 0 {
		t.Errorf("with a connection left it is %+v", c)
	}
	was := now
	now = now.Add(time.Minute)
	t0.observe(s, now)
	if c, _ := t0.newest("host1", own); !c.At.Equal(was) {
		t.Errorf("the same count is newer when it is looked at again: %s", c.At)
	}
	tell(10)
	if c, _ := t0.newest("host1", sessioncount.New()); !c.At.Equal(now) || c.Of[first].Draining != 0 {
		t.Errorf("with none left it is %+v", c)
	}
}
