package manager

import (
	"context"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// hasSessions reports how many sessions the host has, and nothing else that is new, and says whether all of these managers
// show it.
func (h *fakeHost) hasSessions(sessions uint64, managers ...*rpc.Client) bool {
	h.mu.Lock()
	r := &weirv1.ReportHostRequest{Name: h.name, Generation: uint64(h.generation), Status: &weirv1.HostStatus{Uplink: "eth0", Sessions: sessions}}
	h.mu.Unlock()
	if _, err := h.client.ReportHost(context.Background(), r); err != nil {
		return false
	}
	return !slices.ContainsFunc(managers, func(m *rpc.Client) bool { return shownSessions(m, h.name) != sessions })
}

// shownSessions are the sessions of a host that a manager shows.
func shownSessions(manager *rpc.Client, host string) uint64 {
	r, err := manager.GetNode(context.Background(), &weirv1.GetNodeRequest{Name: host})
	if err != nil {
		return 0
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
	m1, m2, m3 := dial(t, r.urls[0]), dial(t, r.urls[1]), dial(t, r.urls[2])
	puts, last := 0, time.Time{}
	for i := range uint64(40) {
		eventually(t, "the others show it", func() bool { return host1.hasSessions(i+1, m1, m3) })
		if seen := all[0].store.State().Status.At("host1").Seen; !seen.Equal(last) {
			if last = seen; i > 9 && all[1].reports.AllFollow(all[1].store.State(), "m2") { // what was news was written by then
				puts++
			}
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
		leader := leaderOf(listManagers(t, m2))
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
		return host1.hasSessions(99) && all[2].store.State().Status.At("host1").Seen.After(before)
	})
}

// What a node reported stays known when its manager dies, until it reports to another one.
func TestNodesWhoseManagerDies(t *testing.T) {
	t.Parallel()
	r, all := startFollowing(t, 3)
	host1, m1, m2 := startHost(t, r.urls[2]+","+r.urls[1], "host1", "10.2.1.2"), dial(t, r.urls[0]), dial(t, r.urls[1])
	lone := startHost(t, r.urls[2], "host2", "10.2.2.2")
	eventually(t, "both are connected", func() bool { return nodes(t, m1) == 2 })
	for i := range uint64(3) { // the first may be news, which is in the store
		eventually(t, "others show it", func() bool { return host1.hasSessions(i+1, m1, m2) && lone.hasSessions(i+1, m1, m2) })
	}
	r.stops[2]()
	if got := shownSessions(m1, "host2"); got != 3 {
		t.Errorf("%d sessions are known of a host that can reach no other manager, want 3", got)
	}
	eventually(t, "it has its stream with another manager", func() bool {
		_, there := all[1].hub.NodeIsCurrent("host1")
		return there
	})
	eventually(t, "both show what it reports there", func() bool { return host1.hasSessions(5, m1, m2) })
}

// What nodes tell of a VIP is an event, whichever manager they follow.
func TestFollowersRecordEvents(t *testing.T) {
	t.Parallel()
	r, _ := startFollowing(t, 3)
	apply(t, r.urls[0], plainShop(1))
	startMux(t, r.urls[2], "mux1", "10.1.1.2")
	m1, m3 := dial(t, r.urls[0]), dial(t, r.urls[2])
	eventually(t, "the mux is connected", func() bool { return nodes(t, m1) == 1 && nodes(t, m3) == 1 })
	report := &weirv1.ReportMuxRequest{
		Name: "mux1", Status: &weirv1.MuxStatus{},
		Events: []*weirv1.MuxEvent{{Endpoint: wire.EndpointKeyToProto(shopKey), Reason: "SYNCookiesOn", Message: "a flood", Warning: true}},
	}
	eventually(t, "its report is taken", func() bool { _, err := m3.ReportMux(t.Context(), report); return err == nil })
	eventually(t, "the event is told by others", func() bool {
		list, err := m1.ListEvents(t.Context(), &weirv1.ListEventsRequest{})
		return err == nil && slices.ContainsFunc(list.GetEvents(), func(e *weirv1.Event) bool {
			return e.GetReason() == "SYNCookiesOn" && e.GetSource() == "mux1" && e.GetObject() == "shop"
		})
	})
}
