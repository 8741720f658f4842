package plan

import (
	"encoding/xml"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/traffic"
)

func TestChartIsXMLWithinItsFrame(t *testing.T) {
	for name, c := range map[string]Chart{
		"nothing": {},
		"a point": {Title: "a < b & c", Series: []Line{{"one", []Point{{1, 1}}}}},
		"zero on logarithmic axes": {
			LogX: true, LogY: true, Series: []Line{{"zero", []Point{{0, 0}, {1, 0}, {20_000, 3e7}}}},
		},
		"lines": {UnitY: " %", Series: []Line{{"up", []Point{{0, 0}, {10, 99}}}, {"down", []Point{{0, 99}, {10, 0}}}}},
	} {
		text := c.SVG()
		if strings.Contains(text, "NaN") || strings.Contains(text, "Inf") {
			t.Errorf("%s: a number is none:\n%s", name, text)
		}
		for d := xml.NewDecoder(strings.NewReader(text)); ; {
			if _, err := d.Token(); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				t.Fatalf("%s: %v\n%s", name, err, text)
			}
		}
	}
}

func TestStepsOfAxes(t *testing.T) {
	for of, want := range map[float64]float64{1: 0.2, 6: 1, 7: 2, 100: 20, 15_000: 5000, 0: 1} {
		if got := niceStep(of); math.Abs(got-want) > 1e-9*want {
			t.Errorf("a range of %v has steps of %v, not %v", of, got, want)
		}
	}
}

func TestConcentrations(t *testing.T) {
	demands, err := traffic.Workload{}.Generate()
	if err != nil {
		t.Fatal(err)
	}
	points := Concentrations(demands)
	last := points[len(points)-1]
	if last.VIPs != len(demands) || math.Abs(last.Traffic-1) > 1e-9 || math.Abs(last.Backends-1) > 1e-9 {
		t.Errorf("the last point is %+v", last)
	}
	if !slices.IsSortedFunc(points, func(a, b Concentration) int { return a.VIPs - b.VIPs }) || len(points) > 150 {
		t.Errorf("%d points: %+v", len(points), points)
	}
	if got := Concentrations(nil); got != nil {
		t.Errorf("of nothing: %+v", got)
	}
	if got := Concentrations([]traffic.Demand{{VIP: "idle"}}); len(got) != 1 || got[0] != (Concentration{VIPs: 1}) {
		t.Errorf("of an idle VIP: %+v", got)
	}
}
