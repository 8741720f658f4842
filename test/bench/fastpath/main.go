// Command fastpath measures in a lab of its own, with the real programs, what connections between services cost
// muxes and hosts before and after they may leave the muxes (Ananta, Figure 11), and how fast they are. See
// docs/performance.md for how to read the numbers.
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
	flag.StringVar(&how.out, "out", "out/bench/fastpath.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the figures; empty: none are drawn")
	flag.DurationVar(&how.phase, "phase", 15*time.Second, "how long uploads are made without Fastpath, and how long with it")
	flag.DurationVar(&how.upload, "upload", 4*time.Second, "how long an upload takes")
	flag.DurationVar(&how.speed, "speed", 8*time.Second, "how long uploads go at full speed, each way")
	flag.Parse()
	benchlab.Main("fastpath", func(ctx context.Context) error { return run(ctx, how) })
}

// options say what to measure, and for how long.
type options struct {
	bin, out, plots      string
	phase, upload, speed time.Duration
}

// report is all that a run found.
type report struct {
	Seconds []second `json:"seconds"` // one after the other; Fastpath is on from a certain one
	Phases  []phase  `json:"phases"`
	Speeds  []speed  `json:"speeds,omitempty"`
}

func run(ctx context.Context, how options) (err error) {
	w, err := newWorld(ctx, how.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var all report
	if all.Seconds, all.Phases, err = w.measureUploads(ctx, how); err != nil {
		return fmt.Errorf("measure uploads: %w", err)
	}
	printPhases(os.Stdout, all.Phases)
	if how.speed > 0 {
		if all.Speeds, err = w.measureSpeed(ctx, how); err != nil {
			return fmt.Errorf("measure at full speed: %w", err)
		}
		printSpeeds(os.Stdout, all.Speeds)
	}
	if how.plots != "" {
		if err := plot(how.plots, all.Seconds); err != nil {
			return err
		}
	}
	return benchlab.Write(how.out, all)
}
