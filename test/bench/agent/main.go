// Command agent measures what the agent costs a host: iperf3 between namespaces over veth, through
// the agent with cookies on, and on the same path without it, in turns; and the ratio of both.
// See docs/performance.md for how to read the numbers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	out := flag.String("out", "out/bench/agent.json", "file for the results")
	var how options
	flag.IntVar(&how.rounds, "rounds", 21, "times that each measurement is taken")
	flag.IntVar(&how.megabytes, "megabytes", 768, "what one measurement sends")
	flag.IntVar(&how.mtu, "mtu", 1600, "of the network between mux and host; with 1600 it has room for the outer header")
	flag.StringVar(&how.congestion, "congestion", "cubic", "the senders' congestion control; empty: the system's")
	flag.Var(&how.only, "only", "measure only this workload, flows and sender, as native/8/client; repeatable")
	flag.BoolVar(&how.pairs, "pairs", false, "print every pair")
	switches := flag.Bool("switches", false, "measure what packets from switches cost, to packets from muxes, by the programs alone")
	cpu := flag.Int("turns", -1, "take turns with another process of this bench, on this CPU: see test/bench/compare")
	flag.Parse()
	bench := func() error { return run(*out, how) }
	switch {
	case *cpu >= 0:
		bench = func() error { return takeTurns(*cpu) }
	case *switches:
		bench = func() error { return compareSwitches(*out, how.rounds) }
	}
	if err := bench(); err != nil {
		fmt.Fprintf(os.Stderr, "bench agent: %v\n", err)
		os.Exit(1)
	}
}

// options say how to measure.
type options struct {
	rounds, megabytes int
	mtu               int
	congestion        string
	only              rows
	pairs             bool
}

// rows are the names of those to measure; none: all.
type rows []string

func (r *rows) String() string { return strings.Join(*r, ",") }

func (r *rows) Set(value string) error {
	*r = append(*r, strings.Split(value, ",")...)
	return nil
}

// load is what iperf3 is asked to send.
type load struct {
	flows   int
	replies bool // from the workload to the client
}

func loads() []load { return []load{{1, false}, {1, true}, {8, false}, {8, true}} }

func (l load) sender() string {
	if l.replies {
		return "workload"
	}
	return "client"
}

// choose makes a result, yet empty, of each row to measure.
func choose(only rows) (results []result) {
	for _, kind := range []workload{native, container} {
		for _, l := range loads() {
			r := result{Workload: kind, Flows: l.flows, Sender: l.sender()}
			if len(only) == 0 || slices.Contains(only, r.name()) {
				results = append(results, r)
			}
		}
	}
	return results
}

func run(out string, how options) (err error) {
	results := choose(how.only)
	w, err := newWorld(how.mtu)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.close()) }()
	for round := range how.rounds {
		for i := range results {
			r := &results[i]
			pair, err := w.measure(r.Workload, load{r.Flows, r.Sender == "workload"}, round, how)
			if err != nil {
				return fmt.Errorf("measure %s: %w", r.name(), err)
			}
			r.pairs = append(r.pairs, pair)
			if how.pairs {
				fmt.Println(r.name(), pair)
			}
		}
	}
	for i := range results {
		results[i].summarise()
	}
	printTable(os.Stdout, results)
	return benchlab.Write(out, results)
}
