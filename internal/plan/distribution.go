package plan

import (
	"cmp"
	"slices"

	"github.com/weirlb/weir/internal/traffic"
)

// Concentration is the part of all traffic and of all backends that the largest VIPs have.
type Concentration struct {
	VIPs     int     `json:"vips"`     // so many, the largest by traffic
	Traffic  float64 `json:"traffic"`  // part of all
	Backends float64 `json:"backends"` // part of all
}

// Concentrations are Figure 15 of Duet: points of the distribution of traffic and backends over VIPs, by rank.
func Concentrations(demands []traffic.Demand) []Concentration {
	sizes := make([]Concentration, len(demands)) // of one VIP each
	var all Concentration
	for i, d := range demands {
		sizes[i].Traffic = float64(d.Rate())
		for _, g := range d.Backends {
			sizes[i].Backends += float64(g.Backends)
		}
		all.Traffic, all.Backends = all.Traffic+sizes[i].Traffic, all.Backends+sizes[i].Backends
	}
	slices.SortStableFunc(sizes, func(a, b Concentration) int { return cmp.Compare(b.Traffic, a.Traffic) })
	var points []Concentration
	var sum Concentration
	next := 1
	for i, s := range sizes {
		sum.Traffic, sum.Backends = sum.Traffic+s.Traffic, sum.Backends+s.Backends
		if i+1 == next || i+1 == len(sizes) {
			points = append(points, Concentration{
				VIPs: i + 1, Traffic: part(sum.Traffic, all.Traffic), Backends: part(sum.Backends, all.Backends),
			})
			next = max(next+1, next*11/10)
		}
	}
	return points
}

// part is a / of, and 0 of nothing.
func part(a, of float64) float64 {
	if of == 0 {
		return 0
	}
	return a / of
}

// ConcentrationChart is Figure 15 of Duet.
func ConcentrationChart(points []Concentration) Chart {
	rates, backends := Line{Name: "traffic"}, Line{Name: "backends"}
	for _, p := range points {
		rates.Points = append(rates.Points, Point{X: float64(p.VIPs), Y: 100 * p.Traffic})
		backends.Points = append(backends.Points, Point{X: float64(p.VIPs), Y: 100 * p.Backends})
	}
	return Chart{
		Title: "part of traffic and of backends", Axis: "VIPs, the largest by traffic first (logarithmic)", LogX: true,
		UnitY: " %", Series: []Line{backends, rates},
	}
}
