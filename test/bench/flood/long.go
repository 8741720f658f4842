package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// long is one flood of SYNs at the generator's full speed.
type long struct {
	Rate     float64         `json:"packets_per_s"`
	Samples  []sample        `json:"samples"` // every second, and more often behind the flood
	Trial    trial           `json:"clients"` // base load none
	Sessions netlab.Sessions `json:"sessions_changed"`
}

// sample is what the muxes took about a time.
type sample struct {
	At       float64 `json:"at_s"` // since the flood began
	Phase    string  `json:"phase"`
	Programs float64 `json:"programs_cpu"` // % of a CPU, of both muxes
	Daemons  float64 `json:"daemons_cpu"`
	SoftIRQ  float64 `json:"softirq_cpu"` // % of all CPUs
	Machine  float64 `json:"machine_cpu"`
	Resident float64 `json:"resident_mib"` // of both muxes' daemons
	Tables   float64 `json:"tables_mib"`
}

// Phases of a long flood.
const (
	before = "before"
	during = "during"
	behind = "behind"

	calm  = 5 * time.Second        // how long is looked before and behind
	often = 250 * time.Millisecond // from look to look behind: it is to be over within a second
)

// looked is what was read at a time.
type looked struct {
	at      time.Time
	muxes   benchlab.Used
	machine benchlab.Machine
}

func (w *world) look() (l looked, err error) {
	l.at = time.Now()
	if l.machine, err = benchlab.MachineUsed(); err != nil {
		return l, err
	}
	for _, n := range w.lab.Of(netlab.Mux) {
		used, err := benchlab.UsedBy(w.lab, n.Name, "weir-mux")
		if err != nil {
			return l, err
		}
		l.muxes.Programs += used.Programs
		l.muxes.Daemon += used.Daemon
		l.muxes.Resident += used.Resident
		l.muxes.Tables += used.Tables
	}
	return l, nil
}

// watch looks until done is closed, or for so long.
func (w *world) watch(ctx context.Context, phase string, every, lasts time.Duration, done <-chan struct{}) (all []taken, err error) {
	last, err := w.look()
	if err != nil {
		return nil, err
	}
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	end := time.After(lasts)
	for {
		select {
		case <-ctx.Done():
			return all, nil
		case <-done:
			return all, nil
		case <-end:
			return all, nil
		case <-ticker.C:
		}
		now, err := w.look()
		if err != nil {
			return nil, err
		}
		all = append(all, taken{now.at, between(phase, last, now)})
		last = now
	}
}

// taken is a sample whose time since the flood began is not known yet.
type taken struct {
	at time.Time
	sample
}

func between(phase string, a, b looked) sample {
	const mib = 1 << 20
	took := b.at.Sub(a.at).Seconds()
	machine := func(d time.Duration) float64 {
		return 100 * d.Seconds() / max((b.machine.All-a.machine.All).Seconds(), 1e-9)
	}
	return sample{
		Phase:    phase,
		Programs: 100 * (b.muxes.Programs - a.muxes.Programs).Seconds() / took,
		Daemons:  100 * (b.muxes.Daemon - a.muxes.Daemon).Seconds() / took,
		SoftIRQ:  machine(b.machine.SoftIRQ - a.machine.SoftIRQ), Machine: machine(b.machine.Busy - a.machine.Busy),
		Resident: float64(b.muxes.Resident) / mib, Tables: float64(b.muxes.Tables) / mib,
	}
}

// measureLong floods one tenant for long, while few clients ask all of them.
func (w *world) measureLong(ctx context.Context, how options) (_ *long, err error) {
	if err := w.apply(ctx, modes[0]); err != nil {
		return nil, err
	}
	sessions, err := w.sessions()
	if err != nil {
		return nil, err
	}
	c, err := w.start(ctx, how.loads[0].Rate)
	if err != nil {
		return nil, err
	}
	l, all, err := w.flooded(ctx, how)
	if err != nil {
		return nil, errors.Join(err, c.abandon())
	}
	for _, t := range all {
		t.At = t.at.Sub(l.Trial.Began).Seconds()
		l.Samples = append(l.Samples, t.sample)
	}
	s := series{Trials: []trial{l.Trial}}
	if err := c.end(&s); err != nil {
		return nil, err
	}
	w.detected(&s)
	l.Trial = s.Trials[0]
	l.Sessions, err = w.changed(sessions)
	return l, errors.Join(err, ctx.Err())
}

// flooded looks before, during and behind the flood.
func (w *world) flooded(ctx context.Context, how options) (l *long, all []taken, err error) {
	l = &long{}
	if all, err = w.watch(ctx, before, time.Second, calm, nil); err != nil {
		return nil, nil, err
	}
	done := make(chan struct{})
	var failed error
	go func() {
		defer close(done)
		l.Trial, failed = w.flood(0, flood.Config{Kind: flood.SYN, Duration: how.long})
	}()
	some, err := w.watch(ctx, during, time.Second, how.long+time.Minute, done)
	all = append(all, some...)
	if err != nil {
		return nil, nil, err // the lab ends the flood
	}
	<-done
	if failed != nil {
		return nil, nil, failed
	}
	l.Rate = l.Trial.Rate
	some, err = w.watch(ctx, behind, often, calm, nil)
	return l, append(all, some...), err
}

func (l *long) print(to io.Writer) {
	fmt.Fprintf(to, "flood of %.0f SYNs a second: other tenants %d of %d connections lost, the victim's own %d of %d; sessions changed: %+v\n",
		l.Rate, l.Trial.Others.Failed, l.Trial.Others.Connections, l.Trial.Own.Failed, l.Trial.Own.Connections, l.Sessions)
	t := newTable(to, "flood at full speed", "programs, % of a CPU", "daemons", "softirqs, % of all", "machine", "daemons, MiB", "at most", "tables, MiB", "at most")
	end := 0.0
	for _, s := range l.Samples {
		if s.Phase == during {
			end = s.At
		}
	}
	row := func(name string, is func(sample) bool) {
		var all []sample
		for _, s := range l.Samples {
			if is(s) {
				all = append(all, s)
			}
		}
		programs, _ := spread(all, func(s sample) float64 { return s.Programs })
		daemons, _ := spread(all, func(s sample) float64 { return s.Daemons })
		softIRQ, _ := spread(all, func(s sample) float64 { return s.SoftIRQ })
		machine, _ := spread(all, func(s sample) float64 { return s.Machine })
		resident, mostResident := spread(all, func(s sample) float64 { return s.Resident })
		tables, mostTables := spread(all, func(s sample) float64 { return s.Tables })
		t.row("%s\t%.2f\t%.1f\t%.0f\t%.0f\t%.1f\t%.1f\t%.2f\t%.2f", name, programs, daemons, softIRQ, machine, resident, mostResident, tables, mostTables)
	}
	row("before", func(s sample) bool { return s.Phase == before })
	row("during", func(s sample) bool { return s.Phase == during })
	row("in the second behind it", func(s sample) bool { return s.Phase == behind && s.At < end+1 })
	row("later", func(s sample) bool { return s.Phase == behind && s.At >= end+1 })
	t.end()
}

// spread is the median of a value, and the most.
func spread(all []sample, value func(sample) float64) (median, most float64) {
	var values []float64
	for _, s := range all {
		values = append(values, value(s))
	}
	return percentile(values, 50), percentile(values, 100)
}
