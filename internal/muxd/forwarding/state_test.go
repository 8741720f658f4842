package forwarding

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

func TestVIPsAreAnnouncedOnceTheyCanBeForwarded(t *testing.T) {
	b := newBench(t)
	b.did("settings key 0, sources 10.7.0.9 invalid IP, mtu 1500")

	b.state.SetNextHops(resolved())
	b.did("next hops of []")
	b.must(snapshot(5, newEndpoint(key(10), "10.2.0.1", "10.2.0.2")))
	b.did("settings key ab, sources 10.7.0.9 invalid IP, mtu 1500", "replace by 1", "generation 5",
		"destinations [10.2.0.1 10.2.0.2]")

	half := resolved("10.2.0.1")
	b.state.SetNextHops(half)
	b.did("next hops of [10.2.0.1]") // 10.2.0.2 is still being tried
	half.Problems[addr("10.2.0.2")] = "no route to 10.2.0.2"
	b.state.SetNextHops(half)
	b.did("next hops of [10.2.0.1]", "announce [203.0.113.10/32]")
	if want := "[203.0.113.10/32]"; b.discarded != want {
		t.Errorf("the kernel discards %s, want what is announced, %s", b.discarded, want)
	}
	if got := fmt.Sprint(b.state.Warnings()); got != "[no route to 10.2.0.2]" {
		t.Errorf("warnings %s", got)
	}

	// What is announced stays, whatever becomes of some next hops.
	b.state.SetNextHops(resolved())
	b.did("next hops of []")

	// A VIP whose hosts are known is announced at once.
	b.state.SetNextHops(resolved("10.2.0.1", "10.2.0.2"))
	b.take()
	b.must(wire.MuxUpdate{Generation: 6, Endpoints: []model.MuxEndpoint{newEndpoint(key(11), "10.2.0.2")}})
	b.did("apply +1 -0", "generation 6", "announce [203.0.113.10/32 203.0.113.11/32]")
}

func TestMuxThatReachesNoHostAnnouncesNothing(t *testing.T) {
	b := newBench(t, newEndpoint(key(10), "10.2.0.1", "10.2.0.2"))
	b.state.SetNextHops(resolved("10.2.0.1", "10.2.0.2"))
	b.take()

	lost := resolved("10.2.0.2")
	lost.Problems[addr("10.2.0.1")] = "no route to 10.2.0.1"
	b.state.SetNextHops(lost)
	b.did("next hops of [10.2.0.2]") // one is enough

	lost = resolved()
	lost.Problems[addr("10.2.0.1")] = "no route to 10.2.0.1"
	lost.Problems[addr("10.2.0.2")] = "no route to 10.2.0.2"
	b.state.SetNextHops(lost)
	b.did("next hops of []", "announce []")
	if got := fmt.Sprint(b.state.Warnings()); !strings.Contains(got, "no host can be reached: no VIP is announced") {
		t.Errorf("warnings %s", got)
	}

	b.state.SetNextHops(resolved("10.2.0.1", "10.2.0.2"))
	b.did("next hops of [10.2.0.1 10.2.0.2]", "announce [203.0.113.10/32]")

	// Hosts that are new and not yet tried tell nothing.
	b.must(wire.MuxUpdate{Generation: 8, Endpoints: []model.MuxEndpoint{newEndpoint(key(10), "10.2.0.3")}})
	b.did("apply +1 -0", "generation 8", "destinations [10.2.0.3]")
}

func TestVIPsAreWithdrawnBeforeTheirEndpointsGo(t *testing.T) {
	other := model.EndpointKey{VIP: key(10).VIP, Protocol: model.UDP, Port: 53}
	b := newBench(t,
		newEndpoint(key(10), "10.2.0.1"), newEndpoint(other, "10.2.0.1"), newEndpoint(key(11), "10.2.0.1"))
	b.state.SetNextHops(resolved("10.2.0.1"))
	b.take()

	// The VIP keeps an endpoint, so it keeps its route.
	b.must(wire.MuxUpdate{Generation: 8, Removed: []model.EndpointKey{other}})
	b.did("apply +0 -1", "generation 8")
	b.must(wire.MuxUpdate{Generation: 9, Removed: []model.EndpointKey{key(10)}})
	b.did("announce [203.0.113.11/32]", "apply +0 -1", "generation 9")
	b.must(snapshot(10))
	b.did("announce []", "settings key ab, sources 10.7.0.9 invalid IP, mtu 1500", "replace by 0", "generation 10",
		"destinations []")
}

func TestRefusedTablesChangeNothing(t *testing.T) {
	b := newBench(t, newEndpoint(key(10), "10.2.0.1"))
	b.state.SetNextHops(resolved("10.2.0.1"))
	b.take()

	b.datapath.full = errors.New("table buckets is full: 256 of 256 are in use")
	update := wire.MuxUpdate{
		Generation: 8, Removed: []model.EndpointKey{key(10)},
		Endpoints: []model.MuxEndpoint{newEndpoint(key(11), "10.2.0.1")},
	}
	if err := b.apply(update); !errors.Is(err, b.datapath.full) {
		t.Errorf("error %v", err)
	}
	b.did("announce []", "apply +1 -1", "announce [203.0.113.10/32]")
	generation, _, rejected := b.state.Generations()
	if generation != 7 || rejected == nil || rejected.Generation != 8 || rejected.Reason != b.datapath.full.Error() {
		t.Errorf("generation %d, rejected %+v", generation, rejected)
	}

	b.datapath.full = nil
	b.must(update)
	if generation, _, rejected := b.state.Generations(); generation != 8 || rejected != nil {
		t.Errorf("generation %d, rejected %+v", generation, rejected)
	}
}

// The manager is away for all of this test.
func TestRestartTakesOverWhatIsLive(t *testing.T) {
	b := newBench(t, newEndpoint(key(10), "10.2.0.1", "10.2.0.2"), newEndpoint(key(11), "10.2.0.3"))
	b.did("settings key 0, sources 10.7.0.9 invalid IP, mtu 1500",
		"destinations [10.2.0.1 10.2.0.2 10.2.0.3]", "announce [203.0.113.10/32 203.0.113.11/32]")
	if generation, _, _ := b.state.Generations(); generation != 7 {
		t.Errorf("generation %d, want that of the tables", generation)
	}

	// The next hops that the data plane has are better than those that are not yet known.
	b.state.SetNextHops(resolved())
	b.state.SetNextHops(resolved("10.2.0.1"))
	b.state.SetNextHops(resolved("10.2.0.1", "10.2.0.2"))
	b.did()
	b.state.SetNextHops(resolved("10.2.0.1", "10.2.0.2", "10.2.0.3"))
	b.did("next hops of [10.2.0.1 10.2.0.2 10.2.0.3]")
}

func TestMTUAndMACFollowTheInterface(t *testing.T) {
	b := newBench(t)
	b.take()
	state := resolved()
	state.MTU = 9000
	b.state.SetNextHops(state)
	b.did("next hops of []", "settings key 0, sources 10.7.0.9 invalid IP, mtu 9000")
	state.MAC[0] = 6
	b.state.SetNextHops(state)
	b.did("next hops of []", "settings key 0, sources 10.7.0.9 invalid IP, mtu 9000")
	if settings, _ := b.datapath.Settings(); settings.MAC != state.MAC {
		t.Errorf("the settings's MAC is %x, want the interface's, %x", settings.MAC, state.MAC)
	}
}

// The address is told while tables are written, which may take long.
func TestTheMACIsToldDuringAnUpdate(t *testing.T) {
	b := newBench(t)
	state := resolved()
	state.MTU, state.MAC = 1500, [6]byte{2, 0, 0, 0, 0, 9}
	b.state.SetNextHops(state)
	var told [6]byte
	b.datapath.during = func() {
		asked := make(chan [6]byte, 1)
		go func() { asked <- b.state.MAC() }()
		select {
		case told = <-asked:
		case <-time.After(10 * time.Second):
		}
	}
	b.must(wire.MuxUpdate{Generation: 8, Endpoints: []model.MuxEndpoint{newEndpoint(key(10), "10.2.0.1")}})
	if told != state.MAC {
		t.Errorf("during an update it is told as %x, want %x", told, state.MAC)
	}
}

// What the manager says of routes is done before the tables change, and though they are refused.
func TestRoutesChangeBeforeTables(t *testing.T) {
	b := newBench(t, newEndpoint(key(10), "10.2.0.1"), newEndpoint(key(11), "10.2.0.1"))
	b.state.SetNextHops(resolved("10.2.0.1"))
	b.take()
	b.datapath.full = errors.New("no room")
	without := []model.VIPRoute{{VIP: key(11).VIP, Action: model.ActionBlackhole, Withdrawn: true}}
	if err := b.apply(wire.MuxUpdate{Generation: 8, Routes: without}); !errors.Is(err, b.datapath.full) {
		t.Errorf("error %v", err)
	}
	b.did("announce [203.0.113.10/32]", "apply +0 -0")
	if err := b.apply(wire.MuxUpdate{Generation: 8, Withdraw: true}); !errors.Is(err, b.datapath.full) {
		t.Errorf("error %v", err)
	}
	b.did("announce []", "apply +0 -0")
}

// Newly filled tables take over once the next hops are known, and one host at least can be reached.
func TestFilledTablesTakeOver(t *testing.T) {
	b := newBench(t, newEndpoint(key(10), "10.2.0.1"))
	b.state.SetNextHops(resolved("10.2.0.1"))
	if b.datapath.tookOver {
		t.Error("they took over before they were filled")
	}
	b.must(snapshot(8, newEndpoint(key(10), "10.2.0.2")))
	if b.datapath.tookOver {
		t.Error("they took over without the next hop")
	}
	if b.state.SetNextHops(resolved("10.2.0.2")); !b.datapath.tookOver {
		t.Error("they did not take over")
	}
}
