package fabric

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// fabricFrom draws a fabric of any shape from a seed that rapid draws.
func fabricFrom(t *rapid.T) (*Fabric, *rand.Rand) {
	r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	return drawFabric(r), r
}

// A failed switch is down, and what has no way to most racks any more is down with it; all else stays as it was.
func TestWithoutLeavesOnePartInService(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, r := fabricFrom(t)
		failed := []int32{int32(r.IntN(len(f.Switches))), int32(r.IntN(len(f.Switches)))}
		left, racks, err := f.Without(failed, nil)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "external: all switches are down") && !strings.HasPrefix(err.Error(), "the fabric has no racks") {
				t.Fatal(err)
			}
			return
		}
		for i, s := range left.Switches {
			if s.Name != f.Switches[i].Name || slices.Contains(failed, int32(i)) && !s.Down {
				t.Fatalf("switch %d was %+v, is %+v", i, f.Switches[i], s)
			}
		}
		for i, l := range left.Links {
			was := f.Links[i]
			if down := was.Down || left.Switches[l.From].Down || left.Switches[l.To].Down; l.Down != down || l.From != was.From || l.Rate != was.Rate {
				t.Fatalf("link %d was %+v, is %+v", i, was, l)
			}
		}
		for i, to := range racks {
			if down := left.Switches[f.RackSwitch(int32(i))].Down; down != (to < 0) {
				t.Fatalf("rack %s has the number %d, its switch is down: %v", f.Racks[i].Name, to, down)
			}
			if to >= 0 && left.Racks[to].Name != f.Racks[i].Name {
				t.Fatalf("rack %s is %s", f.Racks[i].Name, left.Racks[to].Name)
			}
		}
	})
}

func TestWithoutAContainer(t *testing.T) {
	spec, err := Clos{Containers: 3, TorsPerContainer: 2, AggsPerContainer: 2, Cores: 2, TorUplink: 1e7, AggUplink: 1e7}.Spec()
	if err != nil {
		t.Fatal(err)
	}
	f, err := New(spec)
	if err != nil {
		t.Fatal(err)
	}
	var failed []int32 // without their aggregation switches, the ToRs are cut off
	for i, s := range f.Switches {
		if s.Name == "agg-2-1" || s.Name == "agg-2-2" {
			failed = append(failed, int32(i))
		}
	}
	left, racks, err := f.Without(failed, nil)
	if err != nil {
		t.Fatal(err)
	}
	if want := []int32{0, 1, -1, -1, 2, 3}; !slices.Equal(racks, want) || len(left.Racks) != 4 {
		t.Errorf("racks are %v, want %v", racks, want)
	}
}

// What each of n has, n times, is the sum of the flows, but for what is rounded up.
func TestShareIsTheSumDivided(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f, r := fabricFrom(t)
		routes := NewRouter(f).Routes(drawMembers(r, f)[:1])
		sum, shared := f.NewLoads(), f.NewLoads()
		var flows []*Flow
		for v := range 1 + r.IntN(5) {
			flow, err := f.NewFlow(randomDemand(r, f, v))
			if err != nil {
				t.Fatal(err)
			}
			flows = append(flows, flow)
			sum.Add(flow, routes)
		}
		n := 1 + r.IntN(4)
		for range n {
			shared.Add(f.Share(flows, n), routes)
		}
		for i := range f.Links {
			if diff := shared.ByLink[i] - sum.ByLink[i]; diff < -2000 || diff > 2000 { // 0.002 kbit/s: parts are rounded up
				t.Fatalf("link %s has %d in %d shares, %d in all", f.LinkName(int32(i)), shared.ByLink[i], n, sum.ByLink[i])
			}
		}
	})
}

// A dead cable carries nothing in either direction, and what hangs on it alone is cut off.
func TestWithoutALink(t *testing.T) {
	f, err := New(small(func(*Spec) {}))
	if err != nil {
		t.Fatal(err)
	}
	left, racks, err := f.Without(nil, []int32{3})
	if err != nil {
		t.Fatal(err)
	}
	tor := f.RackSwitch(1)
	if !left.Links[2].Down || !left.Links[3].Down || left.Links[0].Down || !left.Switches[tor].Down || !slices.Equal(racks, []int32{0, -1}) {
		t.Errorf("links %+v, switches %+v, racks %v", left.Links, left.Switches, racks)
	}
}
