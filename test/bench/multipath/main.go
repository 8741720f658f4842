// Command multipath measures Multipath TCP through VIPs in labs of its own, with the real programs and the kernel's own MPTCP at
// both ends, as MPLB's paper promises it (section 3): which joins reach their server, what is lost under churn, how long a download
// waits when its path is cut, and what plain TCP pays. See docs/performance.md for how to read the numbers.
package main

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/mptcplab"
)

func main() {
	var how options
	flag.StringVar(&how.bin, "bin", "bin", "folder with the programs")
	flag.StringVar(&how.out, "out", "out/bench/multipath.json", "file for the results")
	flag.IntVar(&how.connections, "connections", 1000, "connections that join from three more addresses each")
	flag.IntVar(&how.early, "early", 5000, "joins that come as early as clients make them")
	flag.IntVar(&how.churned, "churned", 100, "connections in each scenario of churn")
	flag.IntVar(&how.cuts, "cuts", 20, "downloads of which a path is cut")
	flag.IntVar(&how.pairs, "pairs", 60, "pairs of bursts of round trips of plain TCP")
	flag.IntVar(&how.turns, "turns", 6, "downloads, and uploads, of 60 MB each way")
	flag.StringVar(&how.only, "only", "", "measure only these, with commas between: joins, early, cut, churn, plain, paws")
	flag.Parse()
	benchlab.Main("multipath", func(ctx context.Context) error { return run(ctx, how) })
}

// options say what to measure, and how much of it.
type options struct {
	bin, out                    string
	connections, early          int
	churned, cuts, pairs, turns int
	only                        string
}

// row is a figure.
type row struct {
	Name  string  `json:"name"`
	Value float64 `json:"value"`
}

// report is all that a run found.
type report struct {
	Rows     []row              `json:"rows"`
	Churn    []mptcplab.Outcome `json:"churn,omitempty"`
	Cuts     []mptcp.Cut        `json:"cuts,omitempty"`
	Verdicts map[string]uint64  `json:"joins_by_verdict,omitempty"` // of all hosts
}

func (r *report) add(name string, value float64) {
	r.Rows = append(r.Rows, row{name, value})
	fmt.Printf("%-44s %10.3f\n", name, value)
}

func run(ctx context.Context, how options) error {
	to := &report{}
	for _, part := range []struct {
		name    string
		measure func(context.Context, options, *report) error
	}{
		{"joins", measureJoins}, {"early", measureEarly}, {"cut", measureCut}, {"churn", measureChurn}, {"plain", measurePlain}, {"paws", measurePAWS},
	} {
		if how.only != "" && !slices.Contains(strings.Split(how.only, ","), part.name) {
			continue
		}
		if err := part.measure(ctx, how, to); err != nil {
			return fmt.Errorf("measure %s: %w", part.name, err)
		}
	}
	return benchlab.Write(how.out, to)
}
