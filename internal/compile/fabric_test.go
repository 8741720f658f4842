package compile

import (
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

func TestFabricByParametersAndByLists(t *testing.T) {
	clos := &weirv1.Clos{Containers: 2, TorsPerContainer: 3, AggsPerContainer: 2, Cores: 4, TorMbitPerS: 10_000, AggMbitPerS: 40_000}
	f, err := Fabric(&weirv1.Fabric{Name: "east", Clos: clos})
	if err != nil || len(f.Racks) != 6 || len(f.Switches) != 14 || f.LinkShare != 80 {
		t.Fatalf("got %+v, %v", f, err)
	}
	tunnels := uint32(7)
	f, err = Fabric(&weirv1.Fabric{
		Name: "pair", LinkShare: 50,
		Switches: []*weirv1.FabricSwitch{{Name: "a", Limits: &weirv1.TableLimits{Tunnels: &tunnels}}, {Name: "b"}},
		Links:    []*weirv1.FabricLink{{A: "a", B: "b", MbitPerS: 1000, BackgroundMbitPerS: 10}},
		Racks:    []*weirv1.FabricRack{{Name: "r", Switch: "a"}},
	})
	if err != nil || f.Switches[0].Limits.Tunnels != 7 || f.Switches[0].Limits.Hosts != 16384 || f.Links[0].Rate != 1_000_000 ||
		f.Links[0].Background != 10_000 {
		t.Fatalf("got %+v, %v", f, err)
	}
}

func TestWrongFabricsAreRefusedWithTheirField(t *testing.T) {
	for want, m := range map[string]*weirv1.Fabric{
		"name: must be a DNS label":                     {Name: "East"},
		"linkShare: must be from 1 to 100 percent":      {Name: "a", LinkShare: 101},
		"clos: clos: 0 containers":                      {Name: "a", Clos: &weirv1.Clos{}},
		"clos: holds numbers of switches up to":         {Name: "a", Clos: &weirv1.Clos{Cores: 1 << 31}},
		"clos: stands beside switches":                  {Name: "a", Clos: &weirv1.Clos{}, Racks: []*weirv1.FabricRack{{}}},
		"clos.limits.reserve: must be at most 100":      {Name: "a", Clos: &weirv1.Clos{Limits: &weirv1.TableLimits{Reserve: 101}}},
		"switches: the fabric has no switches":          {Name: "a"},
		"links[0].mbitPerS: must be at most 1000000000": {Name: "a", Links: []*weirv1.FabricLink{{MbitPerS: 1 << 60}}},
	} {
		if _, err := Fabric(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", m, err, want)
		}
	}
}
