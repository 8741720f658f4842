package manager

import (
	"context"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// hasSessions reports how many sessions the host has, and nothing else that is new.
func (h *fakeHost) hasSessions(t *testing.T, sessions uint64) {
	t.Helper()
	h.mu.Lock()
	r := &weirv1.ReportHostRequest{Name: h.name, Generation: uint64(h.generation), Status: &weirv1.HostStatus{Uplink: "eth0", Sessions: sessions}}
	h.mu.Unlock()
	if _, err := h.client.ReportHost(context.Background(), r); err != nil {
		t.Error(err)
	}
}

// shownSessions are the sessions of a node that a manager shows.
func shownSessions(t *testing.T, url, node string) uint64 {
	r, err := dial(t, url).GetNode(t.Context(), &weirv1.GetNodeRequest{Name: node})
	if err != nil {
		t.Error(err)
	}
	return r.GetNode().GetStatus().GetHost().GetSessions()
}

// startFollowing starts managers that tell each other counters often, and waits until all do.
func startFollowing(t *testing.T, n int) (*replicas, []*Manager) {
	var all []*Manager
	r := startReplicas(t, n, func(m *Manager) {
		m.nodes.TellInterval, m.tables.Settle = 20*time.Millisecond, 75*time.Millisecond
		all = append(all, m)
	})
	eventually(t, "each is followed by both others", func() bool {
		return !slices.ContainsFunc(all, func(m *Manager) bool {
			return len(m.store.State().Managers) < n || !m.reports.AllFollow(m.store.State(), m.cfg.Name)
		})
	})
	return r, all
}

// Any manager shows the counters of a node that reports to another one, which the store is not given, but while a manager is down.
// What its host counted of a bucket that moves is in the store, for the leader and for the next one.
func TestManagersTellEachOtherReports(t *testing.T) {
	t.Parallel()
	r, all := startFollowing(t, 3)
	host1, mux := startHost(t, r.urls[1], "host1", "10.2.1.2"), startMux(t, r.urls[1], "mux1", "10.1.1.2")
	startHost(t, r.urls[1], "host2", "10.2.2.2")
	eventually(t, "all are connected", func() bool { return nodes(t, dial(t, r.urls[0])) == 3 })
	puts, last := 0, all[0].store.State().Status.At("host1").Seen
	for i := range uint64(40) {
		host1.hasSessions(t, i+1)
		for _, url := range []string{r.urls[0], r.urls[2]} {
			eventually(t, url+" shows it", func() bool { return shownSessions(t, url, "host1") == i+1 })
		}
		if seen := all[0].store.State().Status.At("host1").Seen; !seen.Equal(last) && i > 9 { // what was news was written by then
			puts++
			last = seen
		} else if i <= 9 {
			last = seen
		}
	}
	if puts > 1 { // its turn may have come
		t.Errorf("counters were written to the store %d times", puts)
	}

	apply(t, r.urls[0], plainShop(1))
	apply(t, r.urls[0], plainShop(2))
	eventually(t, "the mux has the move", func() bool { return mux.moving() == 128 })
	lives := model.BackendSessions{Key: first, Sessions: 9, WithoutCookie: 5, Draining: 2}
	counted := func(by *Manager, after time.Time) func() bool {
		return func() bool {
			if err := host1.count(lives); err != nil {
				t.Error(err)
			}
			said := by.store.State().Status.At("host1").SessionCount
			return said.At.After(after) && slices.Contains(said.Draining, first)
		}
	}
	eventually(t, "the leader has what the host counted", counted(all[0], time.Time{}))
	eventually(t, "it has it again", counted(all[0], all[0].store.State().Status.At("host1").SessionCount.At))
	r.stops[0]()
	eventually(t, "another manager leads", func() bool {
		leader := leaderOf(listManagers(t, dial(t, r.urls[1])))
		return leader == "m2" || leader == "m3"
	})
	for range 3 {
		eventually(t, "the next leader has it", counted(all[2], all[2].store.State().Status.At("host1").SessionCount.At))
	}
	if got := mux.moving(); got != 128 {
		t.Errorf("%d buckets are moving, of 128 that connections live by", got)
	}
	lives.Draining = 0
	eventually(t, "the move ends", func() bool {
		if err := host1.count(lives); err != nil {
			t.Error(err)
		}
		return mux.moving() == 0
	})
	before := all[2].store.State().Status.At("host1").Seen
	eventually(t, "the store is given counters while a manager is down", func() bool {
		host1.hasSessions(t, 99)
		return all[2].store.State().Status.At("host1").Seen.After(before)
	})
}

// What a node reported stays known when its manager dies, until it reports to another one.
func TestNodesWhoseManagerDies(t *testing.T) {
	t.Parallel()
	r, all := startFollowing(t, 3)
	host1 := startHost(t, r.urls[2]+","+r.urls[1], "host1", "10.2.1.2")
	eventually(t, "it is connected", func() bool { return nodes(t, dial(t, r.urls[0])) == 1 })
	for i := range uint64(3) { // the first may be news, which is in the store
		host1.hasSessions(t, i+1)
		eventually(t, "others show it", func() bool { return shownSessions(t, r.urls[0], "host1") == i+1 })
	}
	r.stops[2]()
	if got := shownSessions(t, r.urls[0], "host1"); got != 3 {
		t.Errorf("its %d sessions are known, want 3", got)
	}
	eventually(t, "it has its stream with another manager", func() bool {
		_, there := all[1].hub.NodeIsCurrent("host1")
		return there
	})
	host1.hasSessions(t, 5)
	for _, url := range r.urls[:2] {
		eventually(t, url+" shows what it reports there", func() bool { return shownSessions(t, url, "host1") == 5 })
	}
}
