package manager

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/nodesync/publish"
	"github.com/weirlb/weir/internal/rpc"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// world starts a manager with two hosts and a mux; grace is how long muxes wait for hosts.
func world(t *testing.T, grace time.Duration) (url string, mux *fakeMux, host1, host2 *fakeHost) {
	t.Helper()
	url, _ = start(t, Config{}, func(m *Manager) { m.hub.Grace = grace })
	host1, host2 = startHost(t, url, "host1", "10.2.1.2"), startHost(t, url, "host2", "10.2.2.2")
	mux = startMux(t, url, "mux1", "10.1.1.2")
	client := dial(t, url)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	return url, mux, host1, host2
}

func apply(t *testing.T, url string, vips ...*weirv1.VIP) uint64 {
	t.Helper()
	r, err := dial(t, url).ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: vips})
	if err != nil {
		t.Fatal(err)
	}
	return r.Generation
}

func TestMuxesWaitForHosts(t *testing.T) {
	url, mux, host1, host2 := world(t, time.Hour)
	host2.set(true)
	generation := apply(t, url, shop())
	eventually(t, "hosts have the backends", func() bool { return host1.has(generation) && host2.has(generation) })
	if mux.has(generation) {
		t.Error("the mux has the tables before host2 acknowledged its backend")
	}
	if err := host2.report(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mux has the tables", func() bool { return mux.has(generation) })
}

func TestASilentHostHoldsNobodyForEver(t *testing.T) {
	url, mux, _, host2 := world(t, publish.HostsGrace)
	host2.set(true)
	generation := apply(t, url, shop())
	eventually(t, "the mux has the tables", func() bool { return mux.has(generation) })
}

// A stream sends what changed, not everything again.
func TestStreamsSendDeltas(t *testing.T) {
	url, mux, _, _ := world(t, publish.HostsGrace)
	vip := shop()
	eventually(t, "the mux has shop", func() bool { return mux.has(apply(t, url, vip)) })
	other := shop()
	other.Name, other.Address = "blog", "203.0.113.11"
	generation := apply(t, url, other)
	eventually(t, "the mux has blog", func() bool { return mux.has(generation) })
	mux.mu.Lock()
	defer mux.mu.Unlock()
	if mux.snapshots != 1 || len(mux.tables) != 2 {
		t.Errorf("got %d snapshots and %d endpoints, want 1 and 2", mux.snapshots, len(mux.tables))
	}
}

// VIPs that swap addresses in one apply keep both tables.
func TestVIPsSwapAddresses(t *testing.T) {
	url, mux, _, _ := world(t, publish.HostsGrace)
	a, b := shop(), shop()
	b.Name, b.Address = "blog", "203.0.113.11"
	b.Endpoints[0].Backends = b.Endpoints[0].Backends[:1]
	b.Endpoints[0].Backends[0].Address = "10.3.1.21"
	apply(t, url, a, b)
	a.Address, b.Address = b.Address, a.Address
	a.Tenant = "swapped"
	generation := apply(t, url, a, b)
	eventually(t, "the mux has both", func() bool { return mux.has(generation) })
	want := `TCP 203.0.113.10:80 (tenant acme): 256 buckets
  slot 1: 0 buckets to 10.3.1.11:8080 through 10.3.1.11, down
  slot 2: 0 buckets to 10.3.2.11:8080 through 10.3.2.11, down
  slot 3: 256 buckets to 10.3.1.21:8080 through 10.3.1.21
`
	if text := mux.String(); !strings.HasPrefix(text, want) || !strings.Contains(text, "203.0.113.11:80 (tenant swapped)") {
		t.Errorf("got\n%s\nwant it to begin with\n%s", text, want)
	}
}

// Hosts accept a mux's address before it has tables, so before it announces routes.
func TestANewMuxWaitsForHosts(t *testing.T) {
	url, _, _, host2 := world(t, time.Hour)
	host2.set(true)
	mux2 := startMux(t, url, "mux2", "10.1.2.2")
	eventually(t, "host2 knows the mux", func() bool { return strings.Contains(host2.String(), "10.1.2.2") })
	if mux2.has(1) {
		t.Error("the mux has tables before host2 acknowledged its address")
	}
	if err := host2.report(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the mux has tables", func() bool { return mux2.has(1) })
}

func TestNodes(t *testing.T) {
	url, mux, _, _ := world(t, publish.HostsGrace)
	client := dial(t, url)
	apply(t, url, shop())
	eventually(t, "the mux's report is seen", func() bool {
		r, err := client.GetNode(t.Context(), &weirv1.GetNodeRequest{Name: "mux1"})
		return err == nil && r.Node.Status.Connected && r.Node.Status.Mux.GetXdpMode() == "native" &&
			r.Node.Status.Generation == generation(t, client) && mux.has(r.Node.Status.Generation)
	})
	remove := func(name string) error {
		_, err := client.DeleteNode(t.Context(), &weirv1.DeleteNodeRequest{Name: name})
		return err
	}
	if err := remove("mux1"); connect.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "is connected") {
		t.Errorf("deleting a connected mux: %v", err)
	}
	if err := remove("mux9"); connect.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("deleting what is not there: %v", err)
	}
	// The same name from another machine, or as another role, is refused.
	for _, sync := range []func() (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error){
		func() (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
			return client.SyncMux(t.Context(), &weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.9.9"}})
		},
		func() (*connect.ServerStreamForClient[weirv1.SyncMuxResponse], error) {
			return client.SyncMux(t.Context(), &weirv1.SyncMuxRequest{Name: "host1", Addresses: []string{"10.1.9.9"}})
		},
	} {
		stream, err := sync()
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() || !strings.Contains(stream.Err().Error(), "another --name") {
			t.Errorf("a second node of the same name: %v", stream.Err())
		}
		stream.Close()
	}
}

// A node that went away is not connected, and may be deleted when nothing lives on it.
func TestNodesGo(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	t.Run("come", func(t *testing.T) {
		startHost(t, url, "host1", "10.2.1.2")
		startHost(t, url, "host2", "10.2.2.2")
		eventually(t, "both are connected", func() bool { return nodes(t, client) == 2 })
	})
	eventually(t, "no node is connected", func() bool { return nodes(t, client) == 0 })
	apply(t, url, shop())
	remove := func() error {
		_, err := client.DeleteNode(t.Context(), &weirv1.DeleteNodeRequest{Name: "host1"})
		return err
	}
	if err := remove(); err == nil || err.Error() != "1 backends of VIP shop live on node host1: move or remove them first" {
		t.Errorf("got %v", err)
	}
	if _, err := client.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "shop"}); err != nil {
		t.Fatal(err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
}

// A stopped manager ends its streams, and does not wait for them.
func TestStoppedManagerEndsItsStreams(t *testing.T) {
	var logged strings.Builder
	url, stop := start(t, Config{}, func(m *Manager) { m.log = slog.New(slog.NewTextHandler(&logged, nil)) })
	mux := startMux(t, url, "mux1", "10.1.1.2")
	eventually(t, "the mux has tables", func() bool { return mux.has(1) })
	acks := rpc.Acknowledger{Name: "mux1", Open: dial(t, url).AcknowledgeMux}
	t.Cleanup(acks.Close)
	eventually(t, "the mux acknowledges", func() bool { return acks.Send(t.Context(), 1, 0) == nil })
	stop()
	if strings.Contains(logged.String(), "calls under way") {
		t.Errorf("the streams did not end by themselves:\n%s", &logged)
	}
}

// Two managers on one external store: what one admits, the other streams.
func TestManagersShareAStore(t *testing.T) {
	endpoints := []string{etcdtest.Start(t)}
	a, _ := start(t, Config{Name: "m1", EtcdEndpoints: endpoints})
	b, stopB := start(t, Config{Name: "m2", EtcdEndpoints: endpoints})
	startHost(t, a, "host1", "10.2.1.2")
	startHost(t, b, "host2", "10.2.2.2")
	mux := startMux(t, b+","+a, "mux1", "10.1.1.2")
	client := dial(t, a)
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	generation := apply(t, a, shop())
	eventually(t, "the mux has it from b", func() bool { return mux.has(generation) })
	before := mux.String()
	stopB()
	other := shop()
	other.Name, other.Address = "blog", "203.0.113.11"
	generation = apply(t, a, other)
	eventually(t, "the mux has the next from a", func() bool { return mux.has(generation) })
	if after := mux.String(); !strings.HasPrefix(after, before) {
		t.Errorf("the move to another manager changed the tables from\n%s\nto\n%s", before, after)
	}
}
