package main

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/placement"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/traffic"
)

// Capacity of a software mux of 2014, and the sums of traffic of Figure 16.
const muxRate2014 traffic.Rate = 3_600_000

var totals = []traffic.Rate{1_250_000_000, 2_500_000_000, 5_000_000_000, 10_000_000_000}

// muxReport is Figures 16, 17 and 18.
type muxReport struct {
	Counts  []count   `json:"counts"`
	Ratios  []ratio   `json:"ratios"`
	Latency []latency `json:"latency"`
}

// count is the software muxes of a scheme.
type count struct {
	draw
	Tbit  float64 `json:"tbit"`
	Least int64   `json:"least"` // that no placement gets below: host tables leave that much
	plan.MuxCount
}

// ratio compares the schemes of one draw.
type ratio struct {
	draw
	Tbit           float64 `json:"tbit"`
	AnantaToGreedy float64 `json:"ananta_to_greedy"`
	AnantaToWeir   float64 `json:"ananta_to_weir"`
	GreedyToWeir   float64 `json:"greedy_to_weir"`
	GreedyRandom   float64 `json:"greedy_to_weir_random"` // the same with the worst of ten draws of three switches
	RandomToGreedy float64 `json:"random_to_greedy"`
	ToBound        float64 `json:"weir_to_bound"` // without twins
	Coverage       float64 `json:"coverage"`      // part of the traffic that Weir has on switches
	AnantaToLeast  float64 `json:"ananta_to_least"`
	GreedyToLeast  float64 `json:"greedy_to_least"`
	WeirToLeast    float64 `json:"weir_to_least"`
}

// latency is what a profile says of 10 Tbit/s.
type latency struct {
	draw
	Profile  string  `json:"profile"`
	Muxes    int64   `json:"muxes"`
	Switches float64 `json:"switches_us"` // with switches and so many software muxes
	Same     float64 `json:"same_us"`     // so many software muxes alone
	Most     float64 `json:"most_us"`     // 15 000 alone
}

func (b *bench) muxes(ctx context.Context) (any, error) {
	draws, err := b.draws()
	if err != nil {
		return nil, err
	}
	var names []string
	for _, of := range draws {
		for _, total := range totals {
			names = append(names, fmt.Sprintf("%v, %g Tbit/s", of, tbit(total)))
		}
	}
	found, err := compute(ctx, b, "muxes", names, func(ctx context.Context, i int) ([]count, error) {
		return b.countsOf(ctx, draws[i/len(totals)], totals[i%len(totals)])
	})
	if err != nil {
		return nil, err
	}
	var report muxReport
	for _, counts := range found {
		report.Counts = append(report.Counts, counts...)
		report.Ratios = append(report.Ratios, ratioOf(counts))
	}
	for _, c := range report.Counts {
		if c.Scheme == "weir" && c.Tbit == 10 {
			report.Latency = append(report.Latency, latencies(c)...)
		}
	}
	return report, b.plotMuxes(report)
}

func tbit(total traffic.Rate) float64 { return float64(total) / 1e9 }

// countsOf counts the software muxes of all schemes.
func (b *bench) countsOf(ctx context.Context, of draw, total traffic.Rate) (counts []count, err error) {
	demands, err := b.of(of, total).Generate()
	if err != nil {
		return nil, err
	}
	least := placement.Muxes(placement.LeastSoftware(b.network, demands, placement.Twins), muxRate2014)
	for _, s := range plan.Schemes(of.Seed) {
		c, err := plan.CountMuxes(ctx, b.network, demands, s, muxRate2014)
		if err != nil {
			return nil, err
		}
		counts = append(counts, count{of, tbit(total), least, c})
	}
	return counts, nil
}

func ratioOf(counts []count) ratio {
	by := map[string]count{}
	for _, c := range counts {
		by[c.Scheme] = c
	}
	of := func(a, b int64) float64 { return float64(a) / float64(max(1, b)) }
	weir := by["weir"]
	return ratio{
		draw: weir.draw, Tbit: weir.Tbit,
		AnantaToGreedy: of(weir.Software, by["greedy"].Muxes), AnantaToWeir: of(weir.Software, weir.Muxes),
		GreedyToWeir: of(by["greedy"].Muxes, weir.Muxes), GreedyRandom: of(by["greedy"].Random, weir.Random),
		RandomToGreedy: of(by["random"].Muxes, by["greedy"].Muxes),
		ToBound:        of(by["anycast"].Muxes, by["anycast"].Bound), Coverage: float64(weir.Hardware) / float64(weir.Rate),
		AnantaToLeast: of(weir.Software, weir.Least), GreedyToLeast: of(by["greedy"].Muxes, weir.Least),
		WeirToLeast: of(weir.Muxes, weir.Least),
	}
}

// muxSweep is the software muxes of Figure 17.
var muxSweep = []int{100, 200, 500, 1000, 2000, 3000, 5000, 7000, 10_000, 15_000}

// figure17 is the figure of a profile, for traffic of which Weir leaves a part to software muxes.
func figure17(p plan.LatencyProfile, c count, sweep []int) plan.LatencyFigure {
	return p.Figure17(c.Rate, c.Rate-c.Hardware, int(c.Muxes), sweep)
}

// profiles are all profiles of latency, by the names that they have.
var profiles = map[string]plan.LatencyProfile{"paper2014": plan.Paper2014(), "measured": plan.Measured()}

func latencies(c count) (all []latency) {
	micros := func(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
	for name, p := range profiles {
		f := figure17(p, c, []int{int(c.Muxes), 15_000})
		all = append(all, latency{
			draw: c.draw, Profile: name, Muxes: c.Muxes, Switches: micros(f.Switches.Median),
			Same: micros(f.Software[0].Median), Most: micros(f.Software[1].Median),
		})
	}
	return all
}

func (b *bench) plotMuxes(report muxReport) error {
	first := report.Counts[:len(totals)*len(plan.Schemes(0))]
	var counts []plan.MuxCount
	for _, c := range first {
		counts = append(counts, c.MuxCount)
	}
	if err := b.plot("duet-16.svg", plan.MuxChart(counts, "greedy", "anycast", "weir")); err != nil {
		return err
	}
	if err := b.plot("duet-18.svg", plan.MuxChart(counts, "greedy", "random")); err != nil {
		return err
	}
	var figures []plan.LatencyFigure
	for _, p := range plan.LatencyProfiles() {
		figures = append(figures, figure17(p, first[len(first)-1], muxSweep))
	}
	return b.plot("duet-17.svg", plan.LatencyChart(figures))
}
