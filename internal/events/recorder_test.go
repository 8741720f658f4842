package events

import (
	"context"
	"log/slog"
	"net/netip"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/trust"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var began = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// newRecorder returns a recorder that does not run yet, and its store. Its clock stands.
func newRecorder(t *testing.T) (*Recorder, *store.Store) {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	c, err := cluster.Open(t.Context(), cluster.Config{Config: etcd.Config{DataDir: t.TempDir(), Log: log}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	run(t, c.Run)
	return New("m1", c.Store, func() time.Time { return began }, log), c.Store
}

// run runs f until the test ends.
func run(t *testing.T, f func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- f(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// recorded are the events in the store, by name, as soon as done holds for them.
func recorded(t *testing.T, s *store.Store, done func(map[string]eventlog.Event) bool) map[string]eventlog.Event {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		all, _, err := s.Events.List(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		events := map[string]eventlog.Event{}
		for _, e := range all {
			events[e.Name()] = e
		}
		if done(events) {
			return events
		}
		if time.Now().After(deadline) {
			t.Fatalf("recorded are %+v", events)
		}
	}
}

// Repeated events become one with a count, those of other sources stay apart, and more than a batch is written.
func TestRepeatedEventsAreCounted(t *testing.T) {
	r, s := newRecorder(t)
	for range 3 {
		r.Record(eventlog.Event{Kind: KindPool, Object: "public", Reason: "PoolFull", Message: "no address is left", Warning: true})
	}
	for range batchSize {
		r.Record(eventlog.Event{Kind: "mux", Object: "mux1", Reason: "Connected", Source: "m2"})
	}
	run(t, r.Run)
	events := recorded(t, s, func(events map[string]eventlog.Event) bool {
		return events["AddressPool/public/PoolFull/m1"].Count == 3 && events["mux/mux1/Connected/m2"].Count == batchSize
	})
	full := events["AddressPool/public/PoolFull/m1"]
	if len(events) != 2 || !full.First.Equal(began) || !full.Last.Equal(began) || !full.Warning || full.Message != "no address is left" {
		t.Errorf("recorded are %+v", events)
	}
	r.Record(eventlog.Event{Kind: KindPool, Object: "public", Reason: "PoolFull"}) // in a later batch
	recorded(t, s, func(events map[string]eventlog.Event) bool {
		return events["AddressPool/public/PoolFull/m1"].Count == 4
	})
}

// An event of a call names its caller, and has the tenant of its VIP; calls without a name, and other events, do not.
func TestEventsOfCallsNameTheCaller(t *testing.T) {
	r, s := newRecorder(t)
	vip := model.VIP{Name: "shop", Tenant: "acme", Address: netip.MustParseAddr("203.0.113.1")}
	if _, err := s.Update(t.Context(), func(*store.State) (store.Change, error) { return store.Change{VIPs: []model.VIP{vip}}, nil }); err != nil {
		t.Fatal(err)
	}
	run(t, r.Run)
	bob := trust.WithIdentity(t.Context(), trust.Identity{Kind: trust.User, Name: "bob", Method: trust.ByToken})
	r.RecordCall(bob, eventlog.Event{Kind: KindVIP, Object: "shop", Reason: "Applied", Message: "changed"})
	r.RecordCall(bob, eventlog.Event{Kind: KindVIP, Object: "gone", Tenant: "blue", Reason: "Deleted", Message: "deleted"})
	r.RecordCall(t.Context(), eventlog.Event{Kind: KindPrefixList, Object: "shop", Reason: "Applied", Message: "changed"})
	events := recorded(t, s, func(events map[string]eventlog.Event) bool { return len(events) == 3 })
	for name, want := range map[string]struct{ message, tenant string }{
		"VIP/shop/Applied/m1":        {"changed by " + trust.CallerName(bob), "acme"},
		"VIP/gone/Deleted/m1":        {"deleted by " + trust.CallerName(bob), "blue"},
		"PrefixList/shop/Applied/m1": {"changed", ""},
	} {
		if got := events[name]; got.Message != want.message || got.Tenant != want.tenant {
			t.Errorf("%s is %+v, want %+v", name, got, want)
		}
	}
}

// Of more events than the queue holds, some are dropped, and nobody waits.
func TestFullQueueDropsEvents(t *testing.T) {
	r, _ := newRecorder(t)
	for range backlog + 10 {
		r.Record(eventlog.Event{Kind: "host", Object: "host1", Reason: "Silent"})
	}
	if len(r.queue) != backlog {
		t.Errorf("%d events are queued, want %d", len(r.queue), backlog)
	}
}
