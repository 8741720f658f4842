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

// What must be true before a move is over, one condition after another.
func TestWhenAMoveIsOver(t *testing.T) {
	now := time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC)
	vip, err := compile.VIP(&weirv1.VIP{Name: "shop", Tenant: "acme", Address: "203.0.113.10", Endpoints: []*weirv1.Endpoint{{
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
	moves := newTransitions(desired.SettleTime)
	counted := sessioncount.New()
	report := func(generation model.Generation, draining uint64) {
		counted.Put("host1", sessioncount.Count{At: now, Generation: generation, Of: map[model.HostBackendKey]model.BackendSessions{
			first: {Key: first, Draining: draining},
		}})
	}
	for _, step := range []struct {
		name string
		do   func()
		over bool
	}{
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
	} {
		step.do()
		due, _ := moves.due(s, counted, now)
		if over := len(due) == 1; over != step.over {
			t.Errorf("%s: over is %v, want %v", step.name, over, step.over)
		}
	}
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
