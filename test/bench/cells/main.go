// Command cells simulates cells and the directory above them (docs/design/cells.md), and measures what the desired state of
// one cell's manager takes. Nothing of it is built: the simulation is of a model, the state is the real code's.
package main

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
)

func main() {
	seeds := flag.Uint64("seeds", 100, "worlds to simulate, each by a seed from 0 on")
	ticks := flag.Int("ticks", 600, "time in which a world has failures")
	sizes := flag.String("state", "", "measure the state of a manager with so many VIPs: numbers, parted by commas (default: do not)")
	flag.Parse()
	if err := run(*seeds, *ticks, *sizes); err != nil {
		fmt.Fprintf(os.Stderr, "bench cells: %v\n", err)
		os.Exit(1)
	}
}

func run(seeds uint64, ticks int, sizes string) error {
	if sizes != "" {
		var all []int
		for text := range strings.SplitSeq(sizes, ",") {
			n, err := strconv.Atoi(text)
			if err != nil || n < 1 {
				return fmt.Errorf("read -state: must be numbers of VIPs, is %q", text)
			}
			all = append(all, n)
		}
		slices.Sort(all)
		return measureState(os.Stdout, all)
	}
	var sum counts
	for seed := range seeds {
		w := newWorld(seed, faults{})
		if err := w.run(ticks); err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		sum.add(w.counts)
	}
	fmt.Printf("%d worlds of %d cells, %d ticks: no VIP was served by two cells, no quota exceeded, nothing withdrawn, nothing lost\n", seeds, cells, sum.Ticks)
	fmt.Printf("%d addresses handed over, %d moves cancelled, %d VIPs admitted (%d by cells that were cut off), %d deleted, %d refused, %d messages lost\n",
		sum.Handed, sum.Cancelled, sum.Admitted, sum.CutOff, sum.Deleted, sum.Refused, sum.Lost)
	return nil
}
