package multipath

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// TestEndpointsOfATenantLeaveOthersRoom has a tenant's endpoints beyond its share be left out, the same ones each time.
func TestEndpointsOfATenantLeaveOthersRoom(t *testing.T) {
	at := func(number byte) model.EndpointKey {
		return model.EndpointKey{VIP: netip.AddrFrom4([4]byte{203, 0, 113, number}), Protocol: model.TCP, Port: 80}
	}
	for range 10 {
		wanted := map[model.EndpointKey]endpoint{at(9): {tenant: "fair"}}
		for number := range byte(8) {
			wanted[at(number)] = endpoint{tenant: "greedy"}
		}
		unserved := leaveOut(wanted, 10)
		_, fair := wanted[at(9)]
		_, fifth := wanted[at(4)]
		_, sixth := wanted[at(5)]
		if unserved != 3 || len(wanted) != 6 || !fair || !fifth || sixth {
			t.Fatalf("%d are left out, left are %v", unserved, wanted)
		}
		if unserved := leaveOut(wanted, 10); unserved != 0 {
			t.Fatalf("%d more are left out", unserved)
		}
	}
}
