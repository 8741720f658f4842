// Command compare tells whether the packet paths of this tree's mux and agent are slower than those of another commit. Two
// processes of each version have their programs loaded and warm, and measure in turns of about a millisecond, in a new
// order each time. How much the two of one version differ says what a difference between the versions means.
// See docs/performance.md for how to read the numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// options say what to compare, and how.
type options struct {
	base    string
	overlay bool
	rounds  int
	turns   int
	only    string
	class   *regexp.Regexp
}

// benches are those in test/bench that take turns.
func (o options) benches() []string {
	if o.only != "" {
		return []string{o.only}
	}
	return []string{"mux", "agent"}
}

func main() {
	out := flag.String("out", "out/bench/compare.json", "file for the results")
	var how options
	flag.StringVar(&how.base, "base", "", "commit to compare this tree with")
	flag.BoolVar(&how.overlay, "overlay", false, "measure the base's programs by this tree's benches: for a base whose own take no turns")
	flag.IntVar(&how.rounds, "rounds", 6, "times that the processes are started anew: where the kernel puts maps and code changes with each")
	flag.IntVar(&how.turns, "each", 60, "turns of each process for each class in a round")
	flag.StringVar(&how.only, "only", "", "compare this program alone: mux or agent")
	class := flag.String("class", "", "compare only classes whose name matches this regular expression")
	flag.Parse()
	benchlab.Main("compare", func(ctx context.Context) (err error) {
		if how.class, err = regexp.Compile(*class); err != nil {
			return err
		}
		return run(ctx, *out, how)
	})
}

func run(ctx context.Context, out string, how options) (err error) {
	if how.base == "" {
		return errors.New("say what to compare with: -base <commit> (BASE=<commit> to make)")
	}
	dir, err := os.MkdirTemp("", "weir-compare-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	if err := build(ctx, dir, how); err != nil {
		return err
	}
	all := report{Base: how.base, Rounds: how.rounds, Turns: how.turns}
	for _, bench := range how.benches() {
		if err := compare(ctx, dir, bench, out, how, &all); err != nil {
			return fmt.Errorf("compare %s: %w", bench, err)
		}
	}
	return nil
}

// compare adds the results of a bench to all; prints and writes them after each round.
func compare(ctx context.Context, dir, bench, out string, how options, all *report) error {
	before := slices.Clip(all.Results)
	var rounds []round
	for n := range how.rounds {
		r, err := measure(ctx, dir, bench, n%runtime.NumCPU(), how)
		if err != nil {
			return err
		}
		rounds = append(rounds, r)
		results := summarise(bench, rounds)
		fmt.Printf("%s, round %d of %d\n", bench, n+1, how.rounds)
		printTable(os.Stdout, results)
		all.Results = slices.Concat(before, results)
		if err := benchlab.Write(out, all); err != nil {
			return err
		}
	}
	return nil
}
