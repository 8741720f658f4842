// Command snat measures source NAT in a lab of its own, with the real programs: how long workloads'
// connections take to be set up with and without ports at hand (Ananta, Figure 14), and what those who open
// few connections notice of one who opens more and more (Figure 13). See docs/performance.md for how to
// read the numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/snat.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the figures; empty: none are drawn")
	flag.StringVar(&how.only, "only", "", "measure this alone: setup or isolation")
	flag.DurationVar(&how.slow, "slow", 66*time.Second, "how long connections are opened one range after the other")
	flag.DurationVar(&how.fast, "fast", 30*time.Second, "how long they are opened as demand is predicted")
	flag.DurationVar(&how.step, "step", 8*time.Second, "how long each rate of the heavy workload lasts")
	flag.Parse()
	benchlab.Main("snat", func(ctx context.Context) error { return run(ctx, how) })
}

// options say what to measure, and for how long.
type options struct {
	bin, out, plots, only string
	slow, fast, step      time.Duration
}

// report is all that a run found.
type report struct {
	Setup     []setup     `json:"setup,omitempty"`
	Isolation []isolation `json:"isolation,omitempty"`
}

func run(ctx context.Context, how options) (err error) {
	w, err := newWorld(ctx, how.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.lab.Down()) }()
	var all report
	if how.only == "" || how.only == "setup" {
		if all.Setup, err = w.measureSetup(ctx, how); err != nil {
			return fmt.Errorf("measure the set-up of connections: %w", err)
		}
		printSetup(os.Stdout, all.Setup)
	}
	if how.only == "" || how.only == "isolation" {
		if all.Isolation, err = w.measureIsolation(ctx, how); err != nil {
			return fmt.Errorf("measure what a heavy workload does to others: %w", err)
		}
		printIsolation(os.Stdout, all.Isolation)
	}
	if how.plots != "" {
		if err := all.plot(how.plots); err != nil {
			return err
		}
	}
	return benchlab.Write(how.out, all)
}
