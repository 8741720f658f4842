package manager

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
)

// sampled is the interval of samples in tests.
const sampled = 100 * time.Millisecond

// meteredMux is a mux that forwards 1000 packets a second to each VIP, by a clock that moves when it reports.
type meteredMux struct {
	mu       sync.Mutex
	now      time.Time
	began    time.Time
	at       *rpc.Client // that it reports to
	vips     []string    // addresses
	hangsUp  context.CancelFunc
	finished chan struct{}
}

func newMeteredMux(vips ...string) *meteredMux {
	began := time.Now().Truncate(sampled)
	return &meteredMux{now: began, began: began, vips: vips, hangsUp: func() {}, finished: make(chan struct{})}
}

// clock has a manager go by the mux's clock.
func (f *meteredMux) clock(m *Manager) {
	m.now = func() time.Time {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.now
	}
	m.measured.Interval = sampled
}

// follow opens the mux's stream to a manager, and reports there from then on.
func (f *meteredMux) follow(t *testing.T, client *rpc.Client) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(cancel)
	eventually(t, "the mux is let in", func() bool {
		stream, err := client.SyncMux(ctx, &weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.1.2"}, Version: "test"})
		return err == nil && stream.Receive()
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hangsUp()
	f.at, f.hangsUp = client, cancel
}

// run reports until the test ends.
func (f *meteredMux) run(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	t.Cleanup(func() { cancel(); <-f.finished })
	go func() {
		defer close(f.finished)
		for ticker := time.NewTicker(sampled); ; {
			f.report(ctx)
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return
			}
		}
	}()
}

// report moves the clock on, and tells what the counters are by then.
func (f *meteredMux) report(ctx context.Context) {
	f.mu.Lock()
	f.now = f.now.Add(sampled)
	n, client := uint64(f.now.Sub(f.began)/time.Millisecond), f.at
	f.mu.Unlock()
	r := &weirv1.ReportMuxRequest{Name: "mux1", Status: &weirv1.MuxStatus{
		XdpMode: "native", Warnings: []string{"the mux is warm"}, Peers: []*weirv1.BGPPeer{{Address: "10.1.1.1", State: "established"}},
		Verdicts: []*weirv1.NamedCounter{{Name: "drop_no_backend", Packets: 2 * n, Bytes: 200 * n}, {Name: "\x1b[2J", Packets: n}},
	}}
	for _, vip := range f.vips {
		r.Status.Endpoints = append(r.Status.Endpoints, &weirv1.EndpointCounter{
			Endpoint: &weirv1.EndpointKey{Vip: vip, Protocol: "TCP", Port: 80}, Packets: n, Bytes: 100 * n,
		})
	}
	all := n * uint64(len(f.vips))
	r.Status.Verdicts = append(r.Status.Verdicts, &weirv1.NamedCounter{Name: "forward_flow", Packets: all, Bytes: 100 * all})
	client.ReportMux(ctx, r) // a manager that is gone takes none: the next one is newer
}

// watchingRates opens a watch and returns what gives its next message.
func watchingRates(t *testing.T, client *rpc.Client, r *weirv1.WatchRatesRequest) func() *weirv1.WatchRatesResponse {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	stream, err := client.WatchRates(ctx, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return func() *weirv1.WatchRatesResponse {
		t.Helper()
		if !stream.Receive() {
			t.Fatalf("the watch ended: %v", stream.Err())
		}
		return stream.Msg()
	}
}

// busy reads until a sample tells of the mux.
func busy(next func() *weirv1.WatchRatesResponse) *weirv1.WatchRatesResponse {
	for {
		if m := next(); len(m.GetMuxes()) > 0 {
			return m
		}
	}
}

func vipNames(m *weirv1.WatchRatesResponse) []string {
	var names []string
	for _, v := range m.GetVips() {
		names = append(names, v.GetVip())
	}
	return names
}

// Rates are what the mux sent, by mux, verdict, VIP and endpoint; what a mux says of addresses that are no VIP's, and words
// that are no verdicts, are not told.
func TestWatchRates(t *testing.T) {
	f := newMeteredMux("203.0.113.1", "203.0.113.2", "192.0.2.99")
	url, _ := start(t, Config{}, f.clock)
	client := dial(t, url)
	if _, err := client.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{bare("a", "203.0.113.1"), bare("b", "203.0.113.2")}}); err != nil {
		t.Fatal(err)
	}
	f.follow(t, client)
	f.run(t)
	m := busy(watchingRates(t, client, &weirv1.WatchRatesRequest{Busiest: 10}))
	rate := func(packets, bits float64) *weirv1.Rate { return &weirv1.Rate{Packets: packets, Bits: bits} }
	endpoint := func(address string) []*weirv1.EndpointRate {
		return []*weirv1.EndpointRate{{Endpoint: &weirv1.EndpointKey{Vip: address, Protocol: "TCP", Port: 80}, Rate: rate(1000, 800_000)}}
	}
	want := &weirv1.WatchRatesResponse{
		Type: "sample", At: m.GetAt(),
		Muxes:    []*weirv1.MuxRate{{Mux: "mux1", Forwarded: rate(3000, 2_400_000), Passed: rate(0, 0), Dropped: rate(2000, 1_600_000)}},
		Verdicts: []*weirv1.NamedRate{{Name: "drop_no_backend", Rate: rate(2000, 1_600_000)}, {Name: "forward_flow", Rate: rate(3000, 2_400_000)}},
		Vips: []*weirv1.VIPRate{
			{Vip: "a", Tenant: "default", Rate: rate(1000, 800_000), Endpoints: endpoint("203.0.113.1")},
			{Vip: "b", Tenant: "default", Rate: rate(1000, 800_000), Endpoints: endpoint("203.0.113.2")},
		},
	}
	if !proto.Equal(m, want) {
		t.Errorf("got %v\nwant %v", m, want)
	}
	if m := busy(watchingRates(t, client, &weirv1.WatchRatesRequest{Vips: []string{"b", "none"}})); !slices.Equal(vipNames(m), []string{"b"}) {
		t.Errorf("got %v of b alone", m)
	}
	if m := busy(watchingRates(t, client, &weirv1.WatchRatesRequest{Busiest: 1})); len(m.GetVips()) != 1 {
		t.Errorf("got %v of one VIP", m)
	}
	historyIsInOrder(t, client, f.began)
	badRatesAreRefused(t, client)
}

// historyIsInOrder holds that what has been is told first, in order, up to a bookmark.
func historyIsInOrder(t *testing.T, client *rpc.Client, began time.Time) {
	t.Helper()
	next, last, n := watchingRates(t, client, &weirv1.WatchRatesRequest{Since: timestamppb.New(began), Vips: []string{"a"}}), time.Time{}, 0
	for m := next(); m.GetType() != "bookmark"; m = next() {
		if at := m.GetAt().AsTime(); !at.After(last) {
			t.Errorf("%s comes after %s", at, last)
		} else {
			last = at
		}
		n++
	}
	if n < 2 {
		t.Errorf("%d samples have been", n)
	}
}

func badRatesAreRefused(t *testing.T, client *rpc.Client) {
	t.Helper()
	for what, r := range map[string]*weirv1.WatchRatesRequest{
		"vips: ":                     {Vips: slices.Repeat([]string{"a"}, 17)},
		"busiest: must be 256":       {Busiest: 257},
		"own: is for managers alone": {Own: true},
		"since: must be a time":      {Since: timestamppb.New(time.Now().Add(time.Hour))},
		"tenant: ":                   {Tenant: strings.Repeat("x", 300)},
		"vips[0]: ":                  {Vips: []string{strings.Repeat("x", 300)}},
	} {
		stream, err := client.WatchRates(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() || connect.CodeOf(stream.Err()) != connect.CodeInvalidArgument || !strings.Contains(stream.Err().Error(), what) {
			t.Errorf("%s: %v", what, stream.Err())
		}
		stream.Close()
	}
}

// A watch at one manager tells of muxes of another one, and goes on when that is lost, which led; all that has been is
// known to those that are left.
func TestRatesOutliveALeader(t *testing.T) {
	t.Parallel()
	f := newMeteredMux("203.0.113.1")
	r := startReplicas(t, 3, f.clock)
	if _, err := dial(t, r.urls[0]).ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{bare("a", "203.0.113.1")}}); err != nil {
		t.Fatal(err)
	}
	f.follow(t, dial(t, r.urls[0]))
	f.run(t)
	watched := dial(t, r.urls[1])
	next := watchingRates(t, watched, &weirv1.WatchRatesRequest{Vips: []string{"a"}})
	before := busy(next)
	if got := before.GetVips()[0].GetRate().GetPackets(); got != 1000 {
		t.Errorf("%v packets a second, want 1000", got)
	}
	r.stops[0]()
	f.follow(t, watched)
	var after *weirv1.WatchRatesResponse
	eventually(t, "the watch goes on", func() bool {
		after = busy(next)
		return after.GetAt().AsTime().Sub(before.GetAt().AsTime()) > 5*sampled
	})
	if got := after.GetVips()[0].GetRate().GetPackets(); got != 1000 {
		t.Errorf("%v packets a second afterwards, want 1000", got)
	}
	known := false
	history := watchingRates(t, dial(t, r.urls[2]), &weirv1.WatchRatesRequest{Since: timestamppb.New(f.began)})
	for m := history(); m.GetType() != "bookmark"; m = history() {
		known = known || m.GetAt().AsTime().Equal(before.GetAt().AsTime()) && len(m.GetMuxes()) == 1
	}
	if !known {
		t.Errorf("the third manager knows no sample of %s, from before the leader was lost", before.GetAt().AsTime())
	}
}

// A manager that starts again knows what its own muxes did before, from another one.
func TestAManagerThatStartsAgainKnowsWhatHasBeen(t *testing.T) {
	t.Parallel()
	f := newMeteredMux("203.0.113.1")
	c := &replicas{}
	configs := []Config{{Name: "m1", PeerListen: freeAddress(t), DataDir: t.TempDir()}, {Name: "m2", PeerListen: freeAddress(t), DataDir: t.TempDir()}, {Name: "m3", PeerListen: freeAddress(t), DataDir: t.TempDir()}}
	for i := range configs {
		if i > 0 {
			configs[i].Join = c.urls[0]
		}
		url, stop := start(t, configs[i], f.clock)
		c.urls, c.stops = append(c.urls, url), append(c.stops, stop)
	}
	f.follow(t, dial(t, c.urls[2]))
	f.run(t)
	before := busy(watchingRates(t, dial(t, c.urls[0]), &weirv1.WatchRatesRequest{}))
	c.stops[2]()
	f.follow(t, dial(t, c.urls[0]))
	url, _ := start(t, configs[2], f.clock)
	client := dial(t, url)
	eventually(t, "it knows", func() bool {
		history := watchingRates(t, client, &weirv1.WatchRatesRequest{Since: timestamppb.New(f.began)})
		known := false
		for m := history(); m.GetType() != "bookmark"; m = history() {
			known = known || m.GetAt().AsTime().Equal(before.GetAt().AsTime()) && len(m.GetMuxes()) == 1
		}
		return known
	})
}

// A user of one tenant is told of its VIPs alone, whatever it asks for: of no mux, no verdict, nobody else's VIP, and not of
// what an address that it has now did before, for others.
func TestRatesAreOfOnesOwnTenant(t *testing.T) {
	t.Parallel()
	f := newMeteredMux("198.51.100.1", "198.51.100.2")
	m, admin, url := secure(t, Config{}, f.clock)
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}, {Name: "blue"}}}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{
		of("blue", bare("sea", "198.51.100.1")), of("red", bare("rose", "198.51.100.2")),
	}}); err != nil {
		t.Fatal(err)
	}
	f.trustedMux(t, admin, url)
	all := watchingRates(t, admin, &weirv1.WatchRatesRequest{Busiest: 10})
	eventually(t, "both VIPs are told of", func() bool { return len(busy(all).GetVips()) == 2 })
	rita := operator(t, m, admin, url, "rita", "red")
	if _, err := admin.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "sea"}); err != nil {
		t.Fatal(err)
	}
	if _, err := rita.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{of("red", bare("tulip", "198.51.100.1"))}}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the address is red's", func() bool { return slices.Contains(vipNames(busy(all)), "tulip") })
	next, seen := watchingRates(t, rita, &weirv1.WatchRatesRequest{Since: timestamppb.New(f.began), Busiest: 256, Vips: []string{"sea"}}), map[string]bool{}
	changed := false // there were samples with rose alone
	for m := next(); m.GetType() != "bookmark"; m = next() {
		for _, name := range vipNames(m) {
			seen[name] = true
		}
		changed = changed || slices.Equal(vipNames(m), []string{"rose"})
		if len(m.GetMuxes())+len(m.GetVerdicts()) > 0 || m.GetOther() != nil || strings.Contains(m.String(), "blue") {
			t.Errorf("a user of red is told %v", m)
		}
	}
	if !seen["rose"] || !seen["tulip"] || seen["sea"] || !changed {
		t.Errorf("a user of red is told of %v", seen)
	}
	for what, r := range map[string]*weirv1.WatchRatesRequest{"may not do that in tenant blue": {Tenant: "blue"}, "is for managers alone": {Whole: true, Own: true}} {
		stream, err := rita.WatchRates(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		if stream.Receive() || !strings.Contains(stream.Err().Error(), what) {
			t.Errorf("%v: %v, want %s", r, stream.Err(), what)
		}
		stream.Close()
	}
}

// trustedMux has the mux join a manager, follow it, and report until the test ends.
func (f *meteredMux) trustedMux(t *testing.T, admin *rpc.Client, url string) {
	t.Helper()
	mux := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "mux"}, "mux", "mux1")
	if err := mux.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := mux.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	f.follow(t, client)
	f.run(t)
}

// watchingNodes opens a watch and returns what gives its next message.
func watchingNodes(t *testing.T, client *rpc.Client) func() *weirv1.WatchNodesResponse {
	t.Helper()
	stream, err := client.WatchNodes(t.Context(), &weirv1.WatchNodesRequest{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stream.Close() })
	return func() *weirv1.WatchNodesResponse {
		t.Helper()
		if !stream.Receive() {
			t.Fatal(stream.Err())
		}
		return stream.Msg()
	}
}

// Nodes come first, then what becomes of them: a mux that is gone is told of, and one that was deleted. Counters are none of
// it. A user of one tenant learns whether changes reach nodes.
func TestWatchNodes(t *testing.T) {
	t.Parallel()
	f := newMeteredMux("198.51.100.1")
	m, admin, url := secure(t, Config{}, f.clock)
	f.trustedMux(t, admin, url)
	eventually(t, "the mux has reported", func() bool {
		n, err := admin.GetNode(t.Context(), &weirv1.GetNodeRequest{Name: "mux1"})
		return err == nil && n.GetNode().GetStatus().GetConnected() && len(n.GetNode().GetStatus().GetMux().GetPeers()) == 1
	})
	next, hers := watchingNodes(t, admin), watchingNodes(t, operator(t, m, admin, url, "rita", "default"))
	both := map[string]func() *weirv1.WatchNodesResponse{"the admin": next, "a user": hers}
	if got := next(); got.GetType() != "added" || !got.GetNode().GetStatus().GetConnected() || len(got.GetNode().GetStatus().GetMux().GetPeers()) != 1 || len(got.GetNode().GetStatus().GetMux().GetVerdicts()) > 0 {
		t.Errorf("got %v", got)
	}
	if got := hers(); got.GetType() != "added" || !got.GetNode().GetStatus().GetConnected() || got.GetNode().GetStatus().GetMux() != nil || len(got.GetNode().GetAddresses()) > 0 {
		t.Errorf("a user of one tenant is told %v", got)
	}
	for who, next := range both {
		if got := next(); got.GetType() != "bookmark" {
			t.Errorf("%s got %v, want a bookmark", who, got)
		}
	}
	// Its reports, which go on, differ in counters alone: what comes next is that it is gone.
	f.mu.Lock()
	f.hangsUp()
	f.mu.Unlock()
	for who, next := range both {
		got := next()
		for got.GetNode().GetStatus().GetConnected() { // its place in the pool may change before
			got = next()
		}
		if got.GetType() != "modified" || got.GetNode().GetName() != "mux1" {
			t.Errorf("%s got %v", who, got)
		}
	}
	eventually(t, "the mux is deleted", func() bool {
		_, err := admin.DeleteNode(t.Context(), &weirv1.DeleteNodeRequest{Name: "mux1"})
		return err == nil
	})
	for who, next := range both {
		got := next()
		for got.GetType() == "modified" {
			got = next()
		}
		if got.GetType() != "deleted" || got.GetNode().GetName() != "mux1" || got.GetNode().GetStatus() != nil {
			t.Errorf("%s got %v", who, got)
		}
	}
}

// The status tells of what a mux says, and that it is gone, each with what it is of; nodes are left out.
func TestWatchStatus(t *testing.T) {
	t.Parallel()
	f := newMeteredMux("198.51.100.1")
	_, admin, url := secure(t, Config{}, f.clock)
	f.trustedMux(t, admin, url)
	status, err := admin.WatchStatus(t.Context(), &weirv1.WatchStatusRequest{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { status.Close() })
	warns := func(text, kind, name string) {
		t.Helper()
		eventually(t, "it is warned: "+text, func() bool {
			if !status.Receive() {
				t.Fatal(status.Err())
			}
			if len(status.Msg().GetStatus().GetNodes()) > 0 || status.Msg().GetStatus().GetVersion() != "test" {
				t.Errorf("the status is %v", status.Msg())
			}
			return slices.ContainsFunc(status.Msg().GetWarnings(), func(w *weirv1.Warning) bool {
				return strings.Contains(w.GetText(), text) && w.GetKind() == kind && w.GetName() == name
			})
		})
	}
	warns("the mux is warm", "mux", "mux1")
	f.mu.Lock()
	f.hangsUp()
	f.mu.Unlock()
	warns("no mux is connected", "", "")
}
