package placement

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// swept is the number of a VIP.
func swept(i int) netip.Addr { return netip.AddrFrom4([4]byte{203, 0, byte(113 + i>>8), byte(i)}) }

// put has VIP number i be at a place of sw1.
func (d *world) put(i int, place placementpolicy.Place) {
	d.state.Placements.Put(swept(i), placementpolicy.State{VIP: fmt.Sprint("vip", i), Places: map[string]placementpolicy.Place{"sw1": place}})
	d.state.PlacementWritten.Set(swept(i), 7)
}

// manyWorld has so many VIPs that sw1 serves.
func manyWorld(many int) *world {
	d := newWorld()
	d.runs = 7
	fast := d.state.VIPs.At("fast")
	table := d.state.Tables.At(desired.Key(fast, fast.Endpoints[0]))
	d.state.RemoveVIP("fast")
	for i := range many {
		vip := fast
		vip.Name, vip.Address = fmt.Sprint("vip", i), swept(i)
		d.state.PutVIP(vip)
		d.state.Tables.Set(desired.Key(vip, vip.Endpoints[0]), table)
		d.put(i, placementpolicy.Place{Phase: placementpolicy.Hardware})
	}
	return d
}

// Each VIP is looked at within sweepParts sweeps, those that are settled a part at a time, the others in each; one whose switch is
// lost, or comes back, at once.
func TestVIPsAreSweptInParts(t *testing.T) {
	const many = 500
	d := manyWorld(many)
	open := map[netip.Addr]bool{swept(0): true, swept(1): true, swept(2): true}
	d.put(0, placementpolicy.Place{Phase: placementpolicy.Hardware, Unrouted: true})
	d.put(1, placementpolicy.Place{Phase: placementpolicy.Hardware, Part: placementpolicy.Part{Number: 1, Of: 2}})
	d.put(2, placementpolicy.Place{Phase: placementpolicy.Evicted, Attempts: 9})
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
		if n := seen[swept(i)]; n == 0 || open[swept(i)] && n != sweepParts {
			t.Errorf("%s was looked at %d times in %d sweeps", swept(i), n, sweepParts)
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
