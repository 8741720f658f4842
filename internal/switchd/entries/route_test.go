package entries

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/hardware"
	limits "github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/wire"
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
		r.wantUnrouted(2)
		r.loseRoutes(tunnel(1), tunnel(2))
		r.wantAnnounced()
		r.wantUnrouted(1, 2)
		r.loseRoutes()
		r.wantUnrouted()
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

// wantUnrouted wants managers to be told that these VIPs alone are withdrawn for want of a route.
func (r *rig) wantUnrouted(vips ...byte) {
	r.t.Helper()
	want := []string{}
	for _, n := range vips {
		want = append(want, vip(n).String())
	}
	if got := r.wantReport().GetUnrouted(); !slices.Equal(got, want) {
		r.t.Errorf("withdrawn for want of a route: %v, want %v", got, want)
	}
}

// A switch that does not take members without a route out of an entry has not refused what the manager told: it withdraws, says
// why, and announces again when there is a route. What the manager tells besides is refused as ever.
func TestMembersWithoutARouteAreNotTakenOut(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.all(entry(1, true, 1, 2), entry(2, true, 1))
		r.sw.Refuse(vip(1), &hardware.Refusal{VIP: vip(1), Reason: "no"})
		r.loseRoutes(tunnel(2))
		r.wantAnnounced(2)
		r.wantUnrouted(1)
		if warnings := strings.Join(r.wantReport().GetWarnings(), "; "); !strings.Contains(warnings, "1 entries still have members without a route") ||
			!strings.Contains(warnings, "203.0.113.1 first: the switch does not take 203.0.113.1: no") {
			t.Errorf("warnings are %q", warnings)
		}
		r.change(entry(1, true, 1, 2, 3))
		r.wantReport("203.0.113.1  0 0 no")
		r.change(entry(1, true, 1, 2))
		r.wantUnrouted(1)
		r.loseRoutes()
		r.wantAnnounced(1, 2)
		r.wantUnrouted()
	})
}

// What the switch refuses with all members it refuses without some too: the manager's entry is not there.
func TestRefusedBeforeARouteIsLost(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		r.sw.Refuse(vip(1), &hardware.Refusal{VIP: vip(1), Reason: "no"})
		r.all(entry(1, true, 1, 2))
		r.loseRoutes(tunnel(2))
		r.wantReport("203.0.113.1  0 0 no")
	})
}

// The way to a TIP is a route to it alone, which its switch announces.
func TestTIPsWithoutARouteOfTheirOwn(t *testing.T) {
	inBubble(t, func(r *rig) {
		tips := entry(1, true, 1, 2)
		for i := range tips.Members {
			tips.Members[i].TIP = true
		}
		r.tipRoutes = []netip.Addr{tunnel(1), tunnel(2)}
		r.start()
		r.all(tips, entry(2, true, 3))
		r.wantHeld(tips, entry(2, true, 3))
		r.mu.Lock()
		r.tipRoutes = []netip.Addr{tunnel(1)}
		r.mu.Unlock()
		r.pass(2 * routePause)
		r.wantHeld(entry(1, true, 1), entry(2, true, 3))
		r.mu.Lock()
		r.tipRoutes = nil
		r.mu.Unlock()
		r.pass(2 * routePause)
		r.wantAnnounced(2)
		r.wantUnrouted(1)
	})
}

// Of more VIPs than a report names it says that there are more.
func TestMoreThanAReportNames(t *testing.T) {
	inBubble(t, func(r *rig) {
		r.start()
		var all []wire.SwitchEntry
		for i := range limits.MaxUnrouted + 1 {
			e := entry(1, true, 1)
			e.VIP = netip.AddrFrom4([4]byte{203, 0, byte(112 + i>>8), byte(i)})
			all = append(all, e)
		}
		r.tell(wire.SwitchUpdate{Snapshot: true, Entries: all})
		r.loseRoutes(tunnel(1))
		_, _, status := r.Report()
		if len(status.GetUnrouted()) != limits.MaxUnrouted || !status.GetUnroutedMore() {
			t.Errorf("%d are named, more: %t", len(status.GetUnrouted()), status.GetUnroutedMore())
		}
	})
}
