package tenant

import (
	"maps"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// A tenant's VIPs have one number, which nobody else has, and which holds on while one of them stays; over a restart,
// too, whoever is heard of first.
func TestTenantsNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var now Numbers
		owners := map[netip.Addr]string{}
		for range 20 {
			before := maps.Clone(owners)
			for i := range byte(6) {
				vip := netip.AddrFrom4([4]byte{203, 0, 113, i})
				switch rapid.IntRange(0, 5).Draw(t, "change") {
				case 0:
					delete(owners, vip)
				case 1:
					owners[vip] = rapid.SampledFrom([]string{"default", "acme", "globex", "initech"}).Draw(t, "tenant")
				}
			}
			was := now.vips
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 { // names are forgotten, and heard one after the other
				now.numbers = nil
				for i := range byte(6) {
					vip := netip.AddrFrom4([4]byte{203, 0, 113, i})
					if _, there := before[vip]; there {
						silent := maps.Clone(before)
						for j := i + 1; j < 6; j++ {
							if other := netip.AddrFrom4([4]byte{203, 0, 113, j}); silent[other] != "" {
								silent[other] = ""
							}
						}
						now.vips = now.numbered(silent)
					}
				}
				if !maps.Equal(now.vips, was) {
					t.Fatalf("over a restart numbers of %v went from %v to %v", before, was, now.vips)
				}
			}
			now.vips = now.numbered(owners)
			checkNumbers(t, owners, now.vips)
			for vip, tenant := range owners {
				if before[vip] == tenant && was[vip] != now.vips[vip] {
					t.Fatalf("%s of %q had number %d, and has %d", vip, tenant, was[vip], now.vips[vip])
				}
			}
		}
	})
}

func checkNumbers(t *rapid.T, owners map[netip.Addr]string, vips map[netip.Addr]uint32) {
	if len(vips) != len(owners) {
		t.Fatalf("numbers of %v for %v", vips, owners)
	}
	of := map[uint32]string{}
	numbers := map[string]uint32{}
	for vip, tenant := range owners {
		name, _ := Name(tenant, vip)
		number := vips[vip]
		if number == 0 || number > 6 {
			t.Fatalf("%s has number %d", vip, number)
		}
		if other := of[number]; other != "" && other != name {
			t.Fatalf("%s and %s both have number %d", other, name, number)
		}
		if other := numbers[name]; other != 0 && other != number {
			t.Fatalf("%s has numbers %d and %d", name, other, number)
		}
		of[number], numbers[name] = name, number
	}
}

// Who comes while nobody has said yet whose the others are gets none of their numbers.
func TestTenantsOfWhomNobodySays(t *testing.T) {
	first, second := netip.MustParseAddr("203.0.113.1"), netip.MustParseAddr("203.0.113.2")
	after := Numbers{vips: map[netip.Addr]uint32{first: 1}}
	if got := after.numbered(map[netip.Addr]string{first: "", second: "globex"}); got[first] != 1 || got[second] != 2 {
		t.Errorf("numbers are %v", got)
	}
}
