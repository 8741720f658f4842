package muxd

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

func TestVIPsAreAnnouncedOnceTheyCanBeForwarded(t *testing.T) {
	b := newBench(t, nil)
	b.did("settings key 0, sources 10.7.0.9 invalid IP, mtu 1500")

	b.hops.changed(resolved())
	b.did("next hops of []")
	if err := b.apply(snapshot(5, endpoint(key(10), "10.2.0.1", "10.2.0.2"))); err != nil {
		t.Fatal(err)
	}
	b.did("settings key ab, sources 10.7.0.9 invalid IP, mtu 1500", "replace by 1", "generation 5", "destinations [10.2.0.1 10.2.0.2]")

	half := resolved("10.2.0.1")
	b.hops.changed(half)
	b.did("next hops of [10.2.0.1]") // 10.2.0.2 is still being tried
	half.Problems[addr("10.2.0.2")] = "no route to 10.2.0.2"
	b.hops.changed(half)
	b.did("next hops of [10.2.0.1]", "announce [203.0.113.10/32]")
	if want := "[203.0.113.10/32]"; b.discarded != want {
		t.Errorf("the kernel discards %s, want what is announced, %s", b.discarded, want)
	}
	if got := fmt.Sprint(b.mux.tables.allWarnings()); got != "[no route to 10.2.0.2]" {
		t.Errorf("warnings %s", got)
	}

	// What is announced stays, whatever becomes of some next hops.
	b.hops.changed(resolved())
	b.did("next hops of []")

	// A VIP whose hosts are known is announced at once.
	b.hops.changed(resolved("10.2.0.1", "10.2.0.2"))
	b.take()
	if err := b.apply(wire.MuxUpdate{Generation: 6, Endpoints: []model.MuxEndpoint{endpoint(key(11), "10.2.0.2")}}); err != nil {
		t.Fatal(err)
	}
	b.did("apply +1 -0", "generation 6", "announce [203.0.113.10/32 203.0.113.11/32]")
}

func TestMuxThatReachesNoHostAnnouncesNothing(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1", "10.2.0.2"))
	b.hops.changed(resolved("10.2.0.1", "10.2.0.2"))
	b.take()

	lost := resolved("10.2.0.2")
	lost.Problems[addr("10.2.0.1")] = "no route to 10.2.0.1"
	b.hops.changed(lost)
	b.did("next hops of [10.2.0.2]") // one is enough

	lost = resolved()
	lost.Problems[addr("10.2.0.1")] = "no route to 10.2.0.1"
	lost.Problems[addr("10.2.0.2")] = "no route to 10.2.0.2"
	b.hops.changed(lost)
	b.did("next hops of []", "announce []")
	if got := fmt.Sprint(b.mux.tables.allWarnings()); !strings.Contains(got, "no host can be reached: no VIP is announced") {
		t.Errorf("warnings %s", got)
	}

	b.hops.changed(resolved("10.2.0.1", "10.2.0.2"))
	b.did("next hops of [10.2.0.1 10.2.0.2]", "announce [203.0.113.10/32]")

	// Hosts that are new and not yet tried tell nothing.
	if err := b.apply(wire.MuxUpdate{Generation: 8, Endpoints: []model.MuxEndpoint{endpoint(key(10), "10.2.0.3")}}); err != nil {
		t.Fatal(err)
	}
	b.did("apply +1 -0", "generation 8", "destinations [10.2.0.3]")
}

func TestVIPsAreWithdrawnBeforeTheirEndpointsGo(t *testing.T) {
	other := model.EndpointKey{VIP: key(10).VIP, Protocol: model.UDP, Port: 53}
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1"), endpoint(other, "10.2.0.1"), endpoint(key(11), "10.2.0.1"))
	b.hops.changed(resolved("10.2.0.1"))
	b.take()

	// The VIP keeps an endpoint, so it keeps its route.
	if err := b.apply(wire.MuxUpdate{Generation: 8, Removed: []model.EndpointKey{other}}); err != nil {
		t.Fatal(err)
	}
	b.did("apply +0 -1", "generation 8")
	if err := b.apply(wire.MuxUpdate{Generation: 9, Removed: []model.EndpointKey{key(10)}}); err != nil {
		t.Fatal(err)
	}
	b.did("announce [203.0.113.11/32]", "apply +0 -1", "generation 9")
	if err := b.apply(snapshot(10)); err != nil {
		t.Fatal(err)
	}
	b.did("announce []", "settings key ab, sources 10.7.0.9 invalid IP, mtu 1500", "replace by 0", "generation 10", "destinations []")
}

func TestRefusedTablesChangeNothing(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1"))
	b.hops.changed(resolved("10.2.0.1"))
	b.take()

	b.datapath.full = errors.New("table buckets is full: 256 of 256 are in use")
	update := wire.MuxUpdate{
		Generation: 8, Endpoints: []model.MuxEndpoint{endpoint(key(11), "10.2.0.1")}, Removed: []model.EndpointKey{key(10)},
	}
	if err := b.apply(update); !errors.Is(err, b.datapath.full) {
		t.Errorf("error %v", err)
	}
	b.did("announce []", "apply +1 -1", "announce [203.0.113.10/32]")
	generation, _, rejected := b.mux.tables.current()
	if generation != 7 || rejected == nil || rejected.generation != 8 || rejected.reason != b.datapath.full.Error() {
		t.Errorf("generation %d, rejected %+v", generation, rejected)
	}

	b.datapath.full = nil
	if err := b.apply(update); err != nil {
		t.Fatal(err)
	}
	if generation, _, rejected := b.mux.tables.current(); generation != 8 || rejected != nil {
		t.Errorf("generation %d, rejected %+v", generation, rejected)
	}
}

// The manager is away for all of this test.
func TestRestartTakesOverWhatIsLive(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1", "10.2.0.2"), endpoint(key(11), "10.2.0.3"))
	b.did("settings key 0, sources 10.7.0.9 invalid IP, mtu 1500",
		"destinations [10.2.0.1 10.2.0.2 10.2.0.3]", "announce [203.0.113.10/32 203.0.113.11/32]")
	if generation, _, _ := b.mux.tables.current(); generation != 7 {
		t.Errorf("generation %d, want that of the tables", generation)
	}

	// The next hops that the data plane has are better than those that are not yet known.
	b.hops.changed(resolved())
	b.hops.changed(resolved("10.2.0.1"))
	b.hops.changed(resolved("10.2.0.1", "10.2.0.2"))
	b.did()
	b.hops.changed(resolved("10.2.0.1", "10.2.0.2", "10.2.0.3"))
	b.did("next hops of [10.2.0.1 10.2.0.2 10.2.0.3]")
}

func TestMTUAndMACFollowTheInterface(t *testing.T) {
	b := newBench(t, nil)
	b.take()
	state := resolved()
	state.MTU = 9000
	b.hops.changed(state)
	b.did("next hops of []", "settings key 0, sources 10.7.0.9 invalid IP, mtu 9000")
	state.MAC[0] = 6
	b.hops.changed(state)
	b.did("next hops of []", "settings key 0, sources 10.7.0.9 invalid IP, mtu 9000")
	if settings, _ := b.datapath.Settings(); settings.MAC != state.MAC {
		t.Errorf("the settings's MAC is %x, want the interface's, %x", settings.MAC, state.MAC)
	}
}

func TestAggregates(t *testing.T) {
	aggregates := func(c *Config) {
		c.Routes.Aggregates = []netip.Prefix{netip.MustParsePrefix("203.0.113.0/28"), netip.MustParsePrefix("203.0.113.16/28")}
	}
	b := newBench(t, aggregates, endpoint(key(10), "10.2.0.1"), endpoint(key(11), "10.2.0.1"), endpoint(key(99), "10.2.0.1"))
	b.did("settings key 0, sources 10.7.0.9 invalid IP, mtu 1500", "destinations [10.2.0.1]", "announce [203.0.113.0/28]")
	if got := fmt.Sprint(b.mux.tables.allWarnings()); got != "[VIP 203.0.113.99 is not announced: no aggregate holds it]" {
		t.Errorf("warnings %s", got)
	}
	b.hops.changed(resolved("10.2.0.1"))
	b.take()
	if err := b.apply(wire.MuxUpdate{Generation: 8, Removed: []model.EndpointKey{key(10)}}); err != nil {
		t.Fatal(err)
	}
	b.did("apply +0 -1", "generation 8") // another VIP holds the aggregate
	if err := b.apply(wire.MuxUpdate{Generation: 9, Removed: []model.EndpointKey{key(11)}}); err != nil {
		t.Fatal(err)
	}
	b.did("announce []", "apply +0 -1", "generation 9")
}

func TestCleanStopWithdrawsThenUnloads(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1"))
	b.take()
	ctx, stop := context.WithCancel(context.Background())
	end := b.run(ctx)
	stop()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	b.hops.changed(resolved("10.2.0.1")) // late news announce nothing any more
	b.did("announce []", "sessions closed", "unload", "next hops of [10.2.0.1]")
	if b.discarded != "[]" {
		t.Errorf("the kernel still discards %s", b.discarded)
	}
}

func TestHandOverKeepsForwarding(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1"))
	b.take()
	handOver := make(chan os.Signal, 1)
	handOver <- syscall.SIGUSR2
	if err := b.mux.Run(context.Background(), handOver); err != nil {
		t.Fatal(err)
	}
	b.did("speaker hands over", "sessions closed", "close")
}

func TestFailureKeepsForwarding(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1"))
	b.take()
	end := b.run(context.Background())
	b.speaker.broken <- errors.New("start bgp: out of sorts")
	if err := end(); err == nil || !strings.Contains(err.Error(), "out of sorts") {
		t.Errorf("error %v", err)
	}
	b.did("speaker hands over", "close")
}

func TestReport(t *testing.T) {
	b := newBench(t, nil, endpoint(key(10), "10.2.0.1"))
	b.mux.tables.reject(9, errors.New("endpoints[0].buckets: must be a power of two, are 3"))
	b.hops.changed(HopState{Link: "interface eth0 is down"})
	ctx, stop := context.WithCancel(context.Background())
	end := b.run(ctx)
	r := <-b.manager.reports
	stop()
	if err := end(); err != nil {
		t.Fatal(err)
	}
	if r.GetName() != "mux-1" || r.GetGeneration() != 7 || r.GetRejection().GetGeneration() != 9 ||
		!strings.Contains(r.GetRejection().GetReason(), "power of two") {
		t.Errorf("report %v", r)
	}
	s := r.GetStatus()
	if s.GetXdpMode() != "native" || s.GetInterface() != "eth0" || s.GetWarnings()[0] != "interface eth0 is down" ||
		s.GetPeers()[0].GetLastError() != "no answer" || s.GetVerdicts()[0].GetName() != "forward_syn" ||
		s.GetEndpoints()[0].GetBytes() != 180 {
		t.Errorf("status %v", s)
	}
	if f := s.GetFlows(); len(f) != 1 || f[0].GetTenant() != "acme" || f[0].GetUsed() != 5 || f[0].GetLimit() != 8 {
		t.Errorf("tenants have flows %v", f)
	}
}

func TestAnnounceErrorsAreWarnings(t *testing.T) {
	v6 := model.EndpointKey{VIP: addr("2001:db8::10"), Protocol: model.TCP, Port: 80}
	b := newBench(t, nil, endpoint(v6, "10.2.0.1"))
	if got := fmt.Sprint(b.mux.tables.allWarnings()); got != "[announce 2001:db8::10/128: no next hop]" {
		t.Errorf("warnings %s", got)
	}
}

func TestGenericXDPIsAWarning(t *testing.T) {
	b := newBench(t, nil)
	if got := b.mux.tables.allWarnings(); len(got) > 0 {
		t.Errorf("warnings %q in native mode", got)
	}
	b.datapath.mode = "generic"
	if got := fmt.Sprint(b.mux.tables.allWarnings()); !strings.Contains(got, "XDP on eth0 is generic") {
		t.Errorf("warnings %s, want one of the mode", got)
	}
}
