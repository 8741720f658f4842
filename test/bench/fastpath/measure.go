package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// second is what happened within about one.
type second struct {
	At       float64 `json:"at"`       // s since the beginning
	Fastpath bool    `json:"fastpath"` // connections may leave
	Mux      float64 `json:"mux_cpu"`  // % of a CPU, of both muxes' programs in the kernel
	Host     float64 `json:"host_cpu"` // likewise of the median host's
	Muxd     float64 `json:"muxd_cpu"` // of both muxes' daemons
	Agentd   float64 `json:"agentd_cpu"`
	ByMuxes  float64 `json:"packets_by_muxes"`
	Direct   float64 `json:"packets_direct"`
	Uploads  float64 `json:"uploads"`
	Machine  float64 `json:"machine_cpu"` // % of all CPUs
}

// phase is the median of some seconds.
type phase struct {
	Name string `json:"name"`
	second
	PerUpload float64 `json:"packets_by_muxes_per_upload"`
}

// count is what grows with time.
type count struct {
	at              time.Time
	mux             benchlab.Used // of both
	hosts           map[string]benchlab.Used
	byMuxes, direct uint64
	uploads         uint64
	machine         benchlab.Machine
}

// measureUploads makes uploads, and lets them leave the muxes half-way.
func (w *world) measureUploads(ctx context.Context, how options) (seconds []second, phases []phase, err error) {
	loading, stop := context.WithCancel(ctx)
	u := w.start(loading, uploadBytes, how.upload)
	defer func() {
		stop()
		err = errors.Join(err, u.wait())
	}()
	pause(ctx, how.upload)
	began := time.Now()
	for _, fastpath := range []bool{false, true} {
		if err := w.apply(ctx, fastpath); err != nil {
			return nil, nil, err
		}
		if fastpath {
			pause(ctx, how.upload) // the connections that began before are over
		}
		first := len(seconds)
		total, err := w.watch(ctx, u, &seconds, fastpath, began, how.phase)
		if err != nil {
			return nil, nil, err
		}
		name := map[bool]string{false: "by the muxes", true: "with Fastpath"}[fastpath]
		phases = append(phases, newPhase(name, seconds[first:], total))
	}
	return seconds, phases, ctx.Err()
}

// watch looks every second, for a while.
func (w *world) watch(ctx context.Context, u *uploads, seconds *[]second, fastpath bool, began time.Time, lasts time.Duration) (perUpload float64, err error) {
	before, err := w.count(u)
	if err != nil {
		return 0, err
	}
	first := before
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		pause(ctx, time.Second)
		now, err := w.count(u)
		if err != nil {
			return 0, err
		}
		s := between(before, now)
		s.At, s.Fastpath = now.at.Sub(began).Seconds(), fastpath
		*seconds = append(*seconds, s)
		before = now
	}
	return float64(before.byMuxes-first.byMuxes) / float64(max(before.uploads-first.uploads, 1)), nil
}

func between(a, b count) second {
	took := b.at.Sub(a.at).Seconds()
	percent := func(d time.Duration) float64 { return 100 * d.Seconds() / took }
	var programs, daemons []float64
	for host, used := range b.hosts {
		programs = append(programs, percent(used.Programs-a.hosts[host].Programs))
		daemons = append(daemons, percent(used.Daemon-a.hosts[host].Daemon))
	}
	return second{
		Mux: percent(b.mux.Programs - a.mux.Programs), Muxd: percent(b.mux.Daemon - a.mux.Daemon),
		Host: median(programs), Agentd: median(daemons),
		ByMuxes: float64(b.byMuxes-a.byMuxes) / took, Direct: float64(b.direct-a.direct) / took,
		Uploads: float64(b.uploads-a.uploads) / took, Machine: 100 * float64(b.machine.Busy-a.machine.Busy) / float64(max(b.machine.All-a.machine.All, 1)),
	}
}

func median(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

func newPhase(name string, of []second, perUpload float64) phase {
	each := func(value func(second) float64) float64 {
		var values []float64
		for _, s := range of {
			values = append(values, value(s))
		}
		return median(values)
	}
	return phase{Name: name, PerUpload: perUpload, second: second{
		Fastpath: of[0].Fastpath,
		Mux:      each(func(s second) float64 { return s.Mux }), Muxd: each(func(s second) float64 { return s.Muxd }),
		Host: each(func(s second) float64 { return s.Host }), Agentd: each(func(s second) float64 { return s.Agentd }),
		ByMuxes: each(func(s second) float64 { return s.ByMuxes }), Direct: each(func(s second) float64 { return s.Direct }),
		Uploads: each(func(s second) float64 { return s.Uploads }), Machine: each(func(s second) float64 { return s.Machine }),
	}}
}

// count reads all counters.
func (w *world) count(u *uploads) (c count, err error) {
	c.at, c.hosts, c.uploads = time.Now(), map[string]benchlab.Used{}, u.done.Load()
	if c.machine, err = benchlab.MachineUsed(); err != nil {
		return c, err
	}
	for _, n := range w.lab.Of(netlab.Mux) {
		used, err := benchlab.UsedBy(w.lab, n.Name, "weir-mux")
		if err != nil {
			return c, err
		}
		c.mux.Programs += used.Programs
		c.mux.Daemon += used.Daemon
		packets, err := w.lab.Forwarded(n.Name)
		if err != nil {
			return c, err
		}
		c.byMuxes += packets
	}
	for _, n := range w.lab.Of(netlab.Host) {
		if c.hosts[n.Name], err = benchlab.UsedBy(w.lab, n.Name, "weir-agent"); err != nil {
			return c, err
		}
		verdicts, err := w.lab.Verdicts(n.Name)
		if err != nil {
			return c, err
		}
		c.direct += verdicts["reply_direct"]
	}
	return c, nil
}

// speed is what uploads reach when nothing holds them up.
type speed struct {
	Name string  `json:"name"`
	Gbit float64 `json:"gbit_per_s"`
}

// measureSpeed makes uploads at full speed with Fastpath, which is on, and then without.
func (w *world) measureSpeed(ctx context.Context, how options) (speeds []speed, err error) {
	const warm = 2 * time.Second
	for _, fastpath := range []bool{true, false} {
		if err := w.apply(ctx, fastpath); err != nil {
			return nil, err
		}
		loading, stop := context.WithCancel(ctx)
		u := w.start(loading, 1<<30, 0)
		pause(ctx, warm)
		began, before := time.Now(), u.bytes.Load()
		pause(ctx, how.speed)
		sent, took := u.bytes.Load()-before, time.Since(began)
		stop()
		if err := u.wait(); err != nil {
			return nil, err
		}
		name := map[bool]string{false: "by the muxes", true: "with Fastpath"}[fastpath]
		speeds = append(speeds, speed{Name: name, Gbit: float64(sent) * 8 / took.Seconds() / 1e9})
	}
	return speeds, ctx.Err()
}

func printPhases(to io.Writer, all []phase) {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "uploads\ta second\tmuxes' programs, % CPU\tdaemons\ta host's programs, % CPU\tdaemon\tmachine, %\tpackets by muxes, a second\tof each upload\tdirect, a second\t")
	for _, p := range all {
		fmt.Fprintf(w, "%s\t%.0f\t%.2f\t%.1f\t%.2f\t%.1f\t%.0f\t%.0f\t%.1f\t%.0f\t\n", p.Name, p.Uploads, p.Mux, p.Muxd, p.Host, p.Agentd, p.Machine, p.ByMuxes, p.PerUpload, p.Direct)
	}
	_ = w.Flush()
}

func printSpeeds(to io.Writer, all []speed) {
	for _, s := range all {
		fmt.Fprintf(to, "at full speed %s: %.2f Gbit/s\n", s.Name, s.Gbit)
	}
}
