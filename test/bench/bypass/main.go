// Command bypass measures load-balancer bypass end to end in a lab of its own, with the real programs, as NGLB's paper
// does (section VII-B): round trips, bulk, small packets, and what a connection costs the mux. Beside it go full NAT, whose
// packets all pass the mux both ways, and the kernel's own VXLAN device, on hosts that have no program of Weir's. See docs/performance.md for how to read the numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/bypass.json", "file for the results")
	flag.IntVar(&how.pairs, "pairs", 80, "pairs of bursts of round trips")
	flag.IntVar(&how.turns, "turns", 12, "pairs of turns of bulk")
	flag.DurationVar(&how.turn, "turn", time.Second, "how long a turn of bulk takes")
	flag.IntVar(&how.connections, "connections", 2000, "connections whose packets the mux counts")
	flag.IntVar(&how.passes, "passes", 5, "how often the rate is raised up to the knee")
	flag.StringVar(&how.only, "only", "", "measure only these, with commas between: rtt, bulk, connections, knee, rate")
	flag.Parse()
	benchlab.Main("bypass", func(ctx context.Context) error { return run(ctx, how) })
}

// options say what to measure, and for how long.
type options struct {
	bin, out     string
	pairs, turns int
	turn         time.Duration
	connections  int
	passes       int
	only         string
}

// row is a figure: of a ratio, the median of those of all pairs, with its quartiles.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Low   float64 `json:"low,omitempty"`
	High  float64 `json:"high,omitempty"`
}

// report is all that a run found.
type report struct {
	Rows []row `json:"rows"`
	// Medians of each side, in the unit that the name ends in.
	Sides map[string]float64 `json:"sides"`
	Knee  []kneePoint        `json:"rtt_by_rate,omitempty"`
}

func run(ctx context.Context, how options) (err error) {
	w, err := newWorld(ctx, how)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	all := report{Sides: map[string]float64{}}
	// In this order: the first two have the mux where its packets come from, the rest on a CPU of its own.
	for _, part := range []struct {
		name    string
		measure func(context.Context, options, *report) error
	}{
		{"rtt", w.measureRTT},
		{"bulk", w.measureBulk},
		{"", func(context.Context, options, *report) error { return w.placeMux() }},
		{"connections", w.measureConnections},
		{"knee", w.measureKnee},
		{"rate", w.measureRate},
	} {
		if part.name != "" && how.only != "" && !slices.Contains(strings.Split(how.only, ","), part.name) {
			continue
		}
		if err := part.measure(ctx, how, &all); err != nil {
			return err
		}
	}
	for _, r := range all.Rows {
		fmt.Printf("%-38s %8.3f  (%.3f to %.3f)\n", r.Name, r.Value, r.Low, r.High)
	}
	for name, value := range all.Sides {
		fmt.Printf("%-38s %8.2f\n", name, value)
	}
	return benchlab.Write(how.out, all)
}
