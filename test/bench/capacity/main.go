// Command capacity measures what a software mux takes, and what packets wait for at it: latency and CPU by load (Duet, Figure 1),
// and pings while a mux gets more than it takes, and a switch has its VIPs then (Figure 11). The data planes are the real ones;
// the switch is the stand-in of labs, an XDP program on the CPU that the mux had before: no ASIC.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	flag.StringVar(&how.out, "out", "out/bench/capacity.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the drawings; empty: none")
	flag.StringVar(&how.only, "only", "", "measure this alone: latency or switch")
	flag.IntVar(&how.rounds, "rounds", 3, "how often the load is raised")
	flag.DurationVar(&how.step, "step", time.Second, "how long each load of a mux lasts")
	flag.DurationVar(&how.phase, "phase", 6*time.Second, "how long each phase lasts, up to the switch's")
	flag.Parse()
	benchlab.Main("capacity", func(ctx context.Context) error { return run(ctx, how) })
}

type options struct {
	out, plots, only string
	rounds           int
	step, phase      time.Duration
}

type report struct {
	// Mux and Switch are what each forwards of more than it takes, packets a second.
	Mux     float64  `json:"mux_per_s"`
	Switch  float64  `json:"switch_per_s"`
	Latency *latency `json:"latency,omitempty"`
	Phases  []phase  `json:"phases,omitempty"`
	Pings   []ping   `json:"pings,omitempty"`
}

func run(ctx context.Context, how options) (err error) {
	if runtime.NumCPU() < 2 {
		return errors.New("needs two CPUs: one is the mux's or the switch's, and one has all the rest")
	}
	// No thread of these waits for what the others, which do not go first, hold of the runtime.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(8))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	w, err := newWorld(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var all report
	for b, most := range map[*box]*float64{&w.mux: &all.Mux, &w.sw: &all.Switch} {
		if *most, err = w.most(ctx, b); err != nil {
			return err
		}
		fmt.Printf("%s: forwards %.0f packets a second of more\n", b.name, *most)
	}
	if how.only == "" || how.only == "latency" {
		if all.Latency, err = w.measureLatency(ctx, how, all.Mux); err != nil {
			return fmt.Errorf("measure latency by load: %w", err)
		}
		if err := all.Latency.plot(how.plots); err != nil {
			return err
		}
	}
	if how.only == "" || how.only == "switch" {
		if all.Phases, all.Pings, err = w.measureSwitch(ctx, how, all.Mux); err != nil {
			return fmt.Errorf("measure a mux and a switch: %w", err)
		}
		if err := plotPhases(how.plots, all.Pings, all.Phases); err != nil {
			return err
		}
	}
	return benchlab.Write(how.out, all)
}

// draw writes a drawing.
func draw(dir, name string, c plan.Chart) error {
	if dir == "" {
		return nil
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("draw figures: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, name), []byte(c.SVG()), 0o644)
}
