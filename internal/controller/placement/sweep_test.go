package placement

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// Each VIP is looked at within sweepParts sweeps, those that are settled a part at a time, the others in each; one whose switch is
// lost, or comes back, at once.
func TestVIPsAreSweptInParts(t *testing.T) {
	const many = 500
	d := newWorld()
	d.runs = 7
	fast := d.state.VIPs.At("fast")
	address := func(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(113 + i>>8), byte(i)}) }
	put := func(i int, place placementpolicy.Place) {
		d.state.Placements.Put(address(i), placementpolicy.State{VIP: fmt.Sprint("vip", i), Places: map[string]placementpolicy.Place{"sw1": place}})
		d.state.PlacementWritten.Set(address(i), 7)
	}
	d.state.RemoveVIP("fast")
	for i := range many {
		vip := fast
		vip.Name, vip.Address = fmt.Sprint("vip", i), address(i)
		d.state.PutVIP(vip)
		table := d.state.Tables.At(model.EndpointKey{VIP: fast.Address, Protocol: model.TCP, Port: 80})
		d.state.Tables.Set(model.EndpointKey{VIP: vip.Address, Protocol: model.TCP, Port: 80}, table)
		put(i, placementpolicy.Place{Phase: placementpolicy.Hardware})
	}
	open := map[netip.Addr]bool{address(0): true, address(1): true, address(2): true}
	put(0, placementpolicy.Place{Phase: placementpolicy.Hardware, Unrouted: true})
	put(1, placementpolicy.Place{Phase: placementpolicy.Hardware, Part: placementpolicy.Part{Number: 1, Of: 2}})
	put(2, placementpolicy.Place{Phase: placementpolicy.Evicted, Attempts: 9})
	w := d.watch()
	// looked are the VIPs that are looked at after a while.
	looked := func(after time.Duration) []netip.Addr {
		d.now = d.now.Add(after)
		w.observe(d.state, d.now)
		w.choose(d.state, d.now)
		vips := slices.SortedFunc(maps.Keys(w.look), netip.Addr.Compare)
		w.due(d.state, d.now)
		clear(w.look)
		return vips
	}
	if n := len(looked(0)); n != many {
		t.Fatalf("a new leader looks at %d of %d VIPs", n, many)
	}
	seen := map[netip.Addr]int{}
	for range sweepParts {
		vips := looked(sweepInterval)
		if len(vips) > many/sweepParts+len(open)+many/50 {
			t.Errorf("%d of %d are looked at in one sweep", len(vips), many)
		}
		for _, vip := range vips {
			seen[vip]++
		}
		if vips := looked(lookPause); len(vips) > 0 && !slices.ContainsFunc(vips, func(vip netip.Addr) bool { return open[vip] }) {
			t.Errorf("between two sweeps %v are looked at", vips)
		}
	}
	for i := range many {
		if n := seen[address(i)]; n == 0 || open[address(i)] && n != sweepParts {
			t.Errorf("%s was looked at %d times in %d sweeps", address(i), n, sweepParts)
		}
	}
	for _, connected := range []bool{false, true} {
		d.state = d.state.Clone()
		if d.state.Streams.Delete("sw1"); connected {
			d.state.Streams.Set("sw1", true)
		}
		if n := len(looked(lookPause)); n != many {
			t.Errorf("the switch is connected: %t, and %d of %d VIPs are looked at", connected, n, many)
		}
		if n := len(looked(sweepInterval)); !connected && n != many {
			t.Errorf("while it is silent %d of %d are looked at in a sweep", n, many)
		}
	}
}
