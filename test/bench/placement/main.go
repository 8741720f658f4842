// Command placement computes the figures of Duet's section 8 (SIGCOMM 2014) that the planner can: on the paper's
// network, with traffic that is fitted to the paper's, beside the paper's own algorithms. Nothing is measured but the
// cost of a placement. The last of a figure's values is the worst of all seeds and skews.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/fabric"
	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/traffic"
)

func main() {
	var b bench
	flag.StringVar(&b.out, "out", "out/bench/placement.json", "file for the results")
	flag.StringVar(&b.plots, "plots", "", "folder for drawings (default: none)")
	flag.StringVar(&b.only, "only", "workload", "what to compute: workload, muxes, small, failures, trace, cost or scale")
	flag.IntVar(&b.seeds, "seeds", 5, "number of seeds of the traffic")
	flag.StringVar(&b.skews, "skews", "2.5,2,3", "skews of the traffic; drawings are of the first, and of seed 1")
	flag.IntVar(&b.vips, "vips", 0, "number of VIPs (default: the paper's)")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
	err := b.run(ctx)
	stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "bench placement: %v\n", err)
		os.Exit(1)
	}
}

// bench is one run.
type bench struct {
	out, plots, only, skews string
	seeds, vips             int
	network                 *fabric.Fabric
}

func (b *bench) run(ctx context.Context) error {
	spec, err := fabric.PaperClos.Spec()
	if err != nil {
		return err
	}
	if b.network, err = fabric.New(spec); err != nil {
		return err
	}
	parts := map[string]func(context.Context) (any, error){
		"workload": b.workload, "muxes": b.muxes, "failures": b.failures, "trace": b.trace, "cost": b.cost, "scale": b.scale,
		"small": b.small,
	}
	for name, s := range sites {
		parts[name] = func(ctx context.Context) (any, error) { return s.one(ctx, b.vips) }
	}
	part, known := parts[b.only]
	if !known {
		return fmt.Errorf("-only %q is none of %s", b.only, strings.Join(slices.Sorted(maps.Keys(parts)), ", "))
	}
	report, err := part(ctx)
	if err != nil {
		return err
	}
	data, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(b.out), 0o755); err != nil {
		return err
	}
	return os.WriteFile(b.out, append(data, '\n'), 0o644)
}

// draw is one generated workload.
type draw struct {
	Seed uint64  `json:"seed"`
	Skew float64 `json:"skew"`
}

// draws are all seeds of all skews; the first is drawn.
func (b *bench) draws() (all []draw, err error) {
	for seed := range b.seeds {
		for text := range strings.SplitSeq(b.skews, ",") {
			skew, err := strconv.ParseFloat(text, 64)
			if err != nil {
				return nil, fmt.Errorf("-skews: %w", err)
			}
			all = append(all, draw{uint64(seed) + 1, skew})
		}
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("-seeds %d: at least one is needed", b.seeds)
	}
	return all, nil
}

func (d draw) String() string { return fmt.Sprintf("seed %d, skew %g", d.Seed, d.Skew) }

func namesOf(draws []draw) (names []string) {
	for _, d := range draws {
		names = append(names, d.String())
	}
	return names
}

// of is the workload of a draw with a sum of traffic.
func (b *bench) of(d draw, total traffic.Rate) traffic.Workload {
	return traffic.Workload{VIPs: b.vips, Total: total, Skew: d.Skew, Seed: d.Seed}
}

// each calls do for each of n, some at once, and tells how far it is.
func each(ctx context.Context, n int, do func(context.Context, int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(2)
	for i := range n {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			defer fmt.Fprintf(os.Stderr, "%d of %d\n", i+1, n)
			return do(ctx, i)
		})
	}
	return group.Wait()
}

// plot draws a chart, if there is a folder for it.
func (b *bench) plot(name string, c plan.Chart) error {
	if b.plots == "" {
		return nil
	}
	if err := os.MkdirAll(b.plots, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(b.plots, name), []byte(c.SVG()), 0o644)
}

// workloadReport is Figure 15.
type workloadReport struct {
	VIPs    int                  `json:"vips"`
	Points  []plan.Concentration `json:"points"`
	Shares  []share              `json:"shares"`
	Summary plan.TrafficSummary  `json:"summary"`
}

// share is the part of the traffic that the largest VIPs have, of all draws.
type share struct {
	draw
	Top1  float64 `json:"top_1"`      // largest 1 %
	Top10 float64 `json:"top_10"`     // largest 10 %
	Table float64 `json:"host_table"` // as many as a switch has routes
}

func (b *bench) workload(ctx context.Context) (any, error) {
	draws, err := b.draws()
	if err != nil {
		return nil, err
	}
	var report workloadReport
	report.Shares = make([]share, len(draws))
	return &report, each(ctx, len(draws), func(_ context.Context, i int) error {
		demands, err := b.of(draws[i], 0).Generate()
		if err != nil {
			return err
		}
		points := plan.Concentrations(demands)
		s := share{draw: draws[i], Top1: trafficOf(points, len(demands)/100), Top10: trafficOf(points, len(demands)/10)}
		s.Table = trafficOf(points, int(fabric.DefaultLimits.Hosts))
		if report.Shares[i] = s; i > 0 {
			return nil
		}
		report.VIPs, report.Points, report.Summary = len(demands), points, plan.Summarize(traffic.Interval{Demands: demands})
		return b.plot("duet-15.svg", plan.ConcentrationChart(points))
	})
}

// trafficOf is the part of the traffic that so many VIPs have, between two points.
func trafficOf(points []plan.Concentration, vips int) float64 {
	before := plan.Concentration{}
	for _, p := range points {
		if p.VIPs >= vips {
			part := float64(vips-before.VIPs) / float64(p.VIPs-before.VIPs)
			return before.Traffic + part*(p.Traffic-before.Traffic)
		}
		before = p
	}
	return 1
}
