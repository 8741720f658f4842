package plan

import (
	"testing"

	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// simulate takes a policy through a short trace of the small fabric.
func simulate(t *testing.T, s Simulation) (moments []Moment) {
	t.Helper()
	n, _ := network(t, placement.Policy{})
	s.Fabric, s.MuxRate = n.Fabric, 100_000
	series := traffic.Series{Workload: traffic.Workload{VIPs: 300, Racks: len(n.Fabric.Racks), Total: 5e7}, Intervals: 5}
	if err := series.Generate(func(i traffic.Interval) bool {
		m, err := s.Next(t.Context(), i)
		if err != nil {
			t.Fatal(err)
		}
		moments = append(moments, m)
		return true
	}); err != nil {
		t.Fatal(err)
	}
	return moments
}

func TestSimulationOfATrace(t *testing.T) {
	repair := simulate(t, Simulation{Policy: placement.Policy{Spread: placement.Twins}})
	fresh := simulate(t, Simulation{Policy: placement.Policy{Algorithm: placement.Greedy}, ViaSoftware: true})
	kept := simulate(t, Simulation{Policy: placement.Policy{Algorithm: placement.Keep}})
	if repair[0].Moved != 0 || fresh[0].Moved != 0 || kept[0].Hardware != fresh[0].Hardware {
		t.Errorf("first intervals: %+v, %+v, %+v", repair[0], fresh[0], kept[0])
	}
	for i := 1; i < len(repair); i++ {
		if repair[i].Moved >= fresh[i].Moved || fresh[i].Transit != fresh[i].Moved || repair[i].Transit > repair[i].Moved {
			t.Errorf("interval %d: repair %+v, from scratch %+v", i, repair[i], fresh[i])
		}
		if kept[i].Hardware > fresh[i].Hardware {
			t.Errorf("interval %d: %d are kept on switches, %d placed anew", i, kept[i].Hardware, fresh[i].Hardware)
		}
		m := fresh[i]
		if want := placement.Muxes(m.Rate-m.Hardware+max(m.Failure, m.Transit), 100_000); m.Muxes != want {
			t.Errorf("interval %d: %d muxes, want %d", i, m.Muxes, want)
		}
	}
}

func TestCountMuxes(t *testing.T) {
	n, _ := network(t, placement.Policy{})
	for _, s := range Schemes(1) {
		c, err := CountMuxes(t.Context(), n.Fabric, traffic.Scaled(n.Demands, 2e7), s, 100_000)
		if err != nil {
			t.Fatal(err)
		}
		if c.Muxes > c.Software || c.Random > c.Muxes || s.Name != "weir" && c.Muxes < c.Bound || c.Software < 199 || c.Software > 200 {
			t.Errorf("%+v", c)
		}
	}
}
