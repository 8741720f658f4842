package session

import (
	"fmt"
	"net/netip"
	"testing"

	"pgregory.net/rapid"
)

// What tenants own and may borrow is the whole room. A tenant has as much with one VIP as with many.
func TestDivide(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const room = 100_000
		tenants, held := make(map[string]*tenantVIPs), make(map[netip.Addr]*vipSessions)
		for i := range byte(rapid.IntRange(1, 5).Draw(t, "tenants")) {
			tenant := &tenantVIPs{workloads: 1, vips: make(map[netip.Addr]int)}
			tenants[fmt.Sprint(i)] = tenant
			for j := range byte(rapid.IntRange(1, 9).Draw(t, "vips")) {
				vip := netip.AddrFrom4([4]byte{203, 0, i, j})
				tenant.vips[vip] = rapid.IntRange(1, 3).Draw(t, "workloads")
				held[vip] = &vipSessions{Used: [quotaTables]int{rapid.IntRange(0, room).Draw(t, "used")}}
			}
		}
		each, shared := shareAmongTenants(room, 0, ConfirmedTable, tenants, held)
		own := 0
		for vip, q := range each {
			own += q.Guaranteed
			if q.Limit < q.Guaranteed || q.Limit > q.Guaranteed+shared {
				t.Fatalf("%s has %+v, and may borrow of %d", vip, q, shared)
			}
		}
		if own+shared > room || own+shared < room-len(each)-len(tenants) {
			t.Fatalf("%d are owned and %d to borrow, of %d", own, shared, room)
		}
		part := func(name string) (most, want int) {
			for vip := range tenants[name].vips {
				most += min(each[vip].Limit, wantOf(held[vip], ConfirmedTable))
				want += wantOf(held[vip], ConfirmedTable)
			}
			return most, want
		}
		for a := range tenants {
			for b := range tenants {
				gets, wants := part(a)
				other, _ := part(b)
				if rounded := 2 * len(each); gets+rounded < wants && gets+rounded < other {
					t.Fatalf("tenant %s wants %d and may have %d, and %s may have %d", a, wants, gets, b, other)
				}
			}
		}
	})
}
