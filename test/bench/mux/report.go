package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
)

// result is one class's median.
type result struct {
	Class  string  `json:"class"`
	Family family  `json:"family"`
	Flows  int     `json:"flows"`
	NS     float64 `json:"ns"`
	Ratio  float64 `json:"ratio"` // to the floor's of the same family, flows and run
	noisy  bool    // the core was never quiet: see class.measureNoisy
}

func printTable(w io.Writer, results []result) {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "class\tfamily\tflows\tns\tratio\t")
	noisy := false
	for _, r := range results {
		mark := ""
		if r.noisy {
			mark, noisy = "*", true
		}
		fmt.Fprintf(table, "%s\t%s\t%d\t%.0f\t%.2f%s\t\n", r.Class, r.Family, r.Flows, r.NS, r.Ratio, mark)
	}
	_ = table.Flush()
	if noisy {
		fmt.Fprintln(w, "* The core was never quiet: the ratio is that of bursts side by side, and rough. Run again, or give more -time.")
	}
}

func writeJSON(path string, results []result) error {
	data, err := json.MarshalIndent(results, "", "  ")
	if err != nil {
		return fmt.Errorf("encode results: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(path, append(data, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
