package compile

import (
	"fmt"
	"net/netip"
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
	f, err = Fabric(&weirv1.Fabric{Name: "east", Clos: clos, Racks: []*weirv1.FabricRack{{Name: "rack-2-1", Prefixes: []string{"10.2.1.0/24"}}}})
	if err != nil {
		t.Fatal(err)
	}
	if rack, ok := f.RackOf(netip.MustParseAddr("10.2.1.9")); !ok || f.Racks[rack].Name != "rack-2-1" || len(f.Racks) != 6 {
		t.Fatalf("10.2.1.9 is in rack %d of %+v", rack, f.Racks)
	}
	tunnels := uint32(7)
	f, err = Fabric(&weirv1.Fabric{
		Name: "pair", LinkShare: 50,
		Switches: []*weirv1.FabricSwitch{{Name: "a", Limits: &weirv1.TableLimits{Tunnels: &tunnels}}, {Name: "b"}},
		Links:    []*weirv1.FabricLink{{A: "a", B: "b", MbitPerS: 1000, BackgroundMbitPerS: 10}},
		Racks:    []*weirv1.FabricRack{{Name: "r", Switch: "a", Prefixes: []string{"10.3.0.0/16", "fd00::1"}}},
	})
	if err != nil || fmt.Sprint(f.Racks[0].Prefixes) != "[10.3.0.0/16 fd00::1/128]" || f.Switches[0].Limits.Tunnels != 7 || f.Switches[0].Limits.Hosts != 16384 || f.Links[0].Rate != 1_000_000 ||
		f.Links[0].Background != 10_000 {
		t.Fatalf("got %+v, %v", f, err)
	}
}

// withRacks is a Clos network of two racks with these beside it.
func withRacks(racks ...*weirv1.FabricRack) *weirv1.Fabric {
	clos := &weirv1.Clos{Containers: 1, TorsPerContainer: 2, AggsPerContainer: 1, Cores: 1, TorMbitPerS: 1, AggMbitPerS: 1}
	return &weirv1.Fabric{Name: "a", Clos: clos, Racks: racks}
}

func TestWrongFabricsAreRefusedWithTheirField(t *testing.T) {
	for want, m := range map[string]*weirv1.Fabric{
		"name: must be a DNS label":                     {Name: "East"},
		"linkShare: must be from 1 to 100 percent":      {Name: "a", LinkShare: 101},
		"clos: clos: 0 containers":                      {Name: "a", Clos: &weirv1.Clos{}},
		"clos: holds numbers of switches up to":         {Name: "a", Clos: &weirv1.Clos{Cores: 1 << 31}},
		"clos: stands beside switches":                  {Name: "a", Clos: &weirv1.Clos{}, Switches: []*weirv1.FabricSwitch{{}}},
		"racks[0].name: must be a rack of clos":         withRacks(&weirv1.FabricRack{Name: "rack-9-9"}),
		"racks[1].name: must be a rack of clos":         withRacks(&weirv1.FabricRack{Name: "rack-1-1"}, &weirv1.FabricRack{Name: "rack-1-1"}),
		"racks[0].switch: must be left out beside clos": withRacks(&weirv1.FabricRack{Name: "rack-1-1", Switch: "tor-1-1"}),
		"racks[0].prefixes[0]: must be an address or":   withRacks(&weirv1.FabricRack{Name: "rack-1-1", Prefixes: []string{"ten"}}),
		"racks[0].prefixes[0]: must have no bits set":   withRacks(&weirv1.FabricRack{Name: "rack-1-1", Prefixes: []string{"10.0.0.1/8"}}),
		`clos: racks "rack-1-1" and "rack-1-2" both have prefix 10.0.0.0/8`: withRacks(
			&weirv1.FabricRack{Name: "rack-1-2", Prefixes: []string{"10.0.0.0/8"}}, &weirv1.FabricRack{Name: "rack-1-1", Prefixes: []string{"10.0.0.0/8"}}),
		"clos.limits.reserve: must be at most 100":      {Name: "a", Clos: &weirv1.Clos{Limits: &weirv1.TableLimits{Reserve: 101}}},
		"switches: the fabric has no switches":          {Name: "a"},
		"links[0].mbitPerS: must be at most 1000000000": {Name: "a", Links: []*weirv1.FabricLink{{MbitPerS: 1 << 60}}},
	} {
		if _, err := Fabric(m); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: error %v, want %q", m, err, want)
		}
	}
}
