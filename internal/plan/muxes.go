package plan

import (
	"context"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// Scheme is a way to place VIPs, as figures name it. Repair has the usual budget of failures for the traffic.
type Scheme struct {
	Name   string
	Policy placement.Policy
}

// Schemes are the ways to place VIPs that figures compare: the paper's two, and Weir's without twins and with them.
func Schemes(seed uint64) []Scheme {
	return []Scheme{
		{"greedy", placement.Policy{Algorithm: placement.Greedy, Seed: seed}},
		{"random", placement.Policy{Algorithm: placement.Random, Seed: seed}},
		{"anycast", placement.Policy{Spread: placement.Anycast, Seed: seed}},
		{"weir", placement.Policy{Spread: placement.Twins, Seed: seed}},
	}
}

// MuxCount is the software muxes that a scheme needs at a sum of traffic.
type MuxCount struct {
	Scheme   string       `json:"scheme"`
	Rate     traffic.Rate `json:"rate"`
	Hardware traffic.Rate `json:"hardware"` // on switches
	Failure  traffic.Rate `json:"failure"`  // that the worst container or the worst three switches send to software
	Muxes    int64        `json:"muxes"`    // for what is not on switches, and for that failure
	Random   int64        `json:"random"`   // the same with the worst of ten draws of three switches, as the paper has it
	Software int64        `json:"software"` // without any switch: Ananta
	Bound    int64        `json:"bound"`    // that no placement without sets across containers gets below

	Placement *placement.Result `json:"-"`
}

// randomDraws is how often three switches are drawn, as in section 8.5 of Duet.
const randomDraws = 10

// CountMuxes places the demands and counts software muxes of a capacity: Figures 16 and 18 of Duet.
func CountMuxes(
	ctx context.Context, f *fabric.Fabric, demands []traffic.Demand, s Scheme, capacity traffic.Rate,
) (MuxCount, error) {
	if s.Policy.Algorithm == placement.Repair {
		s.Policy.FailureBudget = placement.UsualBudget(f, demands, s.Policy.Spread)
	}
	result, err := placement.Place(ctx, f, demands, nil, s.Policy)
	if err != nil {
		return MuxCount{}, err
	}
	failures := placement.FindFailures(f, result.Placed, randomDraws, s.Policy.Seed)
	left := result.Total - result.Hardware
	return MuxCount{
		Scheme: s.Name, Rate: result.Total, Hardware: result.Hardware, Failure: failures.Worst(),
		Muxes:     placement.Muxes(result.Software(failures), capacity),
		Random:    placement.Muxes(left+max(failures.Container, failures.Random), capacity),
		Software:  placement.Muxes(result.Total, capacity),
		Bound:     placement.Muxes(placement.LeastSoftware(f, demands, placement.Anycast), capacity),
		Placement: result,
	}, nil
}

// MuxChart is Figure 16 or 18 of Duet: software muxes by traffic, of schemes and of Ananta, and the bound.
func MuxChart(counts []MuxCount, schemes ...string) Chart {
	chart := Chart{Title: "software muxes (logarithmic)", Axis: "traffic, Tbit/s", LogY: true}
	software, bound := Line{Name: "software muxes alone"}, Line{Name: "bound without twins"}
	for _, name := range schemes {
		line := Line{Name: name}
		for _, c := range counts {
			if c.Scheme != name {
				continue
			}
			x := float64(c.Rate) / 1e9
			line.Points = append(line.Points, Point{X: x, Y: float64(c.Muxes)})
			if name == schemes[0] {
				software.Points = append(software.Points, Point{X: x, Y: float64(c.Software)})
				bound.Points = append(bound.Points, Point{X: x, Y: float64(c.Bound)})
			}
		}
		chart.Series = append(chart.Series, line)
	}
	chart.Series = append([]Line{software}, append(chart.Series, bound)...)
	return chart
}
