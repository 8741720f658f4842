package mux

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
)

// A tunnel is listed as long as any backend of any endpoint has it.
func TestTunnelsFollowTheEndpoints(t *testing.T) {
	d := newUnattached(t, testSizes)
	want := func(tunnels ...string) {
		t.Helper()
		var all []netip.Addr
		for _, tunnel := range tunnels {
			all = append(all, netip.MustParseAddr(tunnel))
		}
		if got := d.Tunnels(); !slices.Equal(got, all) {
			t.Errorf("tunnels %v, want %v", got, all)
		}
	}
	step := func(upsert []model.MuxEndpoint, removed ...model.EndpointKey) {
		t.Helper()
		if err := d.Apply(upsert, removed); err != nil {
			t.Fatal(err)
		}
	}
	one, other := newEndpoint(vip4, model.TCP, "10.0.0.1", "10.0.0.2"), newEndpoint(vip4, model.UDP, "10.0.0.2", "fd00::1")
	want()
	step([]model.MuxEndpoint{one, other})
	want("10.0.0.1", "10.0.0.2", "fd00::1")
	step([]model.MuxEndpoint{newEndpoint(vip4, model.TCP, "10.0.0.3")})
	want("10.0.0.2", "10.0.0.3", "fd00::1")
	step(nil, other.Key)
	want("10.0.0.3")
	step(nil, one.Key)
	want()
}
