package natrule

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// TestPeersOfATenantLeaveOthersRoom has endpoints whose peers are beyond a tenant's share get what nobody else needs, and all others theirs.
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
	larger, small := add("greedy", 6, 4, 50, true), add("other", 7, 2, 50, true) // 200 and 100
	fair, plain := add("fair", 4, 1, 50, true), add("greedy", 5, 4, 25, false)   // 50 and 100
	for capacity, want := range map[int][]model.EndpointKey{
		// Shares are 50. Of the rest chaining leaves 100, which the first two turns are for.
		300: {larger, small}, 389: {larger, small},
		390: {larger}, 589: {larger}, 590: {},
	} {
		beyond := beyondShare(rules, capacity, nil)
		for _, endpoint := range []model.EndpointKey{first, large, second, larger, small, fair, plain} {
			if beyond[endpoint] != slices.Contains(want, endpoint) {
				t.Errorf("with room for %d, %s is beyond: %v", capacity, endpoint, beyond[endpoint])
			}
		}
	}
}

// TestPeersDoNotComeAndGo has what chaining needs rise and fall, as moves of buckets begin and end, around what leaves room for an
// endpoint beyond its tenant's share: that loses its peers once, and has them again when there is room to spare.
func TestPeersDoNotComeAndGo(t *testing.T) {
	key := func(number byte) model.EndpointKey {
		return model.EndpointKey{VIP: netip.AddrFrom4([4]byte{203, 0, 113, number}), Protocol: model.TCP, Port: 80}
	}
	const capacity, need = 800, 500 // its share is 400
	before, changes, was := map[model.EndpointKey]bool(nil), 0, false
	step := func(chaining int) bool {
		rules := map[model.HostBackendKey]model.HostBackend{}
		for _, b := range []model.HostBackend{
			{Endpoint: key(1), Tunnel: netip.MustParseAddr("10.0.0.1"), ChainPeers: make([]netip.Addr, need), Homes: make([]netip.Addr, 2)},
			{Endpoint: key(2), Tunnel: netip.MustParseAddr("10.0.0.1"), ChainPeers: make([]netip.Addr, chaining)},
		} {
			rules[b.Key()] = b
		}
		before = beyondShare(rules, capacity, before)
		if before[key(1)] != was {
			was = !was
			changes++
		}
		return was
	}
	for i := range 20 {
		if beyond := step(250 + i%2*100); beyond != (i > 0) {
			t.Errorf("in round %d it is beyond: %v", i, beyond)
		}
	}
	if step(201) != true || step(200) != false || changes != 2 {
		t.Errorf("with room to spare it is beyond: %v; it has changed %d times", was, changes)
	}
}
