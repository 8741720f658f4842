package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// result is one class's median.
type result struct {
	Class  string  `json:"class"`
	Family family  `json:"family"`
	Flows  int     `json:"flows"`
	NS     float64 `json:"ns"`
	Beside string  `json:"beside"` // the class that it is compared with
	Ratio  float64 `json:"ratio"`  // to that class's of the same family, flows and turn: the median
	// WithoutHarness is the ratio less what the harness takes of both, where that is measured.
	WithoutHarness float64 `json:"ratio_without_harness,omitempty"`
	// Filtered is the share of packets of known flows that the filter spares the look into the flow table.
	Filtered float64 `json:"filtered,omitempty"`
	Noisy    bool    `json:"noisy,omitempty"` // the core was never quiet: ns is of a busy one
}

// report is all that a run found; what it left out is empty.
type report struct {
	Packets []result   `json:"packets,omitempty"`
	Live    []liveRate `json:"live,omitempty"`
	Memory  *memory    `json:"memory,omitempty"`

	Connections *connectionRates `json:"connections,omitempty"`

	Batches *sweep `json:"batches,omitempty"` // by how many frames come at once
	Sizes   *sweep `json:"sizes,omitempty"`   // by their size
}

func printTable(w io.Writer, results []result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "class\tfamily\tflows\tns\tratio\tby the filter\t")
	noisy := false
	for _, r := range results {
		mark := ""
		if r.Noisy {
			mark, noisy = "*", true
		}
		filtered := ""
		if r.Filtered > 0 {
			filtered = fmt.Sprintf("%.1f %%", 100*r.Filtered)
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%.0f%s\t%.2f\t%s\t\n", r.Class, r.Family, r.Flows, r.NS, mark, r.Ratio, filtered)
	}
	_ = table.Flush()
	if noisy {
		fmt.Fprintln(w, "* The core was never quiet. Ratios are of bursts side by side all the same.")
	}
}

func printLive(w io.Writer, rates []liveRate) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "live frames\tflows\tMpps\tratio\t")
	for _, r := range rates {
		fmt.Fprintf(table, "%s\t%d\t%.2f\t%.2f\t\n", r.Program, r.Flows, r.Mpps, r.Ratio)
	}
	_ = table.Flush()
}

func printMemory(w io.Writer, m *memory) {
	const mebi = 1 << 20
	fmt.Fprintf(w, "%d endpoints of %d backends: tables %d MiB, heap %d MiB; one endpoint's table replaced in %s of CPU (p99 %s, mean %s)\n",
		m.Endpoints, m.Backends, m.Kernel/mebi, m.Heap/mebi, m.Replace.Median, m.Replace.P99, m.Replace.Mean)
	fmt.Fprintf(w, "%d ports of source NAT: %.1f MiB of the tables\n", m.Ports, float64(m.SNAT)/mebi)
}
