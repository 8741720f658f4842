package main

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
)

// table is one that is printed.
type table struct{ to *tabwriter.Writer }

func newTable(to io.Writer, columns ...string) table {
	t := table{tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)}
	t.row("%s", strings.Join(columns, "\t"))
	return t
}

func (t table) row(format string, values ...any) { fmt.Fprintf(t.to, format+"\t\n", values...) }

func (t table) end() { _ = t.to.Flush() }

// percentile of values; 0: there are none.
func percentile(values []float64, percent int) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[max(0, (len(sorted)*percent+99)/100-1)]
}

// detections are those of all trials, in ms.
func (s *series) detections() (all []float64) {
	for _, t := range s.Trials {
		all = append(all, t.Detect...)
	}
	return all
}

// gone is when VIPs had no route any more, of all trials, in ms.
func (s *series) gone() (all []float64) {
	for _, t := range s.Trials {
		all = append(all, t.Gone...)
	}
	return all
}

// printAll tells of series, one row each.
func printAll(to io.Writer, name string, all []series) {
	t := newTable(to, name, "base load", "a second", "trials", "flood, a second", "machine, %", "others: connections", "lost", "sent again",
		"victim's own", "lost", "lost after 1 s", "sent again", "detected in, ms: median", "99 %", "most", "route gone, ms: most", "sessions changed")
	for _, s := range all {
		others, own, late := s.all()
		rate, found := 0.0, s.detections()
		for _, trial := range s.Trials {
			rate += trial.Rate / float64(len(s.Trials))
		}
		t.row("%s %s\t%s\t%d\t%d\t%.0f\t%.0f\t%d\t%d\t%d\t%d\t%d\t%.2f %%\t%d\t%.0f\t%.0f\t%.0f\t%.0f\t%d", s.Mode, s.Kind, s.Load, s.Rate, len(s.Trials), rate, s.Machine,
			others.Connections, others.Failed, others.Again, own.Connections, own.Failed, late.lost(), own.Again,
			percentile(found, 50), percentile(found, 99), percentile(found, 100), percentile(s.gone(), 100), s.disturbed())
	}
	t.end()
}

// disturbed is how many sessions of the muxes began or ended.
func (s *series) disturbed() int {
	return s.Sessions.BGPEstablished + s.Sessions.BGPDropped + s.Sessions.BFDDown + s.Sessions.Streams
}

// print tells of one as soon as it is there: a run takes minutes.
func (s *series) print() {
	others, own, late := s.all()
	fmt.Fprintf(os.Stderr, "%s, %s, base load %s: others lost %d of %d, the victim's own %d of %d, %.2f %% after a second; detected %.0f ms\n",
		s.Mode, s.Kind, s.Load, others.Failed, others.Connections, own.Failed, own.Connections, late.lost(), s.detections())
}
