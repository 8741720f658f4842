// Command failures measures in a lab of its own, with the real programs, what connections of virtual networks go through
// when a host's agent is gone with all that it has in the kernel, when a client moves to another host, and when idle ones
// are ended among active ones (NGLB, sections VI and VIII-B); and whether forged packets are taken.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// options say how much to measure.
type options struct {
	bin, out                       string
	fallback, migrate, active      int // connections
	idle, forgeries                int
	fallbackEvery, moveEvery, busy int // milliseconds between the messages of one
}

// row is a figure and its bound.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
	Most  float64 `json:"most"`
}

type report struct {
	Rows []row `json:"rows"`
	// What belongs to the figures: the longest answer while nothing fails, in ms; how long the move took.
	Notes map[string]float64 `json:"notes"`
}

func main() {
	var how options
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/failures.json", "file for the results")
	flag.IntVar(&how.fallback, "fallback", 500, "connections while the agent is gone")
	flag.IntVar(&how.migrate, "migrate", 100, "connections of a client that moves")
	flag.IntVar(&how.idle, "idle", 100_000, "sessions that are idle")
	flag.IntVar(&how.active, "active", 200, "connections among them that are not")
	flag.IntVar(&how.forgeries, "forgeries", 1_000_000, "forged packets of each kind")
	flag.Parse()
	how.fallbackEvery, how.moveEvery, how.busy = 200, 50, 1000
	benchlab.Main("failures", func(ctx context.Context) error { return run(ctx, how) })
}

func run(ctx context.Context, how options) (err error) {
	w, err := newWorld(ctx, how.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	all := report{Notes: map[string]float64{}}
	for _, part := range []struct {
		name    string
		measure func(context.Context, options, *report) error
	}{{"fallback", w.measureFallback}, {"forged packets", w.measureForged}, {"cleaner", w.measureCleaner}, {"migration", w.measureMigration}} {
		if err := part.measure(ctx, how, &all); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	for _, r := range all.Rows {
		fmt.Printf("%-28s %10.3f  at most %g\n", r.Name, r.Value, r.Most)
	}
	for name, value := range all.Notes {
		fmt.Printf("%-28s %10.3f\n", name, value)
	}
	return benchlab.Write(how.out, all)
}

func (r *report) add(name string, value, most float64) {
	r.Rows = append(r.Rows, row{name, value, most})
}
