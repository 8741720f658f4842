package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// sample is one run of iperf3.
type sample struct {
	rate float64 // bits a second
	work float64 // bits a second of both ends' CPU time
	busy float64 // bits a second of the machine's
}

// pair is two measurements side by side; where the client's segments are smaller for the outer header, small is a third one,
// without the agent and with segments as small as with it.
type pair struct{ without, with, small sample }

func (p pair) ratio() float64 { return p.with.rate / p.without.rate }

func (p pair) String() string {
	const giga = 1e9
	return fmt.Sprintf("%.1f Gbit/s without, %.1f with: %.2f, by CPU time %.2f, by the machine's %.2f",
		p.without.rate/giga, p.with.rate/giga, p.ratio(), p.with.work/p.without.work, p.with.busy/p.without.busy)
}

// result is the medians of one path and load. In a row of GUE, what is without it goes through the agent in IP-in-IP.
type result struct {
	MTU           int           `json:"mtu"`
	Family        string        `json:"family"`
	Encapsulation encapsulation `json:"encapsulation"`
	Workload      workload      `json:"workload"`
	Flows         int           `json:"flows"`
	Sender        string        `json:"sender"`
	Without       float64       `json:"gbit_per_s_without"`
	With          float64       `json:"gbit_per_s_with"`
	Ratio         float64       `json:"ratio"`         // median of those of pairs
	Work          float64       `json:"work_ratio"`    // likewise, of bits for each second of both ends' CPU time
	Machine       float64       `json:"machine_ratio"` // likewise, of the machine's CPU time: softirqs are in it that no process is charged for
	Small         float64       `json:"small_ratio"`   // likewise, to the throughput without the agent and with segments as small

	load  load
	pairs []pair
}

func (r *result) name() string {
	return fmt.Sprintf("%d/%s/%s/%s/%d/%s", r.MTU, r.Family, r.Encapsulation, r.Workload, r.Flows, r.Sender)
}

func (r *result) summarise() {
	const giga = 1e9
	r.Without = r.median(func(p pair) float64 { return p.without.rate / giga })
	r.With = r.median(func(p pair) float64 { return p.with.rate / giga })
	r.Ratio = r.median(pair.ratio)
	r.Work = r.median(func(p pair) float64 { return p.with.work / p.without.work })
	r.Machine = r.median(func(p pair) float64 { return p.with.busy / p.without.busy })
	r.Small = r.Ratio
	if r.pairs[0].small.rate > 0 {
		r.Small = r.median(func(p pair) float64 { return p.with.rate / p.small.rate })
	}
}

func (r *result) median(of func(pair) float64) float64 {
	all := make([]float64, len(r.pairs))
	for i, p := range r.pairs {
		all[i] = of(p)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

func printTable(w io.Writer, results []result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "row\twithout (Gbit/s)\twith (Gbit/s)\tratio\tat equal MSS\tby CPU time\tby the machine's\t")
	for _, r := range results {
		fmt.Fprintf(table, "%s\t%.1f\t%.1f\t%.2f\t%.2f\t%.2f\t%.2f\t\n",
			r.name(), r.Without, r.With, r.Ratio, r.Small, r.Work, r.Machine)
	}
	_ = table.Flush()
}
