// Command capacity measures what a software mux takes, and what packets wait for at it: latency and CPU by load (Duet, Figure 1;
// MPLB, Figure 8), and pings while a mux gets more than it takes, and a switch has its VIPs then (Figure 11). The data planes are the real ones;
// the switch is the stand-in of labs, an XDP program on the CPU that the mux had before: no ASIC.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	flag.StringVar(&how.out, "out", "out/bench/capacity.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the drawings; empty: none")
	flag.StringVar(&how.only, "only", "", "measure this alone: latency or switch")
	flag.StringVar(&how.load, "load", datagrams, "what the boxes get: datagrams or syns, which are of Multipath TCP")
	flag.IntVar(&how.rounds, "rounds", 3, "how often the load is raised")
	flag.DurationVar(&how.step, "step", time.Second, "how long each load of a mux lasts")
	flag.DurationVar(&how.phase, "phase", 6*time.Second, "how long each phase lasts, up to the switch's")
	flag.Parse()
	benchlab.Main("capacity", func(ctx context.Context) error { return run(ctx, how) })
}

type options struct {
	out, plots, only string
	load             string
	rounds           int
	step, phase      time.Duration
}

// What boxes get.
const (
	datagrams = "datagrams"
	syns      = "syns"
)

type report struct {
	// Mux and Switch are what each forwards of more than it takes, or of all that can be sent, packets a second.
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
	if how.load != datagrams && how.load != syns {
		return fmt.Errorf("there is no load of %q", how.load)
	}
	w, err := newWorld(ctx, how.load == syns)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var all report
	for b, most := range map[*box]*float64{&w.mux: &all.Mux, &w.sw: &all.Switch} {
		full := false
		if *most, full, err = w.most(ctx, b); err != nil {
			return err
		}
		if b.isFull = full; full {
			fmt.Printf("%s: forwards %.0f packets a second of more\n", b.name, *most)
		} else {
			fmt.Printf("%s: forwards all that one CPU sends, %.0f packets a second\n", b.name, *most)
		}
	}
	if how.only == "" || how.only == "latency" {
		if all.Latency, err = w.measureLatency(ctx, how, all.Mux); err != nil {
			return fmt.Errorf("measure latency by load: %w", err)
		}
		if err := all.Latency.plot(how.plots, how.load); err != nil {
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
