package fabric

import (
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/traffic"
)

func TestRolesAreFoundFromTheLinks(t *testing.T) {
	spec, err := PaperClos.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Links) != 16000 || len(f.Racks) != 1600 || f.Tiers != 3 || len(f.External) != 40 || len(f.classes) != 40 {
		t.Errorf("the paper's fabric has %d links, %d racks, %d tiers, %d entrances, %d classes", len(f.Links), len(f.Racks), f.Tiers, len(f.External), len(f.classes))
	}
	count := map[string][]int{"container": make([]int, 40), "plane": make([]int, 4)}
	for _, s := range f.Switches {
		if s.Container >= 0 {
			count["container"][s.Container]++
		}
		if s.Plane >= 0 {
			count["plane"][s.Plane]++
		}
	}
	for what, want := range map[string]int{"container": 44, "plane": 50} {
		for i, n := range count[what] {
			if n != want {
				t.Errorf("%s %d has %d switches, want %d", what, i, n, want)
			}
		}
	}
	if got := f.Capacity(0).Rate(); got != 32_000_000 {
		t.Errorf("a link of 40 Gbit/s has %d kbit/s for placement, want 80 %%", got)
	}
}

// small is a fabric of two ToRs and a core, with a change.
func small(change func(*Spec)) Spec {
	s := Spec{
		Switches: []SwitchSpec{{Name: "tor-1"}, {Name: "tor-2"}, {Name: "core"}},
		Links:    []LinkSpec{{A: "tor-1", B: "core", Rate: 100}, {A: "tor-2", B: "core", Rate: 100}},
		Racks:    []RackSpec{{Name: "rack-1", Switch: "tor-1"}, {Name: "rack-2", Switch: "tor-2"}},
	}
	change(&s)
	return s
}

func TestBadFabricsAreRefusedByName(t *testing.T) {
	tests := map[string]struct {
		change func(*Spec)
		want   string
	}{
		"no switches":     {func(s *Spec) { s.Switches = nil }, "has no switches"},
		"switch twice":    {func(s *Spec) { s.Switches[1].Name = "tor-1" }, `switch "tor-1" is listed twice: remove one`},
		"no name":         {func(s *Spec) { s.Switches[1].Name = "" }, "switch 2 has no name"},
		"limits":          {func(s *Spec) { s.Switches[0].Limits = &Limits{Reserve: 101} }, `switch "tor-1": limits`},
		"unknown end":     {func(s *Spec) { s.Links[1].B = "spine" }, `link 2 (tor-2 to spine): there is no switch "spine"`},
		"loop":            {func(s *Spec) { s.Links[1].B = "tor-2" }, `link 2 joins switch "tor-2" with itself`},
		"zero capacity":   {func(s *Spec) { s.Links[0].Rate = 0 }, "link 1 (tor-1 to core): bandwidth of 0 kbit/s"},
		"enormous":        {func(s *Spec) { s.Links[0].Rate = 1 << 60 }, "must be above 0 and at most"},
		"background":      {func(s *Spec) { s.Links[0].Background = 101 }, "background of 101 and 0 kbit/s on a bandwidth of 100"},
		"no racks":        {func(s *Spec) { s.Racks = nil }, "has no racks"},
		"rack twice":      {func(s *Spec) { s.Racks[1].Name = "rack-1" }, `rack "rack-1" is listed twice`},
		"rack in the air": {func(s *Spec) { s.Racks[1].Switch = "tor-3" }, `rack "rack-2" is below switch "tor-3", which is not listed`},
		"rack below dead": {func(s *Spec) { s.Switches[1].Down = true }, `rack "rack-2" is below switch "tor-2", which is down`},
		"in parts":        {func(s *Spec) { s.Links[1].Down = true }, `the fabric is in parts: switch "tor-2" has no way to "tor-1"`},
		"no entrance":     {func(s *Spec) { s.External = []string{"spine"} }, `external: there is no switch "spine"`},
		"share":           {func(s *Spec) { s.LinkShare = 101 }, "linkShare 101"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if _, err := New(small(test.change)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q", err, test.want)
			}
		})
	}
	if _, err := New(small(func(*Spec) {})); err != nil {
		t.Errorf("the fabric without a change is refused: %v", err)
	}
	for _, c := range []Clos{{}, {Containers: 1, TorsPerContainer: 1, AggsPerContainer: 2, Cores: 3}, {Containers: 1 << 40, TorsPerContainer: 1 << 40, Cores: 1}} {
		if _, err := c.Spec(); err == nil {
			t.Errorf("clos %+v is taken", c)
		}
	}
}

func TestBadDemandsAreRefusedByName(t *testing.T) {
	f, err := New(small(func(*Spec) {}))
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]traffic.Demand{
		`vip "a": -1 kbit/s from outside`:     {VIP: "a", External: -1},
		`vip "a": source rack 2: the fabric`:  {VIP: "a", Sources: []traffic.Share{{Rack: 2, Rate: 1}}},
		`vip "a": -1 kbit/s from rack "rack-`: {VIP: "a", Sources: []traffic.Share{{Rack: 0, Rate: -1}}},
		"must be from 0 to 1000000000000":     {VIP: "a", External: 1e12, Sources: []traffic.Share{{Rack: 0, Rate: 1}}},
		`vip "a": backends in rack -1`:        {VIP: "a", Backends: []traffic.Group{{Rack: -1, Backends: 1}}},
		`vip "a": 0 backends in rack "rack-1`: {VIP: "a", Backends: []traffic.Group{{Rack: 0}}},
	}
	for want, d := range tests {
		if _, err := f.NewFlow(d); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
