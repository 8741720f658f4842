package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// change replaces a backend of VIP i and returns the time until the last mux has acknowledged it.
func (w *world) change(ctx context.Context, i, round int) (time.Duration, error) {
	begin := time.Now()
	r, err := w.client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{w.vip(i%w.vips, round)}})
	if err != nil {
		return 0, fmt.Errorf("change VIP %d: %w", i, err)
	}
	for _, m := range w.muxes {
		if err := m.runs(ctx, r.GetGeneration()); err != nil {
			return 0, err
		}
	}
	return time.Since(begin), nil
}

// changes times single changes, one after the other.
func (w *world) changes(ctx context.Context, name string, n int) error {
	var took []time.Duration
	cpu := w.cpu()
	for i := range n {
		// Numbers that differ from those of bursts, spread over all VIPs.
		d, err := w.change(ctx, i*7919, 1+i/w.vips)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	w.add(name, took, w.since(cpu), func(r *result) { r.PerMux = r.Managers * 1e6 / float64(n*len(w.muxes)) })
	return nil
}

// burst times n changes that come within one second.
func (w *world) burst(ctx context.Context, name string, n, round int) error {
	took := make([]time.Duration, n)
	group, inner := errgroup.WithContext(ctx)
	begin, cpu := time.Now(), w.cpu()
	tick := time.NewTicker(time.Second / time.Duration(n))
	defer tick.Stop()
	for i := range n {
		<-tick.C
		group.Go(func() (err error) {
			took[i], err = w.change(inner, i, round)
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	seconds := time.Since(begin).Seconds()
	w.add(name, took, w.since(cpu), func(r *result) { r.Seconds = seconds })
	return nil
}

// cpuTimes are what programs took of all CPUs so far.
type cpuTimes struct{ managers, bench time.Duration }

// cpu is what the managers and this program took.
func (w *world) cpu() (c cpuTimes) {
	of := func(pid int) time.Duration {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		_, rest, _ := strings.Cut(string(stat), ") ")
		fields := strings.Fields(rest)
		if err != nil || len(fields) < 13 {
			return 0
		}
		user, _ := strconv.Atoi(fields[11]) // in hundredths of a second
		system, _ := strconv.Atoi(fields[12])
		return time.Duration(user+system) * 10 * time.Millisecond
	}
	for _, p := range w.managers {
		c.managers += of(p.command.Process.Pid)
	}
	c.bench = of(os.Getpid())
	return c
}

// since notes in a result what was taken of all CPUs since a moment.
func (w *world) since(before cpuTimes) func(*result) {
	used := w.cpu()
	return func(r *result) {
		r.Managers, r.Bench = (used.managers - before.managers).Seconds(), (used.bench - before.bench).Seconds()
	}
}

// health times changes of a backend's health, from the agent's report to the last mux.
func (w *world) health(ctx context.Context, n int) error {
	vips := min(20, w.vips)
	group, inner := errgroup.WithContext(ctx)
	group.SetLimit(32)
	for i := range vips {
		for j := range benchlab.BackendsPerVIP {
			group.Go(func() error { return w.tell(inner, i, j, "healthy") })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	time.Sleep(time.Second) // the tables follow
	var took []time.Duration
	for k := range n {
		i, state := k%vips, "unhealthy"
		if k/vips%2 == 1 {
			state = "healthy"
		}
		address := w.vip(i, 0).GetAddress()
		before := map[*mux]uint64{}
		for _, m := range w.muxes {
			m.mu.Lock()
			before[m] = m.told[address]
			m.mu.Unlock()
		}
		begin := time.Now()
		if err := w.tell(ctx, i, 3, state); err != nil {
			return err
		}
		for _, m := range w.muxes {
			if err := m.await(ctx, func() bool { return m.told[address] > before[m] }); err != nil {
				return fmt.Errorf("health of %s: %w", address, err)
			}
		}
		took = append(took, time.Since(begin))
	}
	w.add("health", took)
	return nil
}

// tell has the agent of backend j of VIP i say how it is.
func (w *world) tell(ctx context.Context, i, j int, health string) error {
	vip := w.vip(i, 0)
	b := vip.GetEndpoints()[0].GetBackends()[j]
	n, err := strconv.Atoi(strings.TrimPrefix(b.GetHost(), "host"))
	if err != nil {
		return err
	}
	return w.agents[n-1].report(ctx, &weirv1.BackendHealth{
		Endpoint: &weirv1.EndpointKey{Vip: vip.GetAddress(), Protocol: "TCP", Port: 80},
		Address:  b.GetAddress(), Port: b.GetPort(), Health: health,
	})
}

// storm breaks the streams of all agents at once, which come back within two seconds, and times changes
// until all are back.
func (w *world) storm(ctx context.Context, atLeast int) error {
	for _, a := range w.agents {
		a.generation.Store(0)
		a.again <- time.Duration(rand.N(int64(2 * time.Second)))
	}
	back := func() bool {
		for _, a := range w.agents {
			if a.generation.Load() == 0 {
				return false
			}
		}
		return true
	}
	var took []time.Duration
	begin, recovered := time.Now(), time.Duration(0)
	for i := 0; i < atLeast || recovered == 0; i++ {
		d, err := w.change(ctx, i*7919, 5+i/w.vips)
		if err != nil {
			return err
		}
		took = append(took, d)
		if recovered == 0 && back() {
			recovered = time.Since(begin)
		}
	}
	w.add("change while all agents reconnect", took)
	w.results[len(w.results)-1].Seconds = recovered.Seconds()
	return nil
}

// restart times the start of a replica on a full store, and the first snapshot to a mux.
func (w *world) restart(ctx context.Context) error {
	p, m := w.managers[0], w.muxes[0]
	if err := p.command.Process.Kill(); err != nil {
		return err
	}
	p.command.Wait() //nolint:errcheck // it was killed
	m.mu.Lock()
	before := len(m.snapshots)
	m.mu.Unlock()
	begin := time.Now()
	if err := w.launch(ctx, p); err != nil {
		return err
	}
	w.add("start of a replica", []time.Duration{time.Since(begin)})
	if err := m.await(ctx, func() bool { return len(m.snapshots) > before }); err != nil {
		return errors.New("no snapshot came")
	}
	w.add("start to a mux's snapshot", []time.Duration{time.Since(begin)})
	time.Sleep(5 * time.Second) // all agents are back
	before = len(m.snapshots)
	m.leave()
	if err := m.await(ctx, func() bool { return len(m.snapshots) > before }); err != nil {
		return errors.New("no snapshot came")
	}
	w.add("first snapshot to a mux", []time.Duration{m.snapshots[before]})
	return nil
}

// memory tells what the manager's process takes.
func (w *world) memory(ctx context.Context) error {
	if err := w.changes(ctx, "one change", 50); err != nil {
		return err
	}
	for _, of := range []struct{ name, field string }{{"memory", "VmRSS"}, {"memory at most", "VmHWM"}} {
		kib, err := w.managers[0].memory(of.field)
		if err != nil {
			return err
		}
		w.results = append(w.results, result{
			Name: of.name, Replicas: w.replicas, VIPs: w.vips, Muxes: w.size.muxes,
			Agents: w.size.agents, MiB: kib / 1024,
		})
	}
	return nil
}

// add notes what was measured.
func (w *world) add(name string, took []time.Duration, more ...func(*result)) {
	r := summarise(name, took)
	r.Replicas, r.VIPs, r.Muxes, r.Agents, r.Switches = w.replicas, w.vips, w.size.muxes, w.size.agents, w.size.switches
	for _, add := range more {
		add(&r)
	}
	w.results = append(w.results, r)
	fmt.Fprintf(os.Stderr, "  %s\n", r)
}
