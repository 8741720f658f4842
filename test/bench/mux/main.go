// Command mux measures the mux's program against the floor with the kernel's test run: ns per
// packet for each class of packets, both families, and 1, 1 000 and 1 000 000 flows.
//
// The bursts of all classes and of the floor take turns, and only those count that ran on a
// quiet core; see docs/performance.md for how to read the numbers.
package main

import (
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	out := flag.String("out", "out/bench/mux.json", "file for the results")
	budget := flag.Duration("time", 150*time.Second, "time for all measurements together")
	flag.Parse()
	if err := run(*out, *budget); err != nil {
		fmt.Fprintf(os.Stderr, "bench mux: %v\n", err)
		os.Exit(1)
	}
}

func run(out string, budget time.Duration) error {
	core, err := pinQuietCore()
	if err != nil {
		return err
	}
	world, err := newWorld()
	if err != nil {
		return err
	}
	defer world.Close()

	families, flows := []family{v4, v6}, []int{1, 1000, 1_000_000}
	share := budget / time.Duration(len(families)*len(flows))
	var results []result
	for _, family := range families {
		for _, n := range flows {
			measured, err := world.measure(core, family, n, share)
			if err != nil {
				return fmt.Errorf("measure %s with %d flows: %w", family, n, err)
			}
			results = append(results, measured...)
		}
	}
	printTable(os.Stdout, results)
	return writeJSON(out, results)
}
