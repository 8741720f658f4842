// Command mux measures the mux's program against the floor with the kernel's test run: ns per
// packet for each class of packets, both families, and one and a million flows; then both in live
// frames over a veth, also by how many come at once and by their size; then the memory of many
// endpoints, and what it costs to replace one's table; then how many connections a second a mux
// takes, bypassed or with full NAT.
//
// The bursts of all classes and of the floor take turns, and only those count that ran on a
// quiet core; see docs/performance.md for how to read the numbers.
package main

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	out := flag.String("out", "out/bench/mux.json", "file for the results")
	budget := flag.Duration("time", 150*time.Second, "time for all measurements of packets together")
	only := flag.String("only", "", "measure this alone: packets, live, batches, sizes, memory or connections")
	plots := flag.String("plots", "", "folder for the drawings; empty: none")
	class := flag.String("class", "", "measure only these classes of packets (with commas between them), and what they are compared with")
	burst := flag.Int("burst", 50_021, "packets of a burst; odd, so that bursts begin at all flows in turn")
	cpu := flag.Int("turns", -1, "take turns with another process of this bench, on this CPU: see test/bench/compare")
	flag.Parse()
	bench := func() error { return run(*out, *plots, *only, measurement{*class, *burst, *budget}) }
	if *cpu >= 0 {
		bench = func() error { return takeTurns(*cpu) }
	}
	if err := bench(); err != nil {
		fmt.Fprintf(os.Stderr, "bench mux: %v\n", err)
		os.Exit(1)
	}
}

func run(out, plots, only string, packets measurement) error {
	var all report
	wanted := func(part string) bool { return only == "" || only == part }
	if wanted("memory") { // before the thread is bound to a core
		m, err := measureMemory()
		if err != nil {
			return fmt.Errorf("measure memory: %w", err)
		}
		all.Memory = &m
		printMemory(os.Stdout, &m)
	}
	core, err := pinQuietCore()
	if err != nil {
		return err
	}
	if err := measureWorld(core, wanted, packets, &all); err != nil {
		return err
	}
	if wanted("connections") {
		r, err := measureConnections(core)
		if err != nil {
			return fmt.Errorf("measure connections: %w", err)
		}
		all.Connections = &r
		printConnections(os.Stdout, &r)
	}
	return errors.Join(plotSweeps(plots, &all), benchlab.Write(out, all))
}

// measureWorld measures packets and live frames.
func measureWorld(core *core, wanted func(string) bool, packets measurement, all *report) (err error) {
	if !slices.ContainsFunc([]string{"packets", "live", "batches", "sizes"}, wanted) {
		return nil
	}
	world, err := newWorld(listed)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, world.Close()) }()
	if wanted("packets") {
		if all.Packets, err = measurePackets(core, world, packets); err != nil {
			return err
		}
		printTable(os.Stdout, all.Packets)
	}
	if wanted("live") {
		if all.Live, err = world.measureLive(core); err != nil {
			return err
		}
		printLive(os.Stdout, all.Live)
	}
	for _, s := range []struct {
		name  string
		lanes []lane
		to    **sweep
	}{{"batches", batchLanes(), &all.Batches}, {"sizes", sizeLanes(), &all.Sizes}} {
		if !wanted(s.name) {
			continue
		}
		if *s.to, err = world.sweep(core, s.lanes); err != nil {
			return fmt.Errorf("measure %s: %w", s.name, err)
		}
		printSweep(s.name, *s.to)
	}
	return nil
}

func measurePackets(core *core, world *world, of measurement) ([]result, error) {
	families, flows := []family{v4, v6}, []int{1, manyFlows}
	of.budget /= time.Duration(len(families) * len(flows))
	var results []result
	for i, family := range families {
		if i > 0 {
			if err := world.forget(); err != nil {
				return nil, err
			}
		}
		for _, n := range flows {
			measured, err := world.measure(core, family, n, of)
			if err != nil {
				return nil, fmt.Errorf("measure %s with %d flows: %w", family, n, err)
			}
			results = append(results, measured...)
		}
	}
	return results, nil
}
