package plan

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/traffic"
)

const tenTbit traffic.Rate = 10e9

var sweep = []int{230, 2000, 5000, 10_000, 15_000}

// Section 8.3: with as many software muxes as Duet needs, Ananta is above 6 ms; 15 000 give about what Duet does.
func TestFigure17Of2014(t *testing.T) {
	f := Paper2014().Figure17(tenTbit, tenTbit/200, 230, sweep)
	if got := f.Software[0].Median; got < 6*time.Millisecond {
		t.Errorf("230 software muxes give %v, not above 6 ms", got)
	}
	if got := f.Switches.Median; got < 381*time.Microsecond || got > 474*time.Microsecond {
		t.Errorf("switches give %v, not from 381 to 474 µs", got)
	}
	if got := f.Software[4].Median; got > 2*f.Switches.Median {
		t.Errorf("15 000 software muxes give %v, above twice the %v of switches", got, f.Switches.Median)
	}
	if f.Equal != 0 {
		t.Errorf("%d software muxes are as fast as switches, but one without load is not", f.Equal)
	}
}

// With an XDP mux the gain of latency is next to nothing; what switches save is muxes.
func TestFigure17OfToday(t *testing.T) {
	f := Measured().Figure17(tenTbit, tenTbit/200, 25, sweep)
	if got := f.Software[1].Median; got > 500*time.Microsecond {
		t.Errorf("2 000 software muxes give %v", got)
	}
	if f.Equal == 0 || f.Equal > 1100 {
		t.Errorf("%d software muxes are as fast as switches: 1 000 carry the traffic", f.Equal)
	}
}

func TestProfilesAscend(t *testing.T) {
	for _, p := range LatencyProfiles() {
		for i, at := range p.Mux {
			if at.P50 > at.P90 || at.P90 > at.P99 {
				t.Errorf("%s: the quantiles at %v descend", p.Name, at.Load)
			}
			if i > 0 && (at.Load <= p.Mux[i-1].Load || at.P50 < p.Mux[i-1].P50 || at.P99 < p.Mux[i-1].P99) {
				t.Errorf("%s: the point at %v is below the one before", p.Name, at.Load)
			}
		}
		if p.Mux[0].Load != 0 || p.Source == "" {
			t.Errorf("%s: begins at load %v, source %q", p.Name, p.Mux[0].Load, p.Source)
		}
	}
}

func TestLatencyGrowsWithLoad(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := rapid.SampledFrom(LatencyProfiles()).Draw(t, "profile")
		a := rapid.Float64Range(0, 3).Draw(t, "a")
		b := rapid.Float64Range(a, 3).Draw(t, "b")
		low, high := p.SoftwareLatency(a), p.SoftwareLatency(b)
		if low.P50 > high.P50 || low.P90 > high.P90 || low.P99 > high.P99 {
			t.Fatalf("load %v: %v, load %v: %v", a, low, b, high)
		}
	})
}

func TestNoTrafficAndNoMux(t *testing.T) {
	for _, p := range LatencyProfiles() {
		if f := p.Figure17(0, 0, 0, []int{0, 1}); f.Software[0].Load != 0 || f.Switches.Load != 0 {
			t.Errorf("%s: load without traffic: %+v", p.Name, f)
		}
		if f := p.Figure17(tenTbit, tenTbit, 0, []int{0}); f.Switches.Median != p.add(p.Mux[len(p.Mux)-1].Quantiles).P50 {
			t.Errorf("%s: all traffic on one mux gives %v", p.Name, f.Switches.Median)
		}
	}
}
