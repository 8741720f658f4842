package cabling

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/fabric"
)

// plan is of a core with two ToRs, of which tor-1 has two links; a third one is declared as down.
func plan(t *testing.T) *Plan {
	t.Helper()
	f, err := fabric.New(fabric.Spec{
		Switches: []fabric.SwitchSpec{{Name: "tor-1"}, {Name: "tor-2"}, {Name: "core"}},
		Links: []fabric.LinkSpec{
			{A: "tor-1", B: "core", Rate: 100}, {A: "tor-1", B: "core", Rate: 100}, {A: "tor-1", B: "core", Rate: 100, Down: true}, {A: "core", B: "tor-2", Rate: 100},
		},
		Racks: []fabric.RackSpec{{Name: "rack-1", Switch: "tor-1"}, {Name: "rack-2", Switch: "tor-2"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(f)
}

// hears is ports by what they hear: "-tor-1" is a port that is down.
func hears(neighbours ...string) (ports []Port) {
	for i, n := range neighbours {
		name, down := strings.CutPrefix(n, "-")
		ports = append(ports, Port{Name: fmt.Sprintf("e%d", i), Up: !down, Neighbour: name})
	}
	return ports
}

func TestCompare(t *testing.T) {
	tor1, tor2, tors := Pair{"core", "tor-1"}, Pair{"core", "tor-2"}, Pair{"tor-1", "tor-2"}
	fine := map[Pair]Difference{tor1: {}, tor2: {}}
	for name, c := range map[string]struct {
		reported map[string][]Port
		want     map[Pair]Difference
		there    int
	}{
		"nobody reports":            {nil, map[Pair]Difference{}, 0},
		"nobody hears":              {map[string][]Port{"core": hears("", "")}, map[Pair]Difference{}, 0},
		"the core hears all":        {map[string][]Port{"core": hears("tor-1", "tor-1", "tor-2")}, fine, 3},
		"by whole names":            {map[string][]Port{"core": hears("TOR-1.dc.example", "tor-1", "tor-2.dc.example", "host-9")}, fine, 3},
		"all hear all":              {map[string][]Port{"core": hears("tor-1", "tor-1", "tor-2"), "tor-1": hears("core", "core"), "tor-2": hears("core", "host-1")}, fine, 3},
		"one that is down is up":    {map[string][]Port{"core": hears("tor-1", "tor-1", "tor-1", "tor-2")}, fine, 4},
		"one of two is missing":     {map[string][]Port{"core": hears("tor-1", "", "tor-2")}, map[Pair]Difference{tor1: {Missing: 1}, tor2: {}}, 2},
		"one is down":               {map[string][]Port{"core": hears("tor-1", "-tor-1", "tor-2")}, map[Pair]Difference{tor1: {Down: 1, Port: "e1 of core"}, tor2: {}}, 2},
		"a switch is dead":          {map[string][]Port{"core": hears("-tor-1", "-tor-1", "tor-2")}, map[Pair]Difference{tor1: {Down: 2, Port: "e0 of core"}, tor2: {}}, 1},
		"a switch is mute":          {map[string][]Port{"core": hears("", "", "tor-2")}, map[Pair]Difference{tor2: {}}, 1},
		"it works one way alone":    {map[string][]Port{"core": hears("tor-1", "tor-1", "tor-2"), "tor-1": hears("core", "host")}, map[Pair]Difference{tor1: {Missing: 1}, tor2: {}}, 2},
		"one more than declared":    {map[string][]Port{"core": hears("tor-1", "tor-1", "tor-1", "tor-1", "tor-2")}, map[Pair]Difference{tor1: {Unexpected: 1}, tor2: {}}, 4},
		"a link of nobody's making": {map[string][]Port{"core": hears("tor-1", "tor-1", "tor-2"), "tor-1": hears("core", "core", "tor-2")}, map[Pair]Difference{tor1: {}, tor2: {}, tors: {Unexpected: 1}}, 3},
		"it hears itself":           {map[string][]Port{"core": hears("core", "tor-1", "tor-1", "tor-2")}, fine, 3},
		"it is not of the fabric":   {map[string][]Port{"spy": hears("core", "tor-1"), "core": hears("tor-1", "tor-1", "tor-2")}, fine, 3},
	} {
		known, there := plan(t).Compare(c.reported)
		if !maps.Equal(known, c.want) || there != c.there {
			t.Errorf("%s: got %v, %d there; want %v, %d", name, known, there, c.want, c.there)
		}
	}
}

// A switch that lies neither makes up a link towards one that hears, nor hides one that is missing there.
func TestOneLiarIsNotBelieved(t *testing.T) {
	known, _ := plan(t).Compare(map[string][]Port{
		"core": hears("tor-1", "tor-2"), "tor-1": hears("core", "core", "core", "core", "tor-2", "tor-2"), "tor-2": hears("core"),
	})
	if d := known[Pair{"core", "tor-1"}]; d != (Difference{Missing: 1}) {
		t.Errorf("core to tor-1: %+v, want one link missing", d)
	}
	if d := known[Pair{"tor-1", "tor-2"}]; d != (Difference{}) {
		t.Errorf("tor-1 to tor-2: %+v, want nothing", d)
	}
}

// Nobody makes links of others missing by saying that a switch speaks LLDP which does not.
func TestAStrangerMakesNoLinkMissing(t *testing.T) {
	known, _ := plan(t).Compare(map[string][]Port{"core": hears("tor-1", "tor-1"), "tor-1": hears("core", "core", "tor-2")})
	if d, is := known[Pair{"core", "tor-2"}]; is {
		t.Errorf("core to tor-2, of which tor-1 alone says that it speaks: %+v", d)
	}
	f, err := fabric.New(fabric.Spec{
		Switches: []fabric.SwitchSpec{{Name: "tor"}, {Name: "s1"}, {Name: "s2"}, {Name: "s3"}},
		Links:    []fabric.LinkSpec{{A: "tor", B: "s1", Rate: 100}, {A: "tor", B: "s2", Rate: 100}, {A: "tor", B: "s3", Rate: 100}},
		Racks:    []fabric.RackSpec{{Name: "rack", Switch: "tor"}},
	})
	if err != nil {
		t.Fatal(err)
	}
	known, _ = New(f).Compare(map[string][]Port{"s1": hears("tor"), "s3": hears("host")})
	if d, is := known[Pair{"s3", "tor"}]; is {
		t.Errorf("s3 to tor, of which s1 alone says that it speaks: %+v", d)
	}
	known, _ = New(f).Compare(map[string][]Port{"s1": hears("tor"), "s2": hears("tor"), "s3": hears("host")})
	if d := known[Pair{"s3", "tor"}]; d != (Difference{Missing: 1}) {
		t.Errorf("two say that it speaks: %+v, want one link missing", d)
	}
}

func TestTextsAreBounded(t *testing.T) {
	all := map[Pair]Difference{}
	if got, _ := Text(all, func(d Difference) (int, string) { return d.Missing, "" }); got != "" {
		t.Errorf("got %q of nothing", got)
	}
	for i := range 100 {
		all[Pair{fmt.Sprintf("a%02d", i), "b"}] = Difference{Missing: i % 3, Down: i % 2, Port: "e0 of b"}
	}
	want := "a01 to b, a02 to b (2 links), a04 to b, a05 to b (2 links), a07 to b, a08 to b (2 links), a10 to b, a11 to b (2 links), and 87 others"
	if got, _ := Text(all, func(d Difference) (int, string) { return d.Missing, "" }); got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if got, _ := Text(all, func(d Difference) (int, string) { return d.Down, d.Port }); !strings.HasPrefix(got, "a01 to b (e0 of b), a03") {
		t.Errorf("got %q", got)
	}
}
