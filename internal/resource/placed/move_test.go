package placed

import (
	"context"
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placechoice"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

func TestMove(t *testing.T) {
	s := &store.State{}
	vip := model.VIP{Name: "fast", Address: netip.MustParseAddr("203.0.113.30")}
	for _, name := range []string{"sw1", "sw2", "sw3", "drained"} {
		n := model.Node{Name: name, Role: model.RoleSwitch}
		if name == "drained" {
			n.Drained = time.Unix(1, 0)
		}
		s.PutNode(n)
	}
	s.PutVIP(vip)
	s.Placements.Put(vip.Address, placementpolicy.State{VIP: "fast", Places: map[string]placementpolicy.Place{
		"sw1": {Phase: placementpolicy.Hardware}, "sw2": {Phase: placementpolicy.Preparing}, "sw3": {Phase: placementpolicy.Leaving},
	}})
	for what, c := range map[string]struct {
		hardware *model.Hardware
		want     string
	}{
		"no switch":         {nil, "sw1,sw2 to "},
		"the same":          {&model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw2", "sw1"}}, ""},
		"others":            {&model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw3", "drained", "gone"}}, "sw1,sw2 to sw3"},
		"behind TIPs":       {&model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}, TIPs: []model.TIP{{Switch: "sw3"}}}, "sw1,sw2 to sw1,sw3"},
		"what they choose":  {&model.Hardware{Placement: model.PlacementAuto}, ""},
		"kept, and not now": {&model.Hardware{Placement: model.PlacementNever, Switches: []string{"sw1", "sw2"}}, "sw1,sw2 to "},
	} {
		vip.Hardware = c.hardware
		got := ""
		if m := moves(t, s, vip, nil); m != nil {
			got = strings.Join(m.GetFrom(), ",") + " to " + strings.Join(m.GetTo(), ",")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if m := moves(t, s, model.VIP{Name: "new", Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}}}, nil); len(m.GetFrom()) > 0 || len(m.GetTo()) != 1 {
		t.Errorf("a new one: %v", m)
	}
}

// leader chooses of one world.
type leader struct {
	Chooser
	world func(*store.State) (placechoice.World, error)
}

func (l leader) WorldOf(_ context.Context, s *store.State) (placechoice.World, error) {
	return l.world(s)
}

// moves is the move of a VIP that is applied.
func moves(t *testing.T, s *store.State, vip model.VIP, world func(*store.State) (placechoice.World, error)) *weirv1.PlacementMove {
	t.Helper()
	if world == nil {
		world = func(*store.State) (placechoice.World, error) {
			return placechoice.World{}, errors.New("there is no fabric")
		}
	}
	m := &Placements{Chooser: leader{world: world}}
	return m.Moves(t.Context(), s, []model.VIP{vip}, store.Change{VIPs: []model.VIP{vip}})[0]
}

// Of placement auto a dry run tells what the leader would choose of the VIP as it is applied: it stays where it fits, and goes
// where it does not.
func TestMovesOfChosenVIPs(t *testing.T) {
	spec, err := fabric.Clos{Containers: 1, TorsPerContainer: 2, AggsPerContainer: 1, Cores: 1, TorUplink: 1_000_000, AggUplink: 1_000_000}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	for i := range spec.Racks {
		spec.Racks[i].Prefixes = []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, byte(i), 0}), 24)}
	}
	network, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	s, fits := &store.State{Generation: 7}, map[string]bool{"core-1": true, "agg-1-1": true}
	vip := model.VIP{Name: "fast", Address: netip.MustParseAddr("203.0.113.30"), Hardware: &model.Hardware{Placement: model.PlacementAuto}}
	s.PutVIP(vip)
	s.Placements.Put(vip.Address, placementpolicy.State{VIP: "fast", Chosen: []string{"core-1"}, Places: map[string]placementpolicy.Place{
		"core-1": {Phase: placementpolicy.Hardware},
	}})
	world := func(next *store.State) (placechoice.World, error) {
		w := placechoice.World{Fabric: network, Switches: map[string]placechoice.Switch{}}
		for name := range fits {
			w.Switches[name] = placechoice.Switch{Four: true, InPlace: true, Tunnels: 4}
		}
		seen := placechoice.VIP{Name: "fast", At: placechoice.At{Chosen: s.Placements.At(vip.Address).Chosen}}
		for _, b := range next.VIPs.At("fast").Endpoints[0].Backends {
			seen.Tunnels, seen.Rows = append(seen.Tunnels, b.Address), seen.Rows+1
		}
		w.VIPs = []placechoice.VIP{seen}
		return w, nil
	}
	for i, c := range []struct {
		backends int
		takes    []string
		want     string
	}{
		{2, []string{"core-1", "agg-1-1"}, ""},
		{2, []string{"agg-1-1"}, "core-1 to agg-1-1"},
		{9, []string{"core-1", "agg-1-1"}, "core-1 to "},
	} {
		clear(fits)
		for _, name := range c.takes {
			fits[name] = true
		}
		vip.Endpoints = []model.Endpoint{{Protocol: model.TCP, Port: 80}}
		for b := range c.backends {
			vip.Endpoints[0].Backends = append(vip.Endpoints[0].Backends, model.Backend{Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(b + 1)})})
		}
		got := ""
		if m := moves(t, s, vip, world); m != nil {
			got = strings.Join(m.GetFrom(), ",") + " to " + strings.Join(m.GetTo(), ",")
		}
		if got != c.want {
			t.Errorf("step %d: %q, want %q", i, got, c.want)
		}
	}
	if got := s.VIPs.At("fast"); len(got.Endpoints) > 0 {
		t.Error("a dry run has changed the State")
	}
}
