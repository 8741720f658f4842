package plan

import (
	"context"
	"slices"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// Simulation takes a policy through a trace, interval by interval: each placement starts from the one before.
type Simulation struct {
	Fabric      *fabric.Fabric
	Policy      placement.Policy
	MuxRate     traffic.Rate // capacity of a software mux
	ViaSoftware bool         // all that moves goes via software muxes, as section 4.2 of Duet has it

	current placement.Where
	started bool
}

// Moment is an interval of a simulation.
type Moment struct {
	Interval int          `json:"interval"`
	Rate     traffic.Rate `json:"kbitPerS"`
	Hardware traffic.Rate `json:"hardwareKbitPerS"` // on switches
	Moved    traffic.Rate `json:"movedKbitPerS"`    // of VIPs whose place changed since the interval before
	Transit  traffic.Rate `json:"transitKbitPerS"`  // of them by way of software muxes
	Failure  traffic.Rate `json:"failureKbitPerS"`  // that the worst failure sends to software muxes
	Muxes    int64        `json:"muxes"`            // software muxes for what is left and, besides, a failure or transit
}

// Next places the VIPs of the next interval.
func (s *Simulation) Next(ctx context.Context, i traffic.Interval) (Moment, error) {
	policy := s.Policy
	if !s.started && policy.Algorithm == placement.Keep {
		policy.Algorithm = placement.Greedy // One-time keeps what the paper's algorithm places first
	}
	result, err := placement.Place(ctx, s.Fabric, i.Demands, s.current, policy)
	if err != nil {
		return Moment{}, err
	}
	next := result.Where(s.Fabric)
	failures := placement.FindFailures(s.Fabric, result.Placed, 0, 0)
	m := Moment{
		Interval: i.Number, Rate: result.Total, Hardware: result.Hardware, Failure: failures.Worst(),
	}
	if s.started {
		for _, d := range i.Demands {
			if !slices.Equal(s.current[d.VIP], next[d.VIP]) {
				m.Moved += d.Rate()
			}
		}
		m.Transit = m.Moved
		if !s.ViaSoftware {
			steps, err := placement.Migrate(ctx, s.Fabric, i.Demands, s.current, next, placement.Policy{})
			if err != nil {
				return Moment{}, err
			}
			m.Transit = placement.ThroughSoftware(steps)
		}
	}
	m.Muxes = placement.Muxes(m.Rate-m.Hardware+max(m.Failure, m.Transit), s.MuxRate)
	s.current, s.started = next, true
	return m, nil
}
