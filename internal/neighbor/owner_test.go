package neighbor

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
)

func muxesOf(n int) (all []Mux) {
	for i := range n {
		all = append(all, Mux{fmt.Sprintf("mux%d", i+1), []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("2001:db8::/64")}})
	}
	return all
}

func vipsOf(n int) (all []netip.Addr) {
	vip := netip.MustParseAddr("198.51.100.1")
	for range n {
		all = append(all, vip)
		vip = vip.Next()
	}
	return all
}

// A mux that leaves moves its own VIPs and no others, and comes back to just these; the order of muxes says nothing.
func TestOwnersMoveLeast(t *testing.T) {
	vips := vipsOf(200)
	for n := 2; n <= 8; n++ {
		muxes := muxesOf(n)
		gone := muxes[rand.IntN(n)].Name
		left := slices.DeleteFunc(slices.Clone(muxes), func(m Mux) bool { return m.Name == gone })
		rand.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
		counts := map[string]int{}
		for _, vip := range vips {
			before, after := Owner(vip, muxes), Owner(vip, left)
			counts[before]++
			if before != gone && after != before {
				t.Fatalf("%d muxes, %s left: %s moved from %s to %s", n, gone, vip, before, after)
			}
			if before == gone && (after == gone || after == "") {
				t.Fatalf("%d muxes, %s left: %s is of %q", n, gone, vip, after)
			}
		}
		for _, m := range muxes { // of a fair share at least a third: chance of less is below 1 in a million
			if counts[m.Name] < len(vips)/n/3 {
				t.Errorf("%d muxes: %s has %d of %d VIPs", n, m.Name, counts[m.Name], len(vips))
			}
		}
	}
}

func TestOwnersCoverTheirVIPs(t *testing.T) {
	lan1 := Mux{"mux1", []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}}
	lan2 := Mux{"mux2", []netip.Prefix{netip.MustParsePrefix("203.0.113.0/24")}}
	for vip, want := range map[string]string{"198.51.100.9": "mux1", "203.0.113.9": "mux2", "192.0.2.1": ""} {
		if got := Owner(netip.MustParseAddr(vip), []Mux{lan1, lan2}); got != want {
			t.Errorf("%s is of %q, want %q", vip, got, want)
		}
	}
}
