package main

import (
	"context"
	"fmt"
	"io"
	"sync"
	"text/tabwriter"
	"time"
)

// setup is how long connections of one pattern took to be set up, in ms.
type setup struct {
	Name        string  `json:"name"`
	Connections int     `json:"connections"`
	Failed      int     `json:"failed"`
	Requests    int     `json:"requests"` // that reached the manager
	Share       float64 `json:"share"`    // of the connections
	P50         float64 `json:"p50_ms"`
	P90         float64 `json:"p90_ms"`
	P99         float64 `json:"p99_ms"`
	// Waited are those that waited for ports, as far as can be told from outside: as many of the slowest as there
	// were requests. Local are the others.
	LocalP50  float64   `json:"local_p50_ms"`
	WaitedP50 float64   `json:"waited_p50_ms"`
	All       []float64 `json:"all_ms"`
}

// measureSetup opens connections by three patterns: without source NAT, so slowly that each request gets one
// range, and so quickly that the manager foresees the demand.
func (w *world) measureSetup(ctx context.Context, how options) (all []setup, err error) {
	patterns := []struct {
		name, workload string
		rate           float64
		lasts          time.Duration
	}{
		{"no source NAT", "host2-w7", 20, how.fast / 2},
		{"one range at a time", setupWorkloads[0], 8 / 5.6, how.slow}, // 8 ports last longer than the manager remembers
		{"demand foreseen", setupWorkloads[1], 40, how.fast},
	}
	for _, p := range patterns {
		before, err := w.requests(p.workload)
		if err != nil {
			return nil, err
		}
		ns, err := w.ns(p.workload)
		if err != nil {
			return nil, err
		}
		c := newClient(ns, w.server)
		c.open(ctx, p.rate, p.lasts)
		made := c.end()
		after, err := w.requests(p.workload)
		if err != nil {
			return nil, err
		}
		all = append(all, newSetup(p.name, made, after-before))
	}
	return all, ctx.Err()
}

func newSetup(name string, made []opened, requests int) setup {
	s := setup{
		Name: name, Connections: len(made), Requests: requests, Share: float64(requests) / float64(max(len(made), 1)),
		P50: percentile(made, 50), P90: percentile(made, 90), P99: percentile(made, 99),
	}
	for _, o := range made {
		if o.failed {
			s.Failed++
		}
		s.All = append(s.All, float64(o.took.Microseconds())/1000)
	}
	local := 100 - int(100*s.Share) - 1
	s.LocalP50 = percentile(made, max(local/2, 0))
	if requests > 0 {
		s.WaitedP50 = percentile(made, 100-int(50*s.Share))
	}
	return s
}

// isolation is one step of the heavy workload's rate.
type isolation struct {
	Rate        int     `json:"heavy_rate"` // connections a second that it opens
	Normal      int     `json:"normal"`     // connections
	NormalAgain int     `json:"normal_syns_again"`
	NormalFail  int     `json:"normal_failed"`
	NormalP50   float64 `json:"normal_p50_ms"`
	NormalP99   float64 `json:"normal_p99_ms"`
	Heavy       int     `json:"heavy"`
	HeavyAgain  int     `json:"heavy_syns_again"`
	HeavyFail   int     `json:"heavy_failed"`
	HeavyP50    float64 `json:"heavy_p50_ms"`
	HeavyP99    float64 `json:"heavy_p99_ms"`
}

const normalRate = 150.0 / 60 // connections a second of each, as in the paper

// measureIsolation lets the heavy workload double its rate from step to step.
func (w *world) measureIsolation(ctx context.Context, how options) (all []isolation, err error) {
	var normal []*client
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var running sync.WaitGroup
	for _, name := range normalWorkloads() {
		ns, err := w.ns(name)
		if err != nil {
			return nil, err
		}
		c := newClient(ns, w.server)
		normal = append(normal, c)
		running.Go(func() { c.open(ctx, normalRate, time.Hour) })
	}
	ns, err := w.ns(heavy)
	if err != nil {
		return nil, err
	}
	h := newClient(ns, w.server)
	var ends []time.Duration
	rates := []int{0, 10, 20, 40, 80, 160, 320, 640}
	for _, rate := range rates {
		if rate == 0 {
			select {
			case <-ctx.Done():
			case <-time.After(how.step):
			}
		} else {
			h.open(ctx, float64(rate), how.step)
		}
		ends = append(ends, time.Since(h.began))
	}
	stop()
	running.Wait()
	var of []opened
	for _, c := range normal {
		shift := h.began.Sub(c.began)
		for _, o := range c.end() {
			o.at -= shift
			of = append(of, o)
		}
	}
	by := h.end()
	from := time.Duration(0)
	for i, rate := range rates {
		all = append(all, newIsolation(rate, between(of, from, ends[i]), between(by, from, ends[i])))
		from = ends[i]
	}
	return all, nil
}

func between(all []opened, from, to time.Duration) (some []opened) {
	for _, o := range all {
		if o.at >= from && o.at < to {
			some = append(some, o)
		}
	}
	return some
}

func newIsolation(rate int, normal, heavy []opened) isolation {
	s := isolation{
		Rate: rate, Normal: len(normal), Heavy: len(heavy),
		NormalP50: percentile(normal, 50), NormalP99: percentile(normal, 99),
		HeavyP50: percentile(heavy, 50), HeavyP99: percentile(heavy, 99),
	}
	s.NormalAgain, s.NormalFail = troubles(normal)
	s.HeavyAgain, s.HeavyFail = troubles(heavy)
	return s
}

func troubles(of []opened) (again, failed int) {
	for _, o := range of {
		again += o.again
		if o.failed {
			failed++
		}
	}
	return again, failed
}

func printSetup(to io.Writer, all []setup) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "set-up\tconnections\tfailed\trequests\tshare\tp50 ms\tp90 ms\tp99 ms\tlocal p50\twaited p50\t")
	for _, s := range all {
		fmt.Fprintf(w, "%s\t%d\t%d\t%d\t%.1f %%\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\t\n",
			s.Name, s.Connections, s.Failed, s.Requests, 100*s.Share, s.P50, s.P90, s.P99, s.LocalP50, s.WaitedP50)
	}
	_ = w.Flush()
}

func printIsolation(to io.Writer, all []isolation) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "heavy, a second\tnormal\tSYNs again\tfailed\tp50 ms\tp99 ms\theavy\tSYNs again\tfailed\tp50 ms\tp99 ms\t")
	for _, s := range all {
		fmt.Fprintf(w, "%d\t%d\t%d\t%d\t%.2f\t%.2f\t%d\t%d\t%d\t%.2f\t%.2f\t\n", s.Rate,
			s.Normal, s.NormalAgain, s.NormalFail, s.NormalP50, s.NormalP99, s.Heavy, s.HeavyAgain, s.HeavyFail, s.HeavyP50, s.HeavyP99)
	}
	_ = w.Flush()
}
