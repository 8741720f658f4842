package wire

import (
	"net/netip"
	"strings"
	"testing"

	"pgregory.net/rapid"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
)

// drawSteering is an update with all that one may have.
func drawSteering(t *rapid.T) steering.Update {
	whole := steering.EndpointChange{Endpoint: steering.Endpoint{
		Key: drawKey(t), Buckets: []model.Slot{1, 0, 8191, 1}, Previous: []model.Slot{0, 1, 0, 0},
		Backends: []steering.Backend{{Slot: 1, Tunnel: drawAddr(t, true)}, {Slot: 8191, Tunnel: drawAddr(t, false), Down: true}},
		Cookies:  rapid.SampledFrom([]model.Cookies{model.CookiesOff, model.CookiesSettling, model.CookiesOn}).Draw(t, "cookies"),
		Affinity: rapid.Bool().Draw(t, "affinity"), LocalUDP: rapid.Bool().Draw(t, "local"),
	}}
	moves := steering.EndpointChange{
		Endpoint: steering.Endpoint{Key: steering.Ports(drawAddr(t, false)), Cookies: model.CookiesOff}, KeepsBackends: true, KeepsBuckets: true,
		Moves: []steering.Move{{Bucket: 65535, Slot: 8191, Previous: 1}, {Bucket: 0}},
	}
	return steering.Update{
		Changed: []steering.Change{
			{
				Address: drawAddr(t, true), Switches: []netip.Addr{drawAddr(t, true)}, Peers: []netip.Addr{drawAddr(t, false), drawAddr(t, true)},
				Endpoints: []steering.EndpointChange{whole}, Removed: []model.EndpointKey{drawKey(t)},
			},
			{Address: drawAddr(t, false), KeepsSources: true, Ping: rapid.Bool().Draw(t, "ping"), ByHost: rapid.Bool().Draw(t, "byHost"), Endpoints: []steering.EndpointChange{moves}},
		},
		Removed: []netip.Addr{drawAddr(t, true)},
	}
}

func TestInvalidSteeringIsRefused(t *testing.T) {
	valid := func() *weirv1.SteeredVIP {
		return &weirv1.SteeredVIP{Vip: "203.0.113.1", Switches: []string{"10.9.0.1"}, Endpoints: []*weirv1.SteeredEndpoint{{
			Endpoint: &weirv1.EndpointKey{Vip: "203.0.113.1", Protocol: "tcp", Port: 80}, Cookies: "on", Buckets: []uint32{1},
			Backends: []*weirv1.SteeredBackend{{Slot: 1, Tunnel: "10.1.0.1"}},
		}}}
	}
	for where, change := range map[string]func(*weirv1.SteeredVIP){
		"":                                      func(*weirv1.SteeredVIP) {},
		"steered[0].vip":                        func(p *weirv1.SteeredVIP) { p.Vip = "web" },
		"steered[0].switches[0]":                func(p *weirv1.SteeredVIP) { p.Switches[0] = "10.9.0.0/24" },
		"steered[0].endpoints[0].cookies":       func(p *weirv1.SteeredVIP) { p.Endpoints[0].Cookies = "maybe" },
		"steered[0].endpoints[0].buckets[0]":    func(p *weirv1.SteeredVIP) { p.Endpoints[0].Buckets[0] = 8192 },
		"steered[0].endpoints[0].backends[0].s": func(p *weirv1.SteeredVIP) { p.Endpoints[0].Backends[0].Slot = 0 },
		"steered[0].endpoints[0].moves":         func(p *weirv1.SteeredVIP) { p.Endpoints[0].Moves = []*weirv1.BucketMove{{Slot: 1 << 16}} },
	} {
		p := valid()
		change(p)
		_, err := HostUpdateFromProto(&weirv1.SyncHostResponse{Steered: []*weirv1.SteeredVIP{p}})
		if (err != nil) != (where != "") || err != nil && !strings.Contains(err.Error(), where) {
			t.Errorf("%q: %v", where, err)
		}
	}
}
