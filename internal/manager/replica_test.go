package manager

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// ports are those that freeAddress gives out: below those that the kernel gives to whoever asks for any, of which
// another test may get one before it is used.
var ports atomic.Uint32

const firstPort, lastPort = 12_000, 32_000

// freeAddress is one at which nothing listens.
func freeAddress(t *testing.T) string {
	t.Helper()
	ports.CompareAndSwap(0, 1+rand.Uint32N(lastPort-firstPort)) // other packages' tests look for theirs elsewhere
	for range lastPort - firstPort {
		port := firstPort + ports.Add(1)%(lastPort-firstPort)
		listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			listener.Close()
			return listener.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// replicas are managers of one cluster.
type replicas struct {
	urls  []string
	stops []func()
}

// startReplicas founds a cluster and has others join it while it runs.
func startReplicas(t *testing.T, n int, change ...func(*Manager)) *replicas {
	t.Helper()
	r := &replicas{}
	for i := range n {
		cfg := Config{Name: fmt.Sprintf("m%d", i+1), PeerListen: freeAddress(t)}
		if i > 0 {
			cfg.Join = r.urls[0]
		}
		url, stop := start(t, cfg, change...)
		r.urls, r.stops = append(r.urls, url), append(r.stops, stop)
	}
	return r
}

func listManagers(t *testing.T, client *rpc.Client) map[string]*weirv1.Manager {
	t.Helper()
	r, err := client.ListManagers(t.Context(), &weirv1.ListManagersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]*weirv1.Manager{}
	for _, m := range r.Managers {
		all[m.Name] = m
	}
	return all
}

func leaderOf(managers map[string]*weirv1.Manager) string {
	for name, m := range managers {
		if m.Leader {
			return name
		}
	}
	return ""
}

// Managers join while the first one runs; each answers reads, takes writes and holds streams; one leaves.
func TestManagersJoinAndLeave(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 3)
	startHost(t, r.urls[1], "host1", "10.2.1.2")
	startHost(t, r.urls[2], "host2", "10.2.2.2")
	mux := startMux(t, r.urls[2], "mux1", "10.1.1.2")
	client := dial(t, r.urls[0])
	eventually(t, "all are connected", func() bool { return nodes(t, client) == 3 })
	for i, url := range r.urls {
		vip := shop()
		vip.Name, vip.Address = fmt.Sprintf("shop%d", i), fmt.Sprintf("203.0.113.%d", i+1)
		generation := apply(t, url, vip)
		if _, err := dial(t, url).GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: vip.Name}); err != nil {
			t.Errorf("%s does not have what was written to it: %v", url, err)
		}
		eventually(t, "the mux has what was written to "+url, func() bool { return mux.has(generation) })
		for _, other := range r.urls {
			reader := dial(t, other)
			eventually(t, other+" has what was written to "+url, func() bool { // one that follows may be a moment behind
				_, err := reader.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: vip.Name})
				return err == nil
			})
		}
	}
	managers := listManagers(t, client)
	if len(managers) != 3 || leaderOf(managers) != "m1" {
		t.Errorf("the managers are %v", managers)
	}
	for name, m := range managers {
		if m.Problem != "" || m.Learner || m.Replica.GetLeader() != "m1" || m.Replica.GetStoreBytes() == 0 {
			t.Errorf("manager %s is %v", name, m)
		}
	}

	// The leader leaves: it hands its lead on, and the call, which another manager took, is made again.
	if _, err := dial(t, r.urls[1]).DeleteManager(t.Context(), &weirv1.DeleteManagerRequest{Name: "m1"}); err != nil {
		t.Fatal(err)
	}
	client = dial(t, r.urls[1])
	eventually(t, "two are left, and one of them leads", func() bool {
		managers := listManagers(t, client)
		return len(managers) == 2 && leaderOf(managers) != "" && leaderOf(managers) != "m1"
	})
	vip := shop()
	vip.Name, vip.Address = "after", "203.0.113.99"
	generation := apply(t, r.urls[2], vip)
	eventually(t, "the mux has it", func() bool { return mux.has(generation) })
}

// A manager that was taken out while it was down learns that from the others, and says so at every start.
func TestTakenOutWhileDown(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2)
	cfg := Config{Name: "m3", PeerListen: freeAddress(t), Join: r.urls[0], DataDir: t.TempDir()}
	_, stop := start(t, cfg)
	stop()
	if _, err := dial(t, r.urls[0]).DeleteManager(t.Context(), &weirv1.DeleteManagerRequest{Name: "m3"}); err != nil {
		t.Fatal(err)
	}
	cfg.Listen, cfg.Log, cfg.Insecure = "127.0.0.1:0", logger(t), true
	for range 2 {
		m, err := New(t.Context(), cfg)
		if err == nil {
			m.Close()
		}
		if err == nil || !strings.Contains(err.Error(), "taken out of the cluster for good") {
			t.Fatalf("a manager that was taken out starts: %v", err)
		}
	}
}

// Who writes by a manager that does not lead reads by it what was written.
func TestReadYourWrites(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 2)
	client := dial(t, r.urls[1])
	for i := range 100 {
		name := fmt.Sprintf("vip%d", i)
		made, err := client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: loneVIP(name, i+1)})
		if err != nil {
			t.Fatal(err)
		}
		read, err := client.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: name})
		if err != nil || read.GetVip().GetResourceVersion() < made.GetVip().GetResourceVersion() {
			t.Fatalf("write %d: got %v, %v after %v", i, read, err, made)
		}
	}
}

// A majority that is lost stops writes, with an error that says so, and not reads of how things are.
func TestMajorityLost(t *testing.T) {
	t.Parallel()
	r := startReplicas(t, 3)
	r.stops[1]()
	apply(t, r.urls[0], loneVIP("shop", 1))
	r.stops[2]()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	client := dial(t, r.urls[0])
	if _, err := client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{loneVIP("blog", 2)}}); err == nil {
		t.Error("a minority took a write")
	}
	if _, err := client.GetStatus(t.Context(), &weirv1.GetStatusRequest{}); err != nil {
		t.Errorf("a minority does not say how things are: %v", err)
	}
	problems := 0
	for _, m := range listManagers(t, client) {
		if m.Problem != "" {
			problems++
		}
	}
	if problems != 2 {
		t.Errorf("%d managers have a problem, want 2", problems)
	}
}

// loneVIP is a VIP without backends.
func loneVIP(name string, n int) *weirv1.VIP {
	return &weirv1.VIP{
		Name: name, Address: fmt.Sprintf("203.0.113.%d", n),
		Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}},
	}
}
