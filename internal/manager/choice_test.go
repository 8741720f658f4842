package manager

import (
	"slices"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/rpc"
)

// twoCores is a fabric of two racks, with the hosts of the city, below two cores.
func twoCores() *weirv1.Fabric {
	return &weirv1.Fabric{
		Name:     "east",
		Switches: []*weirv1.FabricSwitch{{Name: "tor-1"}, {Name: "tor-2"}, {Name: "sw1"}, {Name: "sw2"}},
		Links: []*weirv1.FabricLink{
			{A: "tor-1", B: "sw1", MbitPerS: 10_000},
			{A: "tor-1", B: "sw2", MbitPerS: 10_000},
			{A: "tor-2", B: "sw1", MbitPerS: 10_000},
			{A: "tor-2", B: "sw2", MbitPerS: 10_000},
		},
		Racks: []*weirv1.FabricRack{
			{Name: "rack-1", Switch: "tor-1", Prefixes: []string{"10.3.1.0/24"}}, {Name: "rack-2", Switch: "tor-2", Prefixes: []string{"10.3.2.0/24"}},
		},
	}
}

func (c *city) applyFabric(f *weirv1.Fabric, dryRun bool, want string) {
	c.t.Helper()
	response, err := c.api.UpdateFabric(c.t.Context(), &weirv1.UpdateFabricRequest{Name: f.GetName(), Fabric: f, DryRun: dryRun})
	if err != nil || response.GetChange() != want {
		c.t.Errorf("the fabric is %s, %v, want %s", response.GetChange(), err, want)
	}
}

// The fabric is kept over a restart as it was written, and there is one.
func TestTheFabricIsKept(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	c.applyFabric(twoCores(), true, rpc.Created)
	c.applyFabric(twoCores(), false, rpc.Created)
	c.applyFabric(twoCores(), false, rpc.Unchanged)
	other := twoCores()
	other.Name = "west"
	if _, err := c.api.UpdateFabric(t.Context(), &weirv1.UpdateFabricRequest{Name: "west", Fabric: other}); err == nil {
		t.Error("there are two")
	}
	if _, err := c.api.UpdateFabric(t.Context(), &weirv1.UpdateFabricRequest{Name: "east", Fabric: &weirv1.Fabric{}}); err == nil {
		t.Error("one without switches is taken")
	}
	list, err := c.api.ListFabrics(t.Context(), &weirv1.ListFabricsRequest{})
	if err != nil || len(list.GetFabrics()) != 1 || len(list.GetFabrics()[0].GetLinks()) != 4 {
		t.Fatalf("listed are %v, %v", list, err)
	}
	if kept := c.m.store.State().Fabrics.At("east"); kept.Network == nil || len(kept.Network.Racks) != 2 {
		t.Errorf("kept is %+v", kept)
	}
	version := list.GetFabrics()[0].GetResourceVersion()
	if _, err := c.api.DeleteFabric(t.Context(), &weirv1.DeleteFabricRequest{Name: "east", ResourceVersion: version + 1}); err == nil {
		t.Error("one of another version is deleted")
	}
	if _, err := c.api.DeleteFabric(t.Context(), &weirv1.DeleteFabricRequest{Name: "east", ResourceVersion: version}); err != nil {
		t.Error(err)
	}
}

// A VIP of placement auto goes to a switch once there is a fabric, to another one when that is silent for long, which serves it
// before the first is withdrawn, and to the muxes when there is no fabric any more.
func TestManagersChooseSwitches(t *testing.T) {
	c := &city{t: t}
	c.begin(false)
	vip := inHardware()
	vip.Hardware.Placement = "auto"
	c.apply(vip)
	reason := func() string {
		return c.m.store.State().Placements.At(c.m.store.State().VIPs.At("shop").Address).Unplaced
	}
	eventually(t, "there is no fabric", func() bool { return reason() == "there is no fabric: apply one, with prefixes of racks" })
	c.applyFabric(twoCores(), false, rpc.Created)
	c.awaitPhase(placementpolicy.Hardware)
	if got, err := c.api.ExplainPlacement(t.Context(), &weirv1.ExplainPlacementRequest{Vip: "shop"}); err != nil || !slices.Equal(got.GetWouldBe(), []string{"sw1"}) {
		t.Errorf("explained: %v, %v", got, err)
	}
	second := startSwitch(t, c.url, "sw2", false, "10.1.0.2")
	eventually(t, "sw2 is registered", func() bool { return c.m.store.State().Nodes.Has("sw2") })
	plan, err := c.api.PlanPlacement(t.Context(), &weirv1.PlanPlacementRequest{})
	if err != nil || plan.GetPlaced() != 1 || len(plan.GetMoves()) > 0 {
		t.Errorf("with another switch the VIP is to stay: %v, %v", plan, err)
	}
	more := inHardware()
	more.Name, more.Address, more.Hardware.Placement = "more", "203.0.113.12", "auto"
	for what, c2 := range map[*weirv1.VIP]bool{vip: false, more: true} {
		dry, err := c.api.ApplyVIPs(t.Context(), &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{what}, DryRun: true})
		if err != nil || (dry.GetVips()[0].GetMove() != nil) != c2 || c2 && len(dry.GetVips()[0].GetMove().GetTo()) != 1 {
			t.Errorf("a dry run of %s tells %v, %v", what.GetName(), dry, err)
		}
	}
	// sw1 refuses the VIP: sw2 is chosen at once.
	c.sw.set(t, false, true)
	eventually(t, "sw2 serves the VIP", func() bool {
		c.pass(time.Second)
		return c.phaseIn("sw2") == placementpolicy.Hardware && second.holds() != ""
	})
	c.sw.set(t, false, false)
	// With a list of sources, which switches do not keep, the VIP leaves at once, and comes back without it.
	vip.Endpoints[0].Deny = []string{"198.51.100.0/24"}
	c.apply(vip)
	eventually(t, "the muxes keep its list", func() bool {
		c.pass(time.Second)
		return second.holds() == "" && c.phaseIn("sw2") == placementpolicy.Leaving
	})
	vip.Endpoints[0].Deny = nil
	c.apply(vip)
	eventually(t, "a switch serves it again", func() bool {
		c.pass(time.Second)
		return c.phaseIn("sw1") == placementpolicy.Hardware || c.phaseIn("sw2") == placementpolicy.Hardware
	})
	if _, err := c.api.DeleteFabric(t.Context(), &weirv1.DeleteFabricRequest{Name: "east"}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the muxes serve it", func() bool {
		c.pass(time.Second)
		return second.holds() == "" && !c.phaseIn("sw1").Announced() && !c.phaseIn("sw2").Announced()
	})
}
