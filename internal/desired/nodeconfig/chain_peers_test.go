package nodeconfig

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// What is handed on between tunnels of two families comes from the host's address, so a peer's host
// must be admitted by it, and only then.
func TestPeersOfAnotherFamily(t *testing.T) {
	address := netip.MustParseAddr
	var s desired.State
	s.PutNode(model.Node{Name: "h4", Addresses: []netip.Addr{address("10.1.9.1"), address("fd01:9::1")}})
	s.PutNode(model.Node{Name: "h6", Addresses: []netip.Addr{address("10.1.8.1"), address("fd01:8::1")}})
	sources := sourcesOf(s, model.Endpoint{Backends: []model.Backend{
		{Address: address("10.1.0.5"), Host: "h4"}, {Address: address("10.1.0.6"), Tunnel: address("fd01::6"), Host: "h6"},
	}})
	for _, c := range []struct {
		tunnel, peer string
		want         []netip.Addr
	}{
		{"10.1.0.4", "10.1.0.5", []netip.Addr{address("10.1.0.5")}},
		{"10.1.0.4", "fd01::6", []netip.Addr{address("10.1.8.1"), address("fd01::6")}},
		{"fd01::4", "10.1.0.5", []netip.Addr{address("10.1.0.5"), address("fd01:9::1")}},
	} {
		if got := admit(address(c.tunnel), []netip.Addr{address(c.peer)}, sources); !slices.Equal(got, c.want) {
			t.Errorf("%s from %s: admits %v, not %v", c.tunnel, c.peer, got, c.want)
		}
	}
}
