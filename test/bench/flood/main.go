// Command flood measures in a lab of its own, with the real programs, what a flood of one tenant's VIP costs its own
// clients and those of the others (Ananta, Figure 12), how soon the muxes know of it, and what it leaves of the muxes'
// sessions, memory and CPU. See docs/performance.md for how to read the numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var how options
	var loads string
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/flood.json", "file for the results")
	flag.StringVar(&how.plots, "plots", "", "folder for the figures; empty: none are drawn")
	flag.StringVar(&how.only, "only", "", "measure this alone: figure, kinds, overload or long")
	flag.StringVar(&how.modes, "modes", "", "of the figure, these alone, with commas between: "+strings.Join(modeNames(), ", "))
	flag.IntVar(&how.trials, "trials", 10, "floods of each mode at each base load")
	flag.DurationVar(&how.lasts, "lasts", 3*time.Second, "how long a flood of a trial lasts")
	flag.IntVar(&how.rate, "rate", 20_000, "packets a second of a trial's flood")
	flag.StringVar(&loads, "loads", "100,400,1200", "connections a second of all clients: base loads none, moderate and heavy")
	flag.DurationVar(&how.long, "long", 5*time.Minute, "how long the flood at full speed lasts")
	flag.DurationVar(&how.overload, "overload", 20*time.Second, "how long an overloaded mux is looked at")
	flag.IntVar(&how.delay, "delay", 0, "slow the overload down: how often its generator reads the clock for each packet")
	flag.Parse()
	benchlab.Main("flood", func(ctx context.Context) (err error) {
		if how.loads, err = parseLoads(loads); err != nil {
			return err
		}
		return run(ctx, how)
	})
}

// options say what to measure, and for how long.
type options struct {
	bin, out, plots, only, modes string
	trials, rate                 int
	lasts, long, overload        time.Duration
	delay                        int
	loads                        []baseLoad
}

// baseLoad is what real clients do all the time.
type baseLoad struct {
	Name string
	Rate int // connections a second, to all VIPs together
}

func parseLoads(text string) (loads []baseLoad, err error) {
	names := []string{"none", "moderate", "heavy"}
	rates := strings.Split(text, ",")
	if len(rates) != len(names) {
		return nil, fmt.Errorf("read -loads %q: %d rates are needed, with commas between", text, len(names))
	}
	for i, name := range names {
		rate, err := strconv.Atoi(rates[i])
		if err != nil || rate < len(vips()) {
			return nil, fmt.Errorf("read -loads %q: %q is not a rate of at least 1 a second for each of %d VIPs", text, rates[i], len(vips()))
		}
		loads = append(loads, baseLoad{Name: name, Rate: rate})
	}
	return loads, nil
}

// report is all that a run found.
type report struct {
	Figure []series `json:"figure,omitempty"`
	Kinds  []series `json:"kinds,omitempty"`
	Long   *long    `json:"long,omitempty"`

	Overload *overload `json:"overload,omitempty"`
}

func run(ctx context.Context, how options) (err error) {
	w, err := newWorld(ctx, how.bin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	var all report
	if how.only == "" || how.only == "figure" {
		if all.Figure, err = w.measureFigure(ctx, how); err != nil {
			return fmt.Errorf("measure floods of SYNs: %w", err)
		}
		printAll(os.Stdout, "floods of SYNs", all.Figure)
	}
	if how.only == "" || how.only == "kinds" {
		if all.Kinds, err = w.measureKinds(ctx, how); err != nil {
			return fmt.Errorf("measure floods of other packets: %w", err)
		}
		printAll(os.Stdout, "other floods", all.Kinds)
	}
	if how.only == "" || how.only == "long" {
		if all.Long, err = w.measureLong(ctx, how); err != nil {
			return fmt.Errorf("measure a long flood: %w", err)
		}
		all.Long.print(os.Stdout)
	}
	if how.only == "" || how.only == "overload" { // the last: the mux's interface stays as this makes it
		if all.Overload, err = w.measureOverload(ctx, how); err != nil {
			return fmt.Errorf("measure an overload: %w", err)
		}
		all.Overload.print(os.Stdout)
	}
	if how.plots != "" {
		if err := all.plot(how.plots); err != nil {
			return err
		}
	}
	return benchlab.Write(how.out, all)
}
