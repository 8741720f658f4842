// Command timestamps measures what cookies in timestamps do to the throughput of Multipath TCP (MPLB, section 4): downloads
// through a mux, with cookies and without at the same time, over paths that delay and lose packets, of one path and of two.
// The data planes are the real ones, and so are both ends, which are the kernel's. The paths are a relay in user space between
// two TUN interfaces.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	flag.StringVar(&how.out, "out", "out/bench/timestamps.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the drawings; empty: none")
	flag.IntVar(&how.rounds, "rounds", 2, "how often everything is measured")
	flag.DurationVar(&how.lasts, "lasts", 15*time.Second, "how long downloads last, for each round trip time")
	flag.IntVar(&how.paths, "paths", 0, "measure this number of paths alone: 1 or 2")
	flag.Parse()
	benchlab.Main("timestamps", func(ctx context.Context) error { return run(ctx, how) })
}

type options struct {
	out, plots    string
	rounds, paths int
	lasts         time.Duration
}

// What a path does, to packets of both directions alike.
var (
	roundTrips = []time.Duration{time.Millisecond, 10 * time.Millisecond, 50 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond}
	losses     = []float64{0.0001, 0.001, 0.01, 0.05}
)

// bandwidth is of each path, for each way of downloading alone: so these do not take from one another.
const bandwidth = 10_000_000 // bit/s

type report struct {
	Paths []pathsResult `json:"paths"`
}

// pathsResult is of a number of paths.
type pathsResult struct {
	Count  int     `json:"count"`
	Cells  []cell  `json:"cells"`
	Least  float64 `json:"least_ratio"`
	Middle float64 `json:"median_ratio"`
}

// cell is downloads at one round trip time and loss.
type cell struct {
	RTT         float64 `json:"rtt_ms"`
	Loss        float64 `json:"loss_percent"`
	Connections int     `json:"connections"` // of each way, in a round
	With        float64 `json:"with_cookies_mbit_per_s"`
	Without     float64 `json:"without_mbit_per_s"`
	Ratio       float64 `json:"ratio"`
	Lost        float64 `json:"lost_percent"` // of what came to the relay, by loss alone
}

func run(ctx context.Context, how options) error {
	var all report
	for _, paths := range []int{1, 2} {
		if how.paths != 0 && how.paths != paths {
			continue
		}
		r, err := measurePaths(ctx, how, paths)
		if err != nil {
			return fmt.Errorf("measure %d paths: %w", paths, err)
		}
		all.Paths = append(all.Paths, *r)
	}
	return errors.Join(all.plot(how.plots), benchlab.Write(how.out, all))
}

func measurePaths(ctx context.Context, how options, paths int) (r *pathsResult, err error) {
	w, err := newWorld(paths)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	r = &pathsResult{Count: paths}
	for _, rtt := range roundTrips {
		var cells []cell
		for round := range how.rounds {
			found, err := w.download(ctx, rtt, how.lasts, round)
			if err != nil {
				return nil, fmt.Errorf("round trips of %s: %w", rtt, err)
			}
			if cells == nil {
				cells = make([]cell, len(found))
			}
			for i, c := range found {
				c.With, c.Without, c.Lost = c.With+cells[i].With, c.Without+cells[i].Without, c.Lost+cells[i].Lost
				cells[i] = c
			}
		}
		for _, c := range cells {
			rounds := float64(how.rounds)
			c.With, c.Without, c.Lost = c.With/rounds, c.Without/rounds, c.Lost/rounds
			c.Ratio = c.With / c.Without
			r.Cells = append(r.Cells, c)
			fmt.Printf("%d paths, %5.0f ms, %5.2f %% lost (%.2f): %.2f Mbit/s with cookies, %.2f without by %d connections each, ratio %.2f\n",
				paths, c.RTT, c.Loss, c.Lost, c.With, c.Without, c.Connections, c.Ratio)
		}
	}
	var ratios []float64
	for _, c := range r.Cells {
		ratios = append(ratios, c.Ratio)
	}
	slices.Sort(ratios)
	r.Least, r.Middle = ratios[0], ratios[len(ratios)/2]
	return r, w.check()
}

// connections are how many fill the bandwidth at a loss: by what one of them reaches (Mathis et al., CCR 1997), within bounds.
func connections(rtt time.Duration, loss float64, paths int) int {
	const segment, least, most = 1400, 4, 48
	one := 8 * segment * 1.22 / (rtt.Seconds() * math.Sqrt(loss))
	return min(max(least, int(math.Ceil(bandwidth/one))), most/paths)
}

func (r *report) plot(dir string) error {
	var errs []error
	for _, of := range r.Paths {
		chart := plan.Chart{Title: "throughput with cookies to without", Axis: "round trip time, ms", LogX: true}
		for i, loss := range losses {
			line := plan.Line{Name: fmt.Sprintf("%g %% lost", 100*loss)}
			for at := i; at < len(of.Cells); at += len(losses) {
				line.Points = append(line.Points, plan.Point{X: of.Cells[at].RTT, Y: of.Cells[at].Ratio})
			}
			chart.Series = append(chart.Series, line)
		}
		name := "mplb-timestamps-1.svg"
		if of.Count == 2 {
			name = "mplb-timestamps-2.svg"
		}
		errs = append(errs, benchlab.Draw(dir, name, chart))
	}
	return errors.Join(errs...)
}
