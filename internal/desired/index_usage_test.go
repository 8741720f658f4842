package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// walkedUsage is what State.Usage counts, by looking at all VIPs and lists.
func walkedUsage(s State, tenant string) (u Usage) {
	for vip := range s.VIPs.Values() {
		if vip.Tenant == tenant {
			u.Add(vip)
			u.AddSplit(s, vip)
		}
	}
	for list := range s.PrefixLists.Values() {
		if list.Tenant == tenant {
			u.Prefixes += uint32(list.Prefixes.Len())
		}
	}
	return u
}

func anyAddress(t *rapid.T) netip.Addr {
	return netip.AddrFrom4([4]byte{192, 0, 2, byte(rapid.IntRange(1, 3).Draw(t, "address"))})
}

// anyChange draws one write of a VIP, a placement or a prefix list.
func anyChange(t *rapid.T, s *State) {
	i := rapid.IntRange(0, 3).Draw(t, "object")
	switch rapid.IntRange(0, 6).Draw(t, "do") {
	case 0:
		s.RemoveVIP(fmt.Sprint("vip", i))
	case 1, 2:
		vip := anyVIP(t, i)
		vip.Address = anyAddress(t) // of another one, too: VIPs of one change are written one by one
		switch rapid.IntRange(0, 3).Draw(t, "hardware") {
		case 0, 1:
			vip.Hardware = &model.Hardware{Placement: model.PlacementAuto, Spread: rapid.IntRange(0, 3).Draw(t, "spread")}
		case 2:
			vip.Hardware = &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1", "sw2"}}
		}
		if rapid.Bool().Draw(t, "fastpath") {
			vip.Fastpath = &model.Fastpath{}
		}
		s.PutVIP(vip)
	case 3, 4: // of a VIP that is there, was there, or comes later
		state := placementpolicy.State{VIP: fmt.Sprint("vip", i), Split: rapid.Bool().Draw(t, "split")}
		for n := range rapid.IntRange(0, 4).Draw(t, "chosen") {
			state.Chosen = append(state.Chosen, fmt.Sprint("sw", n))
		}
		s.Placements.Put(anyAddress(t), state)
	case 5:
		list := model.PrefixList{Name: fmt.Sprint("list", i), Tenant: rapid.SampledFrom([]string{"", "red", "blue"}).Draw(t, "tenant")}
		var prefixes []netip.Prefix
		for n := range rapid.IntRange(0, 3).Draw(t, "prefixes") {
			prefixes = append(prefixes, netip.PrefixFrom(netip.AddrFrom4([4]byte{198, 51, 100, byte(n)}), 32))
		}
		list.Prefixes = model.NewPrefixSet(prefixes)
		s.PrefixLists.Set(list.Name, list)
	case 6:
		s.PrefixLists.Delete(fmt.Sprint("list", i))
	}
}

// Whatever was written before, what tenants have is what a walk over everything counts.
func TestUsageIsWhatAWalkCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var s State
		for range rapid.IntRange(1, 25).Draw(t, "steps") {
			s = s.Clone()
			anyChange(t, &s)
		}
		for _, tenant := range []string{"red", "blue"} {
			if got, want := s.Usage(tenant), walkedUsage(s, tenant); got != want {
				t.Fatalf("%s has %+v, want %+v", tenant, got, want)
			}
		}
		for _, tenants := range [][]string{nil, {"red"}, {"blue", "red"}, {"red", "none", "red"}} {
			for _, from := range []string{"", "vip1", "vip10"} {
				var got, want []string
				for vip := range VIPsOfTenants(s, tenants, from) {
					got = append(got, vip.Name)
				}
				for name, vip := range s.VIPs.From(from) {
					if slices.Contains(tenants, vip.Tenant) {
						want = append(want, name)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("%v have the VIPs %v from %q on, want %v", tenants, got, from, want)
				}
			}
		}
		all, fast := 0, false
		for list := range s.PrefixLists.Values() {
			all += list.Prefixes.Len()
		}
		for vip := range s.VIPs.Values() {
			fast = fast || vip.Fastpath != nil
		}
		if s.PrefixLists.Count("") != all || WantsFastpath(s) != fast {
			t.Fatalf("%d prefixes, want %d; Fastpath is wanted: %t, want %t", s.PrefixLists.Count(""), all, WantsFastpath(s), fast)
		}
	})
}
