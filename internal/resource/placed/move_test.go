package placed

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
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
		if m := Move(s, vip); m != nil {
			got = strings.Join(m.GetFrom(), ",") + " to " + strings.Join(m.GetTo(), ",")
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", what, got, c.want)
		}
	}
	if m := Move(s, model.VIP{Name: "new", Hardware: &model.Hardware{Placement: model.PlacementRequire, Switches: []string{"sw1"}}}); len(m.GetFrom()) > 0 || len(m.GetTo()) != 1 {
		t.Errorf("a new one: %v", m)
	}
}
