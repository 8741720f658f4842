package switchconfig

import (
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

func tunnel(i int) netip.Addr { return netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}) }

// A group has the tunnels that buckets name and whose backend is not down, of all endpoints alike.
func TestGroupOf(t *testing.T) {
	vip := model.VIP{Name: "fast", Address: netip.MustParseAddr("203.0.113.30"), Endpoints: []model.Endpoint{
		{Protocol: model.TCP, Port: 80}, {Protocol: model.TCP, Port: 443}, {Protocol: model.UDP, Port: 53},
	}}
	var s desired.State
	row := func(slot int, down bool) desired.Row {
		return desired.Row{Slot: model.Slot(slot), Tunnel: tunnel(slot), Down: down}
	}
	s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), desired.Table{
		Rows: []desired.Row{row(1, false), row(2, false), row(3, true), row(4, false)}, Buckets: []model.Slot{1, 1, 2, 3},
	})
	s.Tables.Set(desired.Key(vip, vip.Endpoints[1]), desired.Table{
		Rows: []desired.Row{row(2, false)}, Buckets: []model.Slot{2, 2, 2, 2, 2, 2, 2, 2},
	})
	s.Tables.Set(desired.Key(vip, vip.Endpoints[2]), desired.Table{Rows: []desired.Row{row(5, false)}, Buckets: []model.Slot{5}, Closed: true})
	want := Group{{tunnel(1), allBuckets / 2}, {tunnel(2), allBuckets/4 + allBuckets}}
	if got := GroupOf(s, vip); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if got := GroupOf(desired.State{}, vip); len(got) != 0 {
		t.Errorf("without tables: %v", got)
	}
}

// TestGroupByHost has one tunnel for each host and family, the lowest of its backends, with the shares of all of them.
func TestGroupByHost(t *testing.T) {
	six := netip.MustParseAddr("fd00::1")
	vip := model.VIP{
		Name: "fast", Address: netip.MustParseAddr("203.0.113.30"), Hardware: &model.Hardware{Placement: model.PlacementRequire, ByHost: true},
		Endpoints: []model.Endpoint{
			{Protocol: model.TCP, Port: 80, Backends: []model.Backend{{Host: "a", Address: tunnel(3)}, {Host: "b", Address: tunnel(2)}, {Host: "a", Address: tunnel(4), Tunnel: six}}},
			{Protocol: model.UDP, Port: 53, Backends: []model.Backend{{Host: "a", Address: tunnel(1)}, {Host: "b", Address: tunnel(5)}}},
		},
	}
	var s desired.State
	rows := []desired.Row{{Slot: 1, Tunnel: tunnel(3)}, {Slot: 2, Tunnel: tunnel(2)}, {Slot: 3, Tunnel: six}}
	s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), desired.Table{Rows: rows, Buckets: []model.Slot{1, 1, 2, 3}})
	s.Tables.Set(desired.Key(vip, vip.Endpoints[1]), desired.Table{Rows: []desired.Row{{Slot: 1, Tunnel: tunnel(5)}}, Buckets: []model.Slot{1}})
	want := Group{{tunnel(1), allBuckets / 2}, {tunnel(2), allBuckets/4 + allBuckets}, {six, allBuckets / 4}}
	if got := GroupOf(s, vip); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	vip.Hardware.ByHost = false
	if got := GroupOf(s, vip); len(got) != 4 {
		t.Errorf("by backend: %v", got)
	}
}

func TestUnfit(t *testing.T) {
	four, six := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("fd00::1")
	for _, c := range []struct {
		tunnels, sources []netip.Addr
		fits             bool
	}{
		{nil, []netip.Addr{four}, false},
		{[]netip.Addr{four}, []netip.Addr{four}, true},
		{[]netip.Addr{four}, []netip.Addr{six}, false},
		{[]netip.Addr{six}, []netip.Addr{four, six}, true},
		{[]netip.Addr{four, six}, []netip.Addr{four, six}, false},
	} {
		var g Group
		for _, a := range c.tunnels {
			g = append(g, Share{a, 1})
		}
		if reason := g.Unfit(model.Node{Addresses: c.sources}); (reason == "") != c.fits {
			t.Errorf("tunnels %v, sources %v: %q", c.tunnels, c.sources, reason)
		}
	}
}

func TestEqualSharesAreOneEntryEach(t *testing.T) {
	for _, m := range (Group{{tunnel(1), 7}, {tunnel(2), 7}, {tunnel(3), 7}}).Members(1) {
		if m.Entries != 1 {
			t.Errorf("%+v", m)
		}
	}
	if got := (Group{{tunnel(1), 200}, {tunnel(2), 300}}).Members(0); got[0].Entries != 3 || got[1].Entries != 5 {
		t.Errorf("of 2 to 3, in eight entries: %v", got)
	}
	if got := (Group{{tunnel(1), 300}, {tunnel(2), 100}}).Members(0); got[0].Entries != 3 || got[1].Entries != 1 {
		t.Errorf("of 3 to 1: %v", got)
	}
}

// Members keep to the bound, or are one entry each; in their order; and as near to their shares as whole entries allow.
func TestMembersHaveTheirShares(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var g Group
		sum := uint64(0)
		for i, w := range rapid.SliceOfN(rapid.Uint64Range(1, 3*allBuckets), 1, 40).Draw(t, "weights") {
			g = append(g, Share{tunnel(i), w})
			sum += w
		}
		most := rapid.Uint32Range(0, 300).Draw(t, "most")
		members := g.Members(most)
		total := uint64(0)
		for _, m := range members {
			total += uint64(m.Entries)
		}
		if most > 0 && total > max(uint64(most), uint64(len(g))) || total > entriesEach*uint64(len(g)) {
			t.Fatalf("%d entries of %d members, at most %d", total, len(g), most)
		}
		for i, m := range members {
			if m.Entries == 0 || m.Tunnel != g[i].Tunnel {
				t.Fatalf("member %d is %+v, of %v", i, m, g[i])
			}
			for j, other := range members { // who has more is entitled to no less
				if m.Entries > other.Entries && g[i].Weight < g[j].Weight {
					t.Fatalf("%v have %v", g, members)
				}
			}
			if exact := float64(total) * float64(g[i].Weight) / float64(sum); m.Entries > 1 && float64(m.Entries) > exact+1 {
				t.Fatalf("member %d has %d entries, its share is %.2f", i, m.Entries, exact)
			}
		}
	})
}
