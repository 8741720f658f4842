package hardware

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

// joining are the connections of each client to each VIP.
const joining = 20

// Joins of Multipath TCP that a switch brings to any host reach their server, of clients with timestamps and without, as those
// that muxes bring; their subflows outlive the way back to the muxes, and joins go on.
func TestJoinsBySwitches(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	w, err := fabriclab.New(ctx, testlab.Up(t, netlab.Config{Plan: fabriclab.Plan("fabricjoin", "1x2x1x1", 2)}), 1)
	testlab.Must(t, err)
	testlab.Must(t, mptcp.Prepare(w.Lab))
	paths, addresses := addPaths(t, w)
	s := &mptcp.Service{
		Name: "joins", VIPs: []netip.Addr{netip.MustParseAddr("203.0.113.90"), netip.MustParseAddr("2001:db8:113::90")}, Switches: []string{"core-1"},
	}
	muxes := len(w.Of(netlab.Mux))
	testlab.Must(t, s.Apply(ctx, w.Lab, muxes, fabriclab.Bound))
	testlab.Must(t, w.WaitHealthy(ctx, fabriclab.Bound))
	waitPhase(t, w, s, "hardware")
	before := muxed(t, w)
	g, err := mptcp.Open(ctx, w.Lab, joining, time.Second/4, []string{"client1", "client2"}, s.VIPs...)
	testlab.Must(t, err)
	defer g.Close()
	all := g.Len()
	join := func(number int) {
		t.Helper()
		for _, p := range paths[number] {
			testlab.Must(t, p.Join())
		}
		joined, err := g.WaitJoined(ctx, 20*time.Second, all, nil, addresses[number]...)
		testlab.Must(t, err)
		if joined != all {
			t.Errorf("%d of %d connections have joined from path %d", joined, all, number)
		}
	}
	join(2)
	if packets := muxed(t, w) - before; packets > 50 {
		t.Errorf("the muxes forwarded %d packets while a switch serves the VIPs", packets)
	}
	if backends := g.Backends(); len(backends) < 3 {
		t.Errorf("the connections are at %v: the test can't fail", backends)
	}
	view, err := g.View()
	testlab.Must(t, err)
	s.Switches = nil
	testlab.Must(t, s.Apply(ctx, w.Lab, muxes, fabriclab.Bound))
	waitPhase(t, w, s, "leaving")
	loss, err := g.WaitLost(ctx, 20*time.Second, view)
	testlab.Must(t, err)
	if loss.Connections+loss.Subflows > 0 {
		t.Errorf("on the way to the muxes %+v is lost", loss)
	}
	join(3)
	refused, err := mptcp.Counters(w.Lab, mptcp.Servers(w.Lab)...)
	testlab.Must(t, err)
	if n := refused[mptcp.JoinNoTokenFound]; n > 0 {
		t.Errorf("%d joins came to servers that have not their connection", n)
	}
}

// addPaths gives both clients paths 2 and 3, by number, from which nothing joins yet.
func addPaths(t *testing.T, w *fabriclab.World) (map[int][]mptcp.Path, map[int][]netip.Addr) {
	t.Helper()
	paths := map[int][]mptcp.Path{}
	addresses := map[int][]netip.Addr{}
	for _, client := range []string{"client1", "client2"} {
		for _, number := range []int{2, 3} {
			p, err := mptcp.AddPath(w.Lab, client, number)
			testlab.Must(t, err)
			paths[number] = append(paths[number], p)
			addresses[number] = append(addresses[number], p.IPv4, p.IPv6)
		}
	}
	return paths, addresses
}

// waitPhase waits until the VIPs of a service are in a phase at core-1.
func waitPhase(t *testing.T, w *fabriclab.World, s *mptcp.Service, phase string) {
	t.Helper()
	testlab.Must(t, netlab.Poll(t.Context(), fabriclab.Bound, func() error {
		phases, err := w.Phases()
		if err != nil {
			return err
		}
		for i := range s.VIPs {
			if is := phases[s.VIPName(i)]["core-1"]; is != phase {
				return fmt.Errorf("%s is %q at core-1, want %s", s.VIPName(i), is, phase)
			}
		}
		return nil
	}))
}
