package entries

import (
	"strings"
	"testing"
)

// Members without a route are left out while there are others; a VIP that has none is not announced.
func TestTunnelsWithoutARoute(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1, 2), entry(2, true, 2))
		r.wantAnnounced(1, 2)
		r.takeEvents()
		r.loseRoutes(tunnel(2))
		r.wantHeld(entry(1, true, 1), entry(2, true, 2))
		if got, want := r.takeEvents(), "announce [203.0.113.1]; program 203.0.113.1"; got != want {
			t.Errorf("did %q, want %q", got, want)
		}
		if warnings := strings.Join(r.wantReport().GetWarnings(), "; "); !strings.Contains(warnings, "1 tunnels have no route, 10.2.0.2 first") {
			t.Errorf("warnings are %q", warnings)
		}
		r.loseRoutes(tunnel(1), tunnel(2))
		r.wantAnnounced()
		r.loseRoutes()
		r.wantHeld(entry(1, true, 1, 2), entry(2, true, 2))
		r.wantAnnounced(1, 2)
		if warnings := r.wantReport().GetWarnings(); len(warnings) > 0 {
			t.Errorf("warnings are %q", warnings)
		}
	})
}

// A switch that restarts announces what it held, without the members that had no route.
func TestRestartWithoutARoute(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1, 2), entry(2, true, 1))
		r.loseRoutes(tunnel(2))
		r.wantHeld(entry(1, true, 1), entry(2, true, 1))
		r.takeEvents()
		r.start()
		if got, want := r.takeEvents(), "announce [203.0.113.1 203.0.113.2]"; got != want {
			t.Errorf("did %q, want %q", got, want)
		}
	})
}

// Routes that are missing in one look-up are being replaced.
func TestRoutesThatAreReplaced(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1, 2), entry(2, true, 2))
		r.takeEvents()
		r.mu.Lock()
		r.gap = true
		r.mu.Unlock()
		r.pass(2 * routePause)
		if got := r.takeEvents(); got != "" {
			t.Errorf("did %q", got)
		}
		if r.gap {
			t.Error("nobody looked")
		}
	})
}
