// Command clos measures in a lab of its own, a fabric of ten switches with the real programs, what connections and pings notice
// of VIPs that move and of switches that fail (Duet, sections 5.1, 7.2 and 7.3). A switch is an XDP program, and all of the
// fabric shares this machine's CPUs.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
)

// options say how much to measure.
type options struct {
	bin, out, only  string
	streams, rounds int
	interval        time.Duration
	seed            uint64
	failures, vips  int
	removals        int
}

// world is a lab, with what was measured in it.
type world struct {
	*fabriclab.World
	how options
	report
}

type report struct {
	Rows []row    `json:"rows"`
	Log  []string `json:"log"`
}

type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

func (r *report) add(name string, value float64) { r.Rows = append(r.Rows, row{name, value}) }

func main() {
	var how options
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/clos.json", "file for the results")
	flag.StringVar(&how.only, "only", "", "measure only these, with commas between: "+strings.Join(names(), ", "))
	flag.IntVar(&how.streams, "streams", 1700, "streams of each of three classes")
	flag.DurationVar(&how.interval, "interval", 2*time.Second, "from block to block of a stream")
	flag.IntVar(&how.rounds, "rounds", 2, "how often each fault happens under the streams")
	flag.Uint64Var(&how.seed, "seed", 1, "draws the faults")
	flag.IntVar(&how.failures, "failures", 20, "how often a switch fails under pings")
	flag.IntVar(&how.vips, "vips", 100, "VIPs that move under pings")
	flag.IntVar(&how.removals, "removals", 5, "how often an entry is removed by hand")
	flag.Parse()
	benchlab.Main("clos", func(ctx context.Context) error { return run(ctx, how) })
}

// part is something to measure, in a lab with so many VIPs.
type part struct {
	name    string
	vips    func(options) int
	measure func(*world, context.Context) error
}

func one(options) int { return 1 }

var parts = []part{
	{"churn", one, (*world).measureChurn},
	{"control", one, (*world).measureControl},
	{"hops", one, (*world).measureHops},
	{"stale", one, (*world).measureStale},
	{"failover", func(options) int { return 4 }, (*world).measureFailover},
	{"migration", func(how options) int { return how.vips }, (*world).measureMigration},
}

func names() (all []string) {
	for _, p := range parts {
		all = append(all, p.name)
	}
	return all
}

func run(ctx context.Context, how options) error {
	var all report
	for _, p := range parts {
		if how.only != "" && !slices.Contains(strings.Split(how.only, ","), p.name) {
			continue
		}
		w := world{how: how}
		if err := w.inLab(ctx, p); err != nil {
			return fmt.Errorf("measure %s: %w", p.name, err)
		}
		all.Rows, all.Log = append(all.Rows, w.Rows...), append(all.Log, w.Log...)
	}
	for _, r := range all.Rows {
		fmt.Printf("%-36s %12.4g\n", r.Name, r.Value)
	}
	return benchlab.Write(how.out, all)
}

// inLab measures a part in a lab of its own.
func (w *world) inLab(ctx context.Context, p part) (err error) {
	lab, err := benchlab.Up(ctx, w.how.bin, netlab.Config{Plan: fabriclab.Plan("bclos", "2x2x2x2", 3)})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	if w.World, err = fabriclab.New(ctx, lab, p.vips(w.how)); err != nil {
		return err
	}
	return p.measure(w, ctx)
}

func (w *world) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	w.Log = append(w.Log, line)
	fmt.Println(line)
}
