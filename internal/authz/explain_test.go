package authz

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
)

// town has so many VIPs of tenant blue, and one of red.
func town(vips int) *store.State {
	s := &store.State{}
	for i := range vips {
		s.PutVIP(model.VIP{Name: fmt.Sprint("vip", i), Tenant: "blue", Address: netip.AddrFrom4([4]byte{10, byte(i >> 16), byte(i >> 8), byte(i)})})
	}
	s.PutVIP(model.VIP{Name: "zoo", Tenant: "red", Address: netip.MustParseAddr("203.0.113.9")})
	return s
}

// A viewer is told of destinations that its own VIPs have, by whatever form of the address, and not that others are there.
func TestDestinationsOfOthersAreHidden(t *testing.T) {
	red := trust.Identity{Kind: trust.User, Name: "rita", Bindings: []trust.Binding{{Tenant: "red", Role: trust.Viewer}}}
	for destination, seen := range map[string]bool{
		"203.0.113.9": true, "::ffff:203.0.113.9": true, "10.0.0.1": false, "192.0.2.1": false, "no address": true,
	} {
		if err := permitDestination(red, town(3), "", destination); (err == nil) != seen {
			t.Errorf("%s: %v, want seen %t", destination, err, seen)
		}
	}
}

// BenchmarkPermitDestination is of each call of Explain: it does not grow with the VIPs.
func BenchmarkPermitDestination(b *testing.B) {
	red := trust.Identity{Kind: trust.User, Name: "rita", Bindings: []trust.Binding{{Tenant: "red", Role: trust.Viewer}}}
	for _, vips := range []int{1000, 100_000} {
		s := town(vips)
		b.Run(fmt.Sprint("vips=", vips), func(b *testing.B) {
			for b.Loop() {
				if err := permitDestination(red, s, "", "203.0.113.9"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
