// Command scaleout measures in a lab of its own, with the real programs, what a pool of muxes forwards while one more joins every
// few seconds (MPLB, Figure 9): SYNs come to all of them by ECMP, more than they take, and connections are open meanwhile. The
// router gives each mux so many SYNs a second as a token bucket lets through, for all muxes share this machine's CPUs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/scaleout.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the drawings; empty: none")
	flag.IntVar(&how.muxes, "muxes", 8, "muxes at the end")
	flag.IntVar(&how.rate, "rate", 2000, "SYNs a second that a mux gets")
	flag.DurationVar(&how.step, "step", 10*time.Second, "from one mux's start to that of the next")
	flag.IntVar(&how.connections, "connections", 500, "connections of Multipath TCP that are open meanwhile, by two paths each")
	flag.Parse()
	benchlab.Main("scaleout", func(ctx context.Context) error { return run(ctx, how) })
}

type options struct {
	bin, out, plots          string
	muxes, rate, connections int
	step                     time.Duration
}

type report struct {
	Steps []step `json:"steps"`
	// Linear is the least of what muxes forwarded to what one did, times their number.
	Linear float64 `json:"least_to_linear"`
	// Rise is the longest time from a mux's route to its part of the rate, Join that from its start to its route.
	Rise        float64  `json:"longest_rise_s"`
	Join        float64  `json:"longest_join_s"`
	Connections int      `json:"connections"`
	Broken      int      `json:"broken"`        // of them
	Subflows    int      `json:"subflows_lost"` // of others
	Samples     []sample `json:"samples"`
}

// step is a number of muxes.
type step struct {
	Muxes     int     `json:"muxes"`
	Forwarded float64 `json:"forwarded_per_s"`
	ToLinear  float64 `json:"to_linear"`
	Join      float64 `json:"join_s"` // from the last one's start until the router has its route
	Rise      float64 `json:"rise_s"` // from there until the muxes forward nearly what they do later
}

func run(ctx context.Context, how options) (err error) {
	w, err := newWorld(ctx, how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.lab.Down()) }()
	all, err := w.measure(ctx)
	if err != nil {
		return err
	}
	return errors.Join(all.plot(how.plots), benchlab.Write(how.out, all))
}

func (r *report) plot(dir string) error {
	var forwarded, linear plan.Line
	forwarded.Name, linear.Name = "forwarded", "one mux's, times muxes"
	for _, s := range r.Samples {
		forwarded.Points = append(forwarded.Points, plan.Point{X: s.At, Y: s.Forwarded})
		linear.Points = append(linear.Points, plan.Point{X: s.At, Y: r.Steps[0].Forwarded * float64(s.Muxes)})
	}
	axis := fmt.Sprintf("s; from 1 to %d muxes", len(r.Steps))
	return benchlab.Draw(dir, "mplb-9.svg", plan.Chart{Title: "SYNs a second that muxes forward", Axis: axis, Series: []plan.Line{linear, forwarded}})
}
