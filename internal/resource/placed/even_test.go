package placed

import (
	"testing"

	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

func TestEven(t *testing.T) {
	spec, err := fabric.Clos{Containers: 2, TorsPerContainer: 2, AggsPerContainer: 2, Cores: 4, TorUplink: 1000, AggUplink: 1000}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	network, err := fabric.New(spec)
	if err != nil {
		t.Fatal(err)
	}
	s := &store.State{}
	vip := func(split bool, switches ...string) model.VIP {
		return model.VIP{Hardware: &model.Hardware{Placement: model.PlacementRequire, Split: split, Switches: switches}}
	}
	vips := []model.VIP{
		{}, vip(true, "core-2", "core-1"), vip(false, "core-1", "agg-1-1"), vip(true, "tor-1-2", "tor-1-1"), vip(true, "core-1", "elsewhere"), vip(true, "tor-1-1", "tor-1-2"),
	}
	if err := Even(s, vips); err != nil {
		t.Errorf("without a fabric: %v", err)
	}
	s.Fabrics.Set("unread", store.Fabric{})
	s.Fabrics.Set("dc1", store.Fabric{KeptFabric: compile.KeptFabric{Network: network}})
	refused := model.FieldErrors(Even(s, vips))
	if len(refused) != 2 || refused[0].Field != "vips[3].hardware.switches" || refused[1].Field != "vips[5].hardware.switches" {
		t.Errorf("refused: %v", refused)
	}
}
