package live

import (
	"context"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// Those who may see the whole cluster share one status. Each viewer of a tenant has its own, whoever asked before it.
func TestOneStatusIsForOneView(t *testing.T) {
	vips := map[string]uint32{"red": 1, "blue": 2}
	made := 0
	s := New(&Config{
		View: func() *store.State { return &store.State{} }, Now: time.Now,
		Nodes: func(*store.State) []*weirv1.Node { return []*weirv1.Node{filled()} },
		Status: func(ctx context.Context) *weirv1.GetStatusResponse {
			made++
			status := &weirv1.GetStatusResponse{}
			for tenant, n := range vips {
				if authz.CanView(ctx, tenant) {
					status.Vips += n
				}
			}
			return status
		},
	})
	ann, bob := as(t, "ann", trust.AllTenants), as(t, "bob", trust.AllTenants)
	vic, bea := as(t, "vic", "red"), as(t, "bea", "blue")
	// Whatever was looked at just now is used, and whatever was made of it.
	s.whole.until, s.look.until = time.Time{}, time.Time{}
	red, whole := s.status(vic), s.status(ann)
	s.whole.until, s.look.until = time.Now().Add(time.Hour), time.Now().Add(time.Hour)
	blue, again, more := s.status(bea), s.status(vic), s.status(bob)
	if whole != more || whole.GetStatus().GetVips() != 3 {
		t.Errorf("callers with the same view share %v: %d VIPs", whole == more, whole.GetStatus().GetVips())
	}
	if red.GetStatus().GetVips() != 1 || blue.GetStatus().GetVips() != 2 || again.GetStatus().GetVips() != 1 {
		t.Errorf("viewers of tenants are told of %d, %d and %d VIPs", red.GetStatus().GetVips(), blue.GetStatus().GetVips(), again.GetStatus().GetVips())
	}
	if made != 4 {
		t.Errorf("made %d times, want once for each tenant's viewer that asks, and once for the cluster", made)
	}
	s.whole.until = time.Time{}
	if same := s.status(ann); same != whole || made != 5 {
		t.Error("a status that is as it was is another message")
	}
	vips["red"], s.whole.until = 7, time.Time{}
	if s.status(bob).GetStatus().GetVips() != 9 || whole.GetStatus().GetVips() != 3 {
		t.Error("what differs is not told, or is written into what was told")
	}
}

// Rest bounds what is made for all: a two-hundredth of a CPU while that keeps it young, a twentieth in any case, but what took long
// once is not kept for minutes.
func TestRest(t *testing.T) {
	for took, want := range map[time.Duration]time.Duration{
		0: 250 * time.Millisecond, time.Millisecond: 250 * time.Millisecond, 10 * time.Millisecond: 2 * time.Second,
		100 * time.Millisecond: 5 * time.Second, 400 * time.Millisecond: 8 * time.Second, time.Minute: 10 * time.Second,
	} {
		if got := Rest(took, lookPause); got != want {
			t.Errorf("what took %s is used for %s, want %s", took, got, want)
		}
	}
}

// A mux is not said to be behind a generation that is newer than what is known of it.
func TestNodesAreNotBehindWhatIsNewerThanThey(t *testing.T) {
	mux := &weirv1.Node{Name: "mux1", Role: "mux", Status: &weirv1.NodeStatus{Connected: true, Generation: 5}}
	shown := &store.State{Generation: 5}
	s := New(&Config{
		View: func() *store.State { return shown }, Now: time.Now,
		Nodes:  func(*store.State) []*weirv1.Node { return []*weirv1.Node{mux} },
		Status: func(context.Context) *weirv1.GetStatusResponse { return &weirv1.GetStatusResponse{Generation: 6} },
	})
	for _, caller := range []context.Context{as(t, "ann", trust.AllTenants), as(t, "vic", "red")} {
		if told := s.status(caller); len(told.GetWarnings()) != 0 || told.GetStatus().GetGeneration() != 6 {
			t.Errorf("told of generation %d: %v", told.GetStatus().GetGeneration(), told.GetWarnings())
		}
	}
	shown, s.look.until, s.whole.until = &store.State{Generation: 6}, time.Time{}, time.Time{}
	if told := s.status(as(t, "ann", trust.AllTenants)); len(told.GetWarnings()) != 1 {
		t.Errorf("a mux that is behind: %v", told.GetWarnings())
	}
}
