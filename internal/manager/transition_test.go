package manager

import (
	"context"
	"net/netip"
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// count tells the manager the connections of a backend on h, and that there are no others.
func (h *fakeHost) count(s model.BackendSessions) error {
	h.mu.Lock()
	r := &weirv1.ReportHostRequest{
		Name: h.name, Generation: uint64(h.generation), Status: &weirv1.HostStatus{Uplink: "eth0"}, SessionsCounted: true,
	}
	h.mu.Unlock()
	if s.Sessions > 0 {
		r.Sessions = []*weirv1.BackendSessions{wire.BackendSessionsToProto(s)}
	}
	_, err := h.client.ReportHost(context.Background(), r)
	return err
}

// moving are how many buckets of the mux's only endpoint name a previous slot.
func (m *fakeMux) moving() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.underWay()
}

// underWay is moving of who holds the lock.
func (m *fakeMux) underWay() int {
	n := 0
	for _, e := range m.tables {
		for _, slot := range e.Previous {
			if slot != 0 {
				n++
			}
		}
	}
	return n
}

func (m *fakeMux) members() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, member := range m.pool {
		names = append(names, member.Name)
	}
	return names
}

// plainShop is shop without a check, with the first n of its backends.
func plainShop(n int) *weirv1.VIP {
	vip := shop()
	e := vip.Endpoints[0]
	e.HealthCheck, e.Backends = nil, e.Backends[:n]
	for _, b := range e.Backends {
		b.Weight = nil
	}
	return vip
}

var (
	shopKey = model.EndpointKey{VIP: netip.MustParseAddr("203.0.113.10"), Protocol: model.TCP, Port: 80}
	first   = model.HostBackendKey{Endpoint: shopKey, Tunnel: netip.MustParseAddr("10.3.1.11")}
)

// A backend joins: half of the buckets name the other one, on muxes and its host, over a restart of the
// manager, until that host has counted no connection of them.
func TestAMoveEndsWhenNoConnectionIsLeft(t *testing.T) {
	cfg := Config{DataDir: t.TempDir()}
	fast := func(m *Manager) { m.tables.Settle = 75 * time.Millisecond }
	url, stop := start(t, cfg, fast)
	t.Run("before the restart", func(t *testing.T) {
		mux, host1 := startMux(t, url, "mux1", "10.1.1.2"), startHost(t, url, "host1", "10.2.1.2")
		startHost(t, url, "host2", "10.2.2.2")
		eventually(t, "all are connected", func() bool { return nodes(t, dial(t, url)) == 3 })
		apply(t, url, plainShop(1))
		apply(t, url, plainShop(2))
		eventually(t, "the mux has the move", func() bool { return mux.moving() == 128 })
		host1.mu.Lock()
		if got := host1.backends[first]; len(got.Draining) != 128 || len(got.ChainPeers) != 1 || got.Buckets != 256 || got.Slot != 1 || !got.Cookies {
			t.Errorf("host1 was told %+v", got)
		}
		if host1.key == [40]byte{} {
			t.Error("host1 was not told the pool's key")
		}
		host1.mu.Unlock()
		counted := model.BackendSessions{Key: first, Sessions: 9, WithoutCookie: 5, Draining: 2}
		if err := host1.count(counted); err != nil {
			t.Fatal(err)
		}
		r, err := dial(t, url).GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "shop"})
		if err != nil {
			t.Fatal(err)
		}
		if s := r.Vip.Endpoints[0].Backends[0].Status; s.BucketsDraining != 128 || s.Sessions != 9 || s.SessionsWithoutCookie != 5 {
			t.Errorf("the status is %v", s)
		}
	})
	stop()
	url, _ = start(t, cfg, fast)
	mux, host1 := startMux(t, url, "mux1", "10.1.1.2"), startHost(t, url, "host1", "10.2.1.2")
	eventually(t, "the mux has the move again", func() bool { return mux.moving() == 128 })
	eventually(t, "it ends", func() bool {
		if err := host1.count(model.BackendSessions{}); err != nil {
			t.Error(err)
		}
		return mux.moving() == 0
	})
	eventually(t, "its host knows", func() bool {
		host1.mu.Lock()
		defer host1.mu.Unlock()
		return len(host1.backends[first].Draining) == 0 && len(host1.backends[first].ChainPeers) == 0
	})
}

// The bound ends a move away from a host that never counts.
func TestAMoveEndsByTheIdleBound(t *testing.T) {
	url, _ := start(t, Config{}, func(m *Manager) { m.tables.Settle = 75 * time.Millisecond })
	mux := startMux(t, url, "mux1", "10.1.1.2")
	startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	eventually(t, "all are connected", func() bool { return nodes(t, dial(t, url)) == 3 })
	for n := range 2 {
		vip := plainShop(n + 1)
		vip.Endpoints[0].IdleTimeout = compile.VIPMessage(model.VIP{Endpoints: []model.Endpoint{{IdleTimeout: 2 * time.Second}}}).Endpoints[0].IdleTimeout
		apply(t, url, vip)
	}
	eventually(t, "the mux has had the move", func() bool { // on a busy machine it may be over by now
		mux.mu.Lock()
		defer mux.mu.Unlock()
		return mux.moved == 128
	})
	eventually(t, "the bound has passed", func() bool { return mux.moving() == 0 })
}

func TestMuxesKnowTheirPool(t *testing.T) {
	url, _ := start(t, Config{})
	mux1 := startMux(t, url, "mux1", "10.1.1.2")
	t.Run("two", func(t *testing.T) {
		mux2 := startMux(t, url, "mux2", "10.1.2.2")
		for _, m := range []*fakeMux{mux1, mux2} {
			eventually(t, m.name+" knows both", func() bool { return slices.Equal(m.members(), []string{"mux1", "mux2"}) })
		}
	})
	eventually(t, "mux2 is gone", func() bool { return slices.Equal(mux1.members(), []string{"mux1"}) })
}

// A dry run says what would move and what depends on chaining, and changes nothing.
func TestDryRun(t *testing.T) {
	url, _ := start(t, Config{})
	host1 := startHost(t, url, "host1", "10.2.1.2")
	startHost(t, url, "host2", "10.2.2.2")
	client := dial(t, url)
	eventually(t, "both are connected", func() bool { return nodes(t, client) == 2 })
	dry := func(vips ...*weirv1.VIP) *weirv1.ApplyVIPsResponse {
		t.Helper()
		r, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: vips, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := dry(plainShop(1))
	if e := r.Vips[0].Effects; r.Vips[0].Change != rpc.Created || len(e) != 1 || e[0].Change != rpc.Created || e[0].BucketsMoved != 0 ||
		e[0].BucketsTotal != 256 || e[0].TableBytesBefore != 0 || e[0].TableBytesAfter != 60+512+48 {
		t.Errorf("a new VIP: %v", r.Vips)
	}
	if vips, err := client.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{}); err != nil || len(vips.Vips) != 0 {
		t.Fatalf("the dry run applied %v, %v", vips, err)
	}
	generation := apply(t, url, plainShop(1))
	if r := dry(plainShop(1)); r.Vips[0].Change != rpc.Unchanged || len(r.Vips[0].Effects) != 0 || r.Generation != generation {
		t.Errorf("no change: %v", r)
	}
	if err := host1.count(model.BackendSessions{Key: first, Sessions: 100, WithoutCookie: 41}); err != nil {
		t.Fatal(err)
	}
	two := plainShop(2)
	two.Endpoints = append(two.Endpoints, &weirv1.Endpoint{Protocol: "UDP", Port: 53})
	e := dry(two).Vips[0].Effects
	if len(e) != 2 || e[0].Change != rpc.Updated || e[0].BucketsMoved != 128 || e[0].BucketsTotal != 256 || e[0].Sessions != 100 ||
		e[0].SessionsWithoutCookie != 41 || e[0].SessionsChained != 21 || e[0].TableBytesBefore != 620 || e[0].TableBytesAfter != 60+2*512+96 {
		t.Errorf("a backend joins: %v", e)
	}
	other := plainShop(1)
	other.Endpoints[0].Port = 81
	e = dry(other).Vips[0].Effects
	if len(e) != 2 || e[0].Change != rpc.Created || e[1].Change != rpc.Removed || e[1].Endpoint.Port != 80 || e[1].Sessions != 100 || e[1].TableBytesAfter != 0 {
		t.Errorf("an endpoint goes: %v", e)
	}
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{Name: "Bad"}}, DryRun: true}); err == nil {
		t.Error("a dry run of nonsense was fine")
	}
}
