package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"text/tabwriter"
)

// bound is how much slower a path may become.
const bound = 1.02

// result compares one class, or all of a program together.
type result struct {
	Program string    `json:"program"`
	Class   string    `json:"class"`
	Base    float64   `json:"base_ns,omitempty"` // a packet, median; 0 of all together
	New     float64   `json:"new_ns,omitempty"`
	Ratio   float64   `json:"ratio"` // new to base: mean of rounds
	Noise   float64   `json:"noise"` // with 95 % confidence the ratio is within so much of the true one
	Same    []float64 `json:"same"`  // ratios of two processes of the same version, two of each round
	Verdict string    `json:"verdict"`
}

// report is all that a run found.
type report struct {
	Base    string   `json:"base"`
	Rounds  int      `json:"rounds"`
	Turns   int      `json:"turns"`
	Results []result `json:"results"`
}

// comparison is of one round: logarithms of ratios.
type comparison struct {
	versions float64    // new to base
	same     [2]float64 // base to base, new to new
}

// compare takes turn by turn, so that what slows the machine for longer than one does not count.
func (s *samples) compare() comparison {
	ratio := func(a, b int) float64 {
		var all []float64
		for turn := range s[a] {
			all = append(all, math.Log(s[a][turn]/s[b][turn]))
		}
		return median(all)
	}
	return comparison{
		versions: (ratio(2, 0) + ratio(2, 1) + ratio(3, 0) + ratio(3, 1)) / 4,
		same:     [2]float64{ratio(1, 0), ratio(3, 2)},
	}
}

// summarise compares each class, and all of them by the means of their logarithms.
func summarise(bench string, rounds []round) (results []result) {
	together := make([]comparison, len(rounds))
	names := rounds[0].names
	for _, name := range names {
		var each []comparison
		var base, now []float64
		for i, r := range rounds {
			s := r.samples[name]
			base, now = append(base, slices.Concat(s[0], s[1])...), append(now, slices.Concat(s[2], s[3])...)
			c := s.compare()
			each = append(each, c)
			together[i].versions += c.versions / float64(len(names))
			for k := range c.same {
				together[i].same[k] += c.same[k] / float64(len(names))
			}
		}
		r := conclude(each)
		r.Program, r.Class, r.Base, r.New = bench, name, median(base), median(now)
		results = append(results, r)
	}
	r := conclude(together)
	r.Program, r.Class = bench, "all"
	return append(results, r)
}

// conclude takes the mean of rounds. With v the variance of a process, a difference of two has 2v: what they measure of one
// version tells v. The mean of n rounds of two against two has v/n.
func conclude(rounds []comparison) (r result) {
	var sum, squares float64
	for _, c := range rounds {
		sum += c.versions
		for _, same := range c.same {
			squares += same * same
			r.Same = append(r.Same, math.Exp(same))
		}
	}
	n := float64(len(rounds))
	variance := squares / (2 * n) / 2
	r.Ratio = math.Exp(sum / n)
	r.Noise = studentT(2*len(rounds)) * math.Sqrt(variance/n)
	switch {
	case r.Ratio-r.Noise > bound:
		r.Verdict = "slower"
	case r.Ratio+r.Noise <= bound:
		r.Verdict = "within 2 %"
	default:
		r.Verdict = "cannot tell"
	}
	return r
}

// studentT is the two-sided 95 % quantile of Student's distribution: an approximation within 1 %, from two degrees on.
func studentT(degrees int) float64 {
	d := float64(degrees)
	return 1.96 + 2.372/d + 2.82/(d*d) + 2.56/(d*d*d) + 1.6/(d*d*d*d)
}

func median(values []float64) float64 {
	values = slices.Sorted(slices.Values(values))
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func printTable(w io.Writer, results []result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "class\tbase (ns)\tnew (ns)\tratio\tnoise\tsame version\t\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s %s\t%.1f\t%.1f\t%.3f\t± %.3f\t%.3f to %.3f\t%s\t\n",
			r.Program, r.Class, r.Base, r.New, r.Ratio, r.Noise, slices.Min(r.Same), slices.Max(r.Same), r.Verdict)
	}
	_ = table.Flush()
}
