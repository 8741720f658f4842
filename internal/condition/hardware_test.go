package condition

import (
	"cmp"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

// The condition says whether a switch serves the VIP, and if not, what is in the way.
func TestHardware(t *testing.T) {
	addr := netip.MustParseAddr
	type places = map[string]placementpolicy.Place
	hardware1 := places{"sw1": {Phase: placementpolicy.Hardware}}
	for what, c := range map[string]struct {
		never      bool
		switches   []string
		places     places
		away       bool // the switch
		tunnel     string
		aggregates string // of the mux
		status     string
		reason     string // empty: there is no such condition
	}{
		"never":                  {never: true},
		"never any more":         {never: true, places: places{"sw1": {Phase: placementpolicy.Leaving}}, status: False, reason: "Leaving"},
		"on its way":             {places: places{"sw1": {Phase: placementpolicy.Programming}}, status: False, reason: "Placing"},
		"placed":                 {places: hardware1, aggregates: "203.0.113.0/24", status: True, reason: "Placed"},
		"placed, muxes announce": {places: hardware1, aggregates: "198.51.100.0/24", status: True, reason: "SharedWithMuxes"},
		"placed, silent":         {places: hardware1, aggregates: "203.0.113.0/24", away: true, status: True, reason: "Placed"},
		"one of two":             {switches: []string{"sw1", "sw9"}, places: hardware1, status: True, reason: "PartlyPlaced"},
		"no such switch":         {switches: []string{"sw9"}, status: False, reason: "NoSwitch"},
		"refused":                {places: places{"sw1": {Phase: placementpolicy.Evicted, Attempts: 2, Reason: "full"}}, status: False, reason: "Refused"},
		"without a route":        {places: places{"sw1": {Phase: placementpolicy.Hardware, Unrouted: true}}, aggregates: "203.0.113.0/24", status: False, reason: "NoRoute"},
		"one without a route":    {switches: []string{"sw1", "sw2"}, places: places{"sw1": {Phase: placementpolicy.Hardware, Unrouted: true}, "sw2": {Phase: placementpolicy.Hardware}}, status: True, reason: "PartlyPlaced"},
		"not connected":          {away: true, status: False, reason: "SwitchNotConnected"},
		"of the other family":    {tunnel: "fd00::1", status: False, reason: "Unfit"},
	} {
		vip := model.VIP{
			Name: "fast", Address: addr("203.0.113.30"), Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}},
			Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: c.switches, UDP: model.UDPAtHome},
		}
		if c.switches == nil {
			vip.Hardware.Switches = []string{"sw1"}
		}
		if c.never {
			vip.Hardware.Placement = model.PlacementNever
		}
		s := &store.State{}
		s.PutVIP(vip)
		tunnel := addr(cmp.Or(c.tunnel, "10.2.0.1"))
		s.Tables.Set(desired.Key(vip, vip.Endpoints[0]), desired.Table{Rows: []desired.Row{{Slot: 1, Tunnel: tunnel}}, Buckets: []model.Slot{1}})
		mux := model.Node{Name: "mux1", Role: model.RoleMux, Addresses: []netip.Addr{addr("10.0.0.1")}}
		if c.aggregates != "" {
			mux.Aggregates = []netip.Prefix{netip.MustParsePrefix(c.aggregates)}
		}
		s.PutNode(mux)
		s.PutNode(model.Node{Name: "sw1", Role: model.RoleSwitch, Addresses: []netip.Addr{addr("10.1.0.1")}})
		s.Streams.Set("mux1", true)
		if !c.away {
			s.Streams.Set("sw1", true)
		}
		s.Placements.Put(vip.Address, placementpolicy.State{VIP: vip.Name, Places: c.places})
		got, has := inHardware(s, vip)
		if has != (c.reason != "") || got.GetStatus() != c.status || got.GetReason() != c.reason {
			t.Errorf("%s: %s, %s: %s; want %s, %s", what, got.GetStatus(), got.GetReason(), got.GetMessage(), c.status, c.reason)
		}
	}
}

// Where ports have different backends, it says of which endpoints many packets take a hop more.
func TestPortsWithBackendsOfTheirOwn(t *testing.T) {
	vip := model.VIP{
		Name: "fast", Address: netip.MustParseAddr("203.0.113.30"),
		Endpoints: []model.Endpoint{{Protocol: model.TCP, Port: 80}, {Protocol: model.TCP, Port: 443}},
		Hardware:  &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}, UDP: model.UDPAtHome},
	}
	s := &store.State{}
	s.PutVIP(vip)
	s.PutNode(model.Node{Name: "sw1", Role: model.RoleSwitch, Addresses: []netip.Addr{netip.MustParseAddr("10.1.0.1")}})
	s.Placements.Put(vip.Address, placementpolicy.State{VIP: vip.Name, Places: map[string]placementpolicy.Place{"sw1": {Phase: placementpolicy.Hardware}}})
	rows := []desired.Row{
		{Slot: 1, Tunnel: netip.MustParseAddr("10.2.0.1")},
		{Slot: 2, Tunnel: netip.MustParseAddr("10.2.0.2")},
		{Slot: 3, Tunnel: netip.MustParseAddr("10.2.0.3")},
		{Slot: 4, Tunnel: netip.MustParseAddr("10.2.0.4"), Down: true},
	}
	set := func(e int, buckets ...model.Slot) {
		s.Tables.Set(desired.Key(vip, vip.Endpoints[e]), desired.Table{Rows: rows, Buckets: buckets})
	}
	for _, c := range []struct {
		second []model.Slot
		want   []string
	}{
		{[]model.Slot{1, 2, 1, 2}, nil},
		{[]model.Slot{3, 3, 3, 3}, []string{"50 % of the packets of TCP 80", "50 % of the packets of TCP 443"}},
		{[]model.Slot{1, 2, 3, 3}, []string{"25 % of the packets of TCP 80"}},
		{[]model.Slot{1, 2, 1, 4}, nil},
	} {
		set(0, 1, 2, 1, 2)
		set(1, c.second...)
		got, _ := inHardware(s, vip)
		if strings.Count(got.GetMessage(), "one hop more") != len(c.want) {
			t.Errorf("buckets %v: %s", c.second, got.GetMessage())
		}
		for _, want := range c.want {
			if !strings.Contains(got.GetMessage(), want) {
				t.Errorf("buckets %v: %s, want %s", c.second, got.GetMessage(), want)
			}
		}
	}
}
