package main

import (
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"
)

// result is one figure. Times are in milliseconds.
type result struct {
	Name     string  `json:"name"`
	Replicas int     `json:"replicas"`
	VIPs     int     `json:"vips"`
	Muxes    int     `json:"muxes"`
	Agents   int     `json:"agents"`
	Switches int     `json:"switches,omitempty"`
	Count    int     `json:"count,omitempty"`
	P50      float64 `json:"p50,omitempty"`
	P99      float64 `json:"p99,omitempty"`
	Most     float64 `json:"max,omitempty"`
	Seconds  float64 `json:"seconds,omitempty"` // until all was done
	Shed     int     `json:"shed,omitempty"`    // port requests that were told to come back
	MiB      int     `json:"mib,omitempty"`
	Bytes    uint64  `json:"bytes,omitempty"`          // to hosts, for one
	Managers float64 `json:"managersCPU,omitempty"`    // seconds of CPU that the managers took meanwhile
	Bench    float64 `json:"benchCPU,omitempty"`       // and the bench, with all simulated nodes and callers
	PerMux   float64 `json:"cpuPerMux,omitempty"`      // microseconds of CPU that the managers took for a change and mux
	PerVIP   float64 `json:"bytesPerVIP,omitempty"`    // of the manager's heap, without garbage
	Resident float64 `json:"residentPerVIP,omitempty"` // of its resident memory: garbage and pages of the store's file too

	PageKiB  int     `json:"pageKiB,omitempty"`  // of the manager's memory, for each page that is open
	LoadedKB float64 `json:"loadedKB,omitempty"` // of the page, scripts and style, compressed

	PerPort float64   `json:"cpuPerPortRequest,omitempty"` // milliseconds of CPU that the managers took for a port request
	Grants  float64   `json:"grantsPerRequest,omitempty"`  // port requests that hosts sent to a manager, to all
	Ratios  []float64 `json:"ratios,omitempty"`            // of turns, the least first

	Stages    map[string]float64 `json:"stages,omitempty"`    // mean time of each part of a port request
	Quantiles []float64          `json:"quantiles,omitempty"` // of port requests: within which time 0 to 100 of 100 were answered
}

// summarise makes a figure of what was measured.
func summarise(name string, took []time.Duration) result {
	slices.Sort(took)
	at := func(share float64) float64 {
		return float64(took[min(int(share*float64(len(took))), len(took)-1)].Microseconds()) / 1000
	}
	return result{Name: name, Count: len(took), P50: at(0.5), P99: at(0.99), Most: at(1)}
}

// String is one line for people.
func (r result) String() string {
	if r.PerVIP > 0 {
		return fmt.Sprintf("%s: %.0f bytes in use, %.0f resident", r.Name, r.PerVIP, r.Resident)
	}
	if len(r.Ratios) > 0 {
		return fmt.Sprintf("%s: %.2f", r.Name, r.Ratios)
	}
	if r.MiB > 0 {
		return fmt.Sprintf("%s: %d MiB", r.Name, r.MiB)
	}
	s := fmt.Sprintf("%s: p50 %.1f ms, p99 %.1f ms, at most %.1f ms, of %d", r.Name, r.P50, r.P99, r.Most, r.Count)
	if r.Seconds > 0 {
		s += fmt.Sprintf("; all within %.2f s", r.Seconds)
	}
	if r.Managers > 0 {
		s += fmt.Sprintf("; CPU of the managers %.1f s, of the bench %.1f s", r.Managers, r.Bench)
	}
	if r.Bytes > 0 {
		s += fmt.Sprintf("; %d bytes to hosts for one", r.Bytes)
	}
	if r.Shed > 0 {
		s += fmt.Sprintf("; %d port requests shed", r.Shed)
	}
	return s
}

func printTable(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "what\treplicas\tVIPs\tmuxes\tagents\tp50 ms\tp99 ms\tmax ms\tall s\tMiB")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%.1f\t%.2f\t%d\n",
			r.Name, r.Replicas, r.VIPs, r.Muxes, r.Agents, r.P50, r.P99, r.Most, r.Seconds, r.MiB)
	}
	t.Flush() // the terminal is gone: nobody is left to tell
}
