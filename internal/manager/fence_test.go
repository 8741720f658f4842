package manager

import (
	"context"
	"net/http"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// A mux that does not answer is taken out of the pool, delays nobody, and comes back by itself.
func TestAMuxThatDoesNotAnswerIsTakenOut(t *testing.T) {
	url, _ := start(t, Config{}, func(m *Manager) { m.hub.Patience = 200 * time.Millisecond })
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	mux1, mux2 := startMux(t, url, "mux1", "10.1.1.2"), startMux(t, url, "mux2", "10.1.2.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 4 })
	first := apply(t, url, shop())
	eventually(t, "both muxes run it", func() bool { return mux1.has(first) && mux2.has(first) })
	pool := func() int {
		mux1.mu.Lock()
		defer mux1.mu.Unlock()
		return len(mux1.pool)
	}
	standing := func() string {
		r, err := client.GetNode(t.Context(), &weirv1.GetNodeRequest{Name: "mux2"})
		if err != nil {
			t.Fatal(err)
		}
		return r.GetNode().GetStatus().GetSync()
	}
	eventually(t, "mux2 is current", func() bool { return standing() == "current" && pool() == 2 })
	mux2.setMute(true)
	vip := shop()
	vip.Tenant = "other"
	second := apply(t, url, vip)
	eventually(t, "mux1 runs it", func() bool { return mux1.has(second) })
	eventually(t, "mux2 is out", func() bool { return standing() == "out" && pool() == 1 })
	told := func() bool {
		mux2.mu.Lock()
		defer mux2.mu.Unlock()
		return mux2.withdrawn
	}
	eventually(t, "mux2 is told to take its routes back", told)
	r, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
	if err != nil || r.GetVip().GetStatus().GetMuxesTotal() != 1 {
		t.Errorf("the VIP waits for %d muxes, want 1: %v", r.GetVip().GetStatus().GetMuxesTotal(), err)
	}
	mux2.setMute(false)
	eventually(t, "the mux has reported", mux2.report)
	eventually(t, "mux2 is back", func() bool { return standing() == "current" && pool() == 2 && !told() })
}

// When no mux answers, the last one stays in the pool: old tables are better than no routes.
func TestTheLastMuxStaysInThePool(t *testing.T) {
	url, _ := start(t, Config{}, func(m *Manager) { m.hub.Patience = 200 * time.Millisecond })
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	mux1, mux2 := startMux(t, url, "mux1", "10.1.1.2"), startMux(t, url, "mux2", "10.1.2.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 4 })
	first := apply(t, url, shop())
	eventually(t, "both muxes run it", func() bool { return mux1.has(first) && mux2.has(first) })
	for _, mux := range []*fakeMux{mux1, mux2} {
		mux.setMute(true)
	}
	vip := shop()
	vip.Tenant = "other"
	apply(t, url, vip)
	eventually(t, "one is out, the other behind", func() bool {
		standing := map[string]int{}
		for _, name := range []string{"mux1", "mux2"} {
			r, err := client.GetNode(t.Context(), &weirv1.GetNodeRequest{Name: name})
			if err != nil {
				t.Fatal(err)
			}
			standing[r.GetNode().GetStatus().GetSync()]++
		}
		return standing["out"] == 1 && standing["behind"] == 1
	})
}

// Two managers that give up on the last two muxes at the same moment leave one in: the store has the last word.
func TestTwoManagersLeaveAMuxInThePool(t *testing.T) {
	t.Parallel()
	endpoints := []string{etcdtest.Start(t)}
	impatient := func(m *Manager) { m.hub.Patience = 200 * time.Millisecond }
	a, _ := start(t, Config{Name: "m1", EtcdEndpoints: endpoints}, impatient)
	b, _ := start(t, Config{Name: "m2", EtcdEndpoints: endpoints}, impatient)
	startHost(t, a, "host1", "10.2.1.2")
	startHost(t, a, "host2", "10.2.2.2")
	muxes := []*fakeMux{startMux(t, a, "mux1", "10.1.1.2"), startMux(t, b, "mux2", "10.1.2.2")}
	client := dial(t, a)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 4 })
	first := apply(t, a, shop())
	withdrawn := func() (n int) {
		for _, mux := range muxes {
			mux.mu.Lock()
			if mux.withdrawn {
				n++
			}
			mux.mu.Unlock()
		}
		return n
	}
	eventually(t, "both muxes run it, and are in the pool", func() bool {
		return muxes[0].has(first) && muxes[1].has(first) && withdrawn() == 0
	})
	for _, mux := range muxes {
		mux.setMute(true)
	}
	vip := shop()
	vip.Tenant = "other"
	apply(t, a, vip)
	eventually(t, "a mux is told to take its routes back", func() bool {
		if withdrawn() == len(muxes) {
			t.Fatal("both muxes are told to take their routes back")
		}
		return withdrawn() == 1
	})
	for end := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if withdrawn() == len(muxes) {
			t.Fatal("the last mux is told to take its routes back")
		}
	}
}

// A mux that comes from another cluster, of which it has seen much more, gets its tables.
func TestAMuxComesFromAnotherCluster(t *testing.T) {
	url, _ := start(t, Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	stream, err := weirv1connect.NewSyncServiceClient(http.DefaultClient, url).SyncMux(ctx,
		&weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.1.2"}, Cluster: 1, Generation: 1 << 40, Joins: true})
	if err != nil {
		t.Fatal(err)
	}
	if !stream.Receive() || !stream.Msg().GetSnapshot() {
		t.Errorf("got %v, %v", stream.Msg(), stream.Err())
	}
}
