// Command agent measures what the agent costs a host: iperf3 between namespaces over veth, through
// the agent with cookies on, and on the same path without it, in turns; and the ratio of both.
// See docs/performance.md for how to read the numbers.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	out := flag.String("out", "out/bench/agent.json", "file for the results")
	rounds := flag.Int("rounds", 9, "times that each measurement is taken")
	each := flag.Duration("time", time.Second, "duration of one measurement, in whole seconds")
	flag.Parse()
	if err := run(*out, *rounds, *each); err != nil {
		fmt.Fprintf(os.Stderr, "bench agent: %v\n", err)
		os.Exit(1)
	}
}

// load is what iperf3 is asked to send.
type load struct {
	flows   int
	replies bool // from the workload to the client
}

func loads() []load { return []load{{1, false}, {1, true}, {8, false}, {8, true}} }

func run(out string, rounds int, each time.Duration) (err error) {
	w, err := newWorld()
	if err != nil {
		return err
	}
	defer w.close()
	var results []result
	for _, kind := range []workload{native, container} {
		measured := make([]result, len(loads()))
		for range rounds {
			for i, l := range loads() {
				pair, err := w.measure(kind, l, each)
				if err != nil {
					return fmt.Errorf("measure %s with %d flows: %w", kind, l.flows, err)
				}
				measured[i].pairs = append(measured[i].pairs, pair)
			}
		}
		for i, l := range loads() {
			results = append(results, measured[i].summarise(kind, l))
		}
	}
	printTable(os.Stdout, results)
	return writeJSON(out, results)
}
