package plan

import (
	"context"
	"fmt"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/traffic"
)

// FailureRun is the hottest link of a scheme, as parts of the bandwidth: Figure 19 of Duet.
type FailureRun struct {
	Scheme string    `json:"scheme"`
	Before float64   `json:"before"`
	After  []float64 `json:"after"` // of each failure
}

// FailureChart draws runs by the number of the failure; at 0 nothing has failed.
func FailureChart(runs []FailureRun) Chart {
	chart := Chart{Title: "hottest link, of its bandwidth", Axis: "failure (0: none)", UnitY: " %"}
	for _, r := range runs {
		line := Line{Name: r.Scheme, Points: []Point{{X: 0, Y: 100 * r.Before}}}
		for i, part := range r.After {
			line.Points = append(line.Points, Point{X: float64(i + 1), Y: 100 * part})
		}
		chart.Series = append(chart.Series, line)
	}
	return chart
}

// TraceRun is a trace under a scheme: Figure 20 of Duet.
type TraceRun struct {
	Scheme  string   `json:"scheme"`
	Moments []Moment `json:"moments"`
}

// TraceCharts draw the traffic on switches, the traffic that moves, and the software muxes through time.
func TraceCharts(runs []TraceRun) (coverage, moved, muxes Chart) {
	const axis = "interval"
	coverage = Chart{Title: "part of the traffic on switches", Axis: axis, UnitY: " %"}
	moved = Chart{Title: "part of the traffic whose place changes", Axis: axis, UnitY: " %"}
	muxes = Chart{Title: "software muxes (logarithmic)", Axis: axis, LogY: true}
	for _, r := range runs {
		c, m, n := Line{Name: r.Scheme}, Line{Name: r.Scheme}, Line{Name: r.Scheme}
		for _, at := range r.Moments {
			x := float64(at.Interval)
			c.Points = append(c.Points, Point{X: x, Y: 100 * part(float64(at.Hardware), float64(at.Rate))})
			m.Points = append(m.Points, Point{X: x, Y: 100 * part(float64(at.Moved), float64(at.Rate))})
			n.Points = append(n.Points, Point{X: x, Y: float64(at.Muxes)})
		}
		coverage.Series, moved.Series, muxes.Series = append(coverage.Series, c), append(moved.Series, m), append(muxes.Series, n)
	}
	return coverage, moved, muxes
}

// traceBudget is a failure budget that leaves room for what changes until the next interval, in millionths.
const traceBudget = 8_000

// StickyDelta is the threshold of the paper's Sticky (section 8.6 of Duet).
const StickyDelta = 0.05

// TraceSimulations are the schemes that Figure 20 compares: Weir's repair and the paper's algorithms.
func TraceSimulations(f *fabric.Fabric, seed uint64, muxRate traffic.Rate) (schemes []string, all []Simulation) {
	add := func(name string, viaSoftware bool, p placement.Policy) {
		p.Seed = seed
		schemes = append(schemes, name)
		all = append(all, Simulation{Fabric: f, Policy: p, MuxRate: muxRate, ViaSoftware: viaSoftware})
	}
	add("repair", false, placement.Policy{Spread: placement.Twins, FailureBudget: traceBudget})
	add("sticky", true, placement.Policy{Algorithm: placement.Sticky, Delta: StickyDelta})
	add("non-sticky", true, placement.Policy{Algorithm: placement.Greedy})
	add("one-time", true, placement.Policy{Algorithm: placement.Keep})
	return schemes, all
}

// Figures draws the figures of Duet's section 8 for a fabric and its traffic, interval by interval.
type Figures struct {
	Fabric  *fabric.Fabric
	Profile LatencyProfile // also the capacity of a software mux
	Seed    uint64

	first       []traffic.Demand
	runs        []TraceRun
	simulations []Simulation
}

// Add takes the next interval.
func (p *Figures) Add(ctx context.Context, i traffic.Interval) error {
	if p.first == nil {
		p.first = i.Demands
		schemes, simulations := TraceSimulations(p.Fabric, p.Seed, p.Profile.MuxRate)
		p.simulations = simulations
		for _, s := range schemes {
			p.runs = append(p.runs, TraceRun{Scheme: s})
		}
	}
	for j := range p.simulations {
		m, err := p.simulations[j].Next(ctx, i)
		if err != nil {
			return fmt.Errorf("interval %d: %w", i.Number, err)
		}
		p.runs[j].Moments = append(p.runs[j].Moments, m)
	}
	return nil
}

// Figure is a chart and the name that its file has.
type Figure struct {
	Name  string
	Chart Chart
}

// Draw computes the figures: those of one moment from the first interval.
func (p *Figures) Draw(ctx context.Context) ([]Figure, error) {
	counts, err := p.countMuxes(ctx)
	if err != nil {
		return nil, err
	}
	weir := counts[len(counts)-1]
	left := weir.Rate - weir.Hardware
	sweep := []int{int(weir.Muxes)}
	for n := max(1, weir.Muxes); n < 2*weir.Software; n = n*5/4 + 1 {
		sweep = append(sweep, int(n))
	}
	latency := p.Profile.Figure17(weir.Rate, left, int(weir.Muxes), sweep)
	var failures []FailureRun
	for _, c := range counts[len(counts)-len(Schemes(0)):] {
		if c.Scheme != "greedy" && c.Scheme != "weir" {
			continue
		}
		run, err := p.failContainers(ctx, c)
		if err != nil {
			return nil, err
		}
		failures = append(failures, run)
	}
	figures := []Figure{
		{"traffic", ConcentrationChart(Concentrations(p.first))},
		{"muxes", MuxChart(counts, "greedy", "random", "anycast", "weir")},
		{"latency", LatencyChart([]LatencyFigure{latency})},
		{"failures", FailureChart(failures)},
	}
	if len(p.runs[0].Moments) > 1 {
		coverage, moved, muxes := TraceCharts(p.runs)
		figures = append(figures, Figure{"trace-coverage", coverage}, Figure{"trace-moved", moved}, Figure{"trace-muxes", muxes})
	}
	return figures, nil
}

// countMuxes counts for an eighth of the traffic, a quarter, a half and all of it.
func (p *Figures) countMuxes(ctx context.Context) (counts []MuxCount, err error) {
	var total traffic.Rate
	for _, d := range p.first {
		total += d.Rate()
	}
	for _, part := range []traffic.Rate{8, 4, 2, 1} {
		demands := traffic.Scaled(p.first, total/part)
		for _, s := range Schemes(p.Seed) {
			c, err := CountMuxes(ctx, p.Fabric, demands, s, p.Profile.MuxRate)
			if err != nil {
				return nil, err
			}
			counts = append(counts, c)
		}
	}
	return counts, nil
}

// mostFailures bounds how many containers fail.
const mostFailures = 40

// failContainers lets each container fail, or so many of them at equal distances.
func (p *Figures) failContainers(ctx context.Context, c MuxCount) (FailureRun, error) {
	n := Network{Fabric: p.Fabric, Demands: p.first, Placed: c.Placement.Placed, MuxRacks: MuxRacks(p.Fabric, c.Muxes)}
	run := FailureRun{Scheme: c.Scheme}
	before, err := n.Fail()
	if err != nil {
		return run, err
	}
	run.Before = before.Utilisation
	containers := Containers(p.Fabric)
	if len(containers) < 2 {
		return run, nil // nothing is left without the only one
	}
	count := min(len(containers), mostFailures)
	for i := range count {
		if err := ctx.Err(); err != nil {
			return run, err
		}
		after, err := n.Fail(containers[i*len(containers)/count]...)
		if err != nil {
			return run, err
		}
		run.After = append(run.After, after.Utilisation)
	}
	return run, nil
}

// Containers are the switches of each container.
func Containers(f *fabric.Fabric) (containers [][]int32) {
	for i, s := range f.Switches {
		for s.Container >= int32(len(containers)) {
			containers = append(containers, nil)
		}
		if s.Container >= 0 {
			containers[s.Container] = append(containers[s.Container], int32(i))
		}
	}
	return containers
}
