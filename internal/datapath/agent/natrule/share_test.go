package natrule

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// TestPeersOfATenantLeaveOthersRoom has endpoints whose peers are beyond a tenant's share get none, and all others theirs.
func TestPeersOfATenantLeaveOthersRoom(t *testing.T) {
	rules := map[model.HostBackendKey]model.HostBackend{}
	add := func(tenant string, number byte, backends, peers int, multipath bool) model.EndpointKey {
		endpoint := model.EndpointKey{VIP: netip.AddrFrom4([4]byte{203, 0, 113, number}), Protocol: model.TCP, Port: 80}
		for i := range backends {
			b := model.HostBackend{Endpoint: endpoint, Tunnel: netip.MustParseAddr(fmt.Sprint("10.0.0.", i+1)), Tenant: tenant, ChainPeers: make([]netip.Addr, peers)}
			if multipath {
				b.Homes = make([]netip.Addr, 2)
			}
			rules[b.Key()] = b
		}
		return endpoint
	}
	first, large, second := add("greedy", 1, 2, 20, true), add("greedy", 2, 3, 30, true), add("greedy", 3, 1, 10, true)
	fair, plain := add("fair", 4, 1, 50, true), add("greedy", 5, 4, 100, false)
	beyond := beyondShare(rules, 100)
	for endpoint, want := range map[model.EndpointKey]bool{first: false, large: true, second: false, fair: false, plain: false} {
		if beyond[endpoint] != want {
			t.Errorf("%s is beyond: %v", endpoint, !want)
		}
	}
	if more := beyondShare(rules, 300); len(more) != 0 {
		t.Errorf("with room for all, %v are beyond", more)
	}
}
