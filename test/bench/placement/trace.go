package main

import (
	"cmp"
	"context"
	"errors"

	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/traffic"
)

// traceReport is Figure 20.
type traceReport struct {
	Moments   []moment  `json:"moments"`
	Summaries []summary `json:"summaries"`
	Ratios    []change  `json:"ratios"`
}

// moment is an interval under a scheme.
type moment struct {
	draw
	Scheme   string  `json:"scheme"`
	Interval int     `json:"interval"`
	Coverage float64 `json:"coverage"` // part of the traffic on switches
	Moved    float64 `json:"moved"`    // part of the traffic whose place changed
	Transit  float64 `json:"transit"`  // part of the traffic that went by way of software muxes
	Muxes    int64   `json:"muxes"`    // for what is left and, besides, a failure or what moves by way of them
	Maximum  int64   `json:"maximum"`  // for the largest of these three, as section 8.6 has it
}

// summary is a trace under a scheme. Means of what moves leave out the first interval, from which nothing moves.
type summary struct {
	draw
	Scheme      string  `json:"scheme"`
	Coverage    float64 `json:"coverage_mean"`
	CoverageLow float64 `json:"coverage_min"`
	Moved       float64 `json:"moved_mean"`
	MovedMost   float64 `json:"moved_max"`
	Transit     float64 `json:"transit_max"`
	Muxes       float64 `json:"muxes_mean"`
	Maximum     float64 `json:"maximum_mean"`
	MuxesMost   int64   `json:"muxes_max"`
}

// change compares Weir's repair with the paper's Sticky in one draw.
type change struct {
	draw
	Moved float64 `json:"moved_repair_to_sticky"` // means
	Muxes float64 `json:"smux_repair_to_sticky"`  // means
	Most  float64 `json:"smux_max_repair_to_sticky"`
	Paper float64 `json:"maximum_repair_to_sticky"` // means of what the paper counts
}

// compared is how many of the schemes, the first ones, every draw has.
const compared = 2

// traceTotal is the mean of the paper's trace of three hours, of which section 8.6 tells 6.2 to 7.1 Tbit/s.
const traceTotal traffic.Rate = 6_650_000_000

func (b *bench) trace(ctx context.Context) (any, error) {
	draws, err := b.draws()
	if err != nil {
		return nil, err
	}
	found, err := compute(ctx, b, "trace", namesOf(draws), func(ctx context.Context, i int) ([]plan.TraceRun, error) {
		return b.traceOf(ctx, draws[i], i == 0)
	})
	if err != nil {
		return nil, err
	}
	var report traceReport
	for i, runs := range found {
		moments := momentsOf(draws[i], runs)
		report.Moments = append(report.Moments, moments...)
		by := map[string]summary{}
		for _, name := range []string{"repair", "sticky", "non-sticky", "one-time"} {
			if s, ok := summarise(moments, name); ok {
				by[name] = s
				report.Summaries = append(report.Summaries, s)
			}
		}
		repair, sticky := by["repair"], by["sticky"]
		report.Ratios = append(report.Ratios, change{
			draw: draws[i], Moved: repair.Moved / max(sticky.Moved, 1e-9), Muxes: repair.Muxes / max(sticky.Muxes, 1),
			Most: float64(repair.MuxesMost) / float64(max(sticky.MuxesMost, 1)), Paper: repair.Maximum / max(sticky.Maximum, 1),
		})
	}
	return report, b.plotTrace(found[0])
}

// traceOf takes the schemes through a trace. One-time and Non-sticky are only drawn.
func (b *bench) traceOf(ctx context.Context, of draw, drawn bool) ([]plan.TraceRun, error) {
	schemes, simulations := plan.TraceSimulations(b.network, of.Seed, muxRate2014)
	if !drawn {
		schemes, simulations = schemes[:compared], simulations[:compared]
	}
	runs := make([]plan.TraceRun, len(schemes))
	var failed error
	err := traffic.Series{Workload: b.of(of, traceTotal)}.Generate(func(i traffic.Interval) bool {
		for j := range simulations {
			var m plan.Moment
			if m, failed = simulations[j].Next(ctx, i); failed != nil {
				return false
			}
			runs[j].Scheme, runs[j].Moments = schemes[j], append(runs[j].Moments, m)
		}
		return true
	})
	return runs, cmp.Or(failed, err)
}

func momentsOf(of draw, runs []plan.TraceRun) (all []moment) {
	for _, r := range runs {
		for _, m := range r.Moments {
			part := func(r traffic.Rate) float64 { return float64(r) / float64(m.Rate) }
			all = append(all, moment{
				of, r.Scheme, m.Interval, part(m.Hardware), part(m.Moved), part(m.Transit), m.Muxes,
				placement.Muxes(max(m.Rate-m.Hardware, m.Failure, m.Transit), muxRate2014),
			})
		}
	}
	return all
}

func (b *bench) plotTrace(runs []plan.TraceRun) error {
	coverage, moved, muxes := plan.TraceCharts(runs)
	return errors.Join(
		b.plot("duet-20-coverage.svg", coverage), b.plot("duet-20-moved.svg", moved), b.plot("duet-20-muxes.svg", muxes))
}

// summarise sums up a scheme's moments; false: it has none.
func summarise(moments []moment, scheme string) (s summary, found bool) {
	n := 0.0
	for _, m := range moments {
		if m.Scheme != scheme {
			continue
		}
		if n == 0 {
			s = summary{draw: m.draw, Scheme: scheme, CoverageLow: m.Coverage}
		}
		n++
		s.Coverage += m.Coverage
		s.CoverageLow = min(s.CoverageLow, m.Coverage)
		s.Moved += m.Moved
		s.MovedMost, s.Transit = max(s.MovedMost, m.Moved), max(s.Transit, m.Transit)
		s.Muxes += float64(m.Muxes)
		s.Maximum += float64(m.Maximum)
		s.MuxesMost = max(s.MuxesMost, m.Muxes)
	}
	s.Coverage, s.Moved, s.Muxes = s.Coverage/max(n, 1), s.Moved/max(n-1, 1), s.Muxes/max(n, 1)
	s.Maximum /= max(n, 1)
	return s, n > 0
}
