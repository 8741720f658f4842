package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/wake"
)

const (
	placesPerVIP = 4   // switches that hold a VIP
	wideBackends = 512 // of VIP 0: as many tunnels as the switch of Duet's paper has
	wideVIP      = 0
	// ended is beyond the time after which the leader ends a move that no session needs.
	ended = 25 * time.Second
)

// devices measures with the switches of a world.
type devices struct {
	*world

	drained int // VIPs of which a backend was drained
}

// hardware measures what switches and hosts are told of VIPs in switches, with as many of both as Duet's paper has.
func (b *bench) hardware(ctx context.Context) error {
	of := size{replicas: 3, vips: b.scale(16384), muxes: 2, agents: max(b.scale(1024), wideBackends), switches: b.scale(1800)}
	return b.with(ctx, of, func(all *world) error {
		w := devices{world: all}
		if err := w.placed(ctx); err != nil {
			return err
		}
		if err := w.snapshots(ctx, 3); err != nil {
			return err
		}
		if err := w.drains(ctx, "drain of a backend while switches come back", b.scale(20)); err != nil {
			return err
		}
		wake.After(ctx, ended)
		if err := w.drains(ctx, "drain of a backend", b.scale(b.changes)); err != nil {
			return err
		}
		return w.wideDrains(ctx, b.scale(20))
	})
}

// hardwareVIP is VIP number i in switches; the first of its backends, as many as drained says, take no new connections.
func (w *devices) hardwareVIP(i, drained int) *weirv1.VIP {
	vip := w.vip(i, 0)
	e := vip.GetEndpoints()[0]
	e.HealthCheck = nil
	if i == wideVIP {
		e.Backends = nil
		for j := range wideBackends {
			e.Backends = append(e.Backends, &weirv1.Backend{Address: fmt.Sprintf("10.250.%d.%d", j/250, j%250+1), Port: 8080, Host: benchlab.HostName(j)})
		}
	}
	for _, backend := range e.GetBackends()[:drained] {
		backend.Weight = proto.Uint32(0)
	}
	vip.Hardware = &weirv1.Hardware{Placement: "require"}
	for _, at := range w.placesOf(i) {
		vip.Hardware.Switches = append(vip.Hardware.Switches, switchName(at))
	}
	return vip
}

// placesOf are the switches of VIP number i: each has as many VIPs, but for one.
func (w *devices) placesOf(i int) (all []int) {
	for j := range placesPerVIP {
		all = append(all, (i*placesPerVIP+j)%w.size.switches)
	}
	return all
}

// placed waits until switches announce all VIPs. It times the way from the last VIP's write.
func (w *devices) placed(ctx context.Context) error {
	begin, cpu := time.Now(), w.cpu()
	want, told := w.vips*placesPerVIP, time.Now()
	err := poll(ctx, 10*time.Minute, "switches announce all VIPs", func() bool {
		are := 0
		for _, d := range w.switches {
			are += d.holds()
		}
		if time.Since(told) > 5*time.Second {
			told = time.Now()
			fmt.Fprintf(os.Stderr, "  %d of %d places\n", are, want)
		}
		return are == want
	})
	if err != nil {
		return err
	}
	w.add("all VIPs into switches", []time.Duration{time.Since(begin)}, w.since(cpu))
	return nil
}

// snapshots breaks the streams of all switches at once, and times until all have their tables and a manager knows.
func (w *devices) snapshots(ctx context.Context, rounds int) error {
	var took []time.Duration
	cpu := w.cpu()
	for range rounds {
		begin := time.Now()
		before := make([]uint64, len(w.switches))
		for i, d := range w.switches {
			before[i] = d.snapshots.Load()
			d.runs.Store(0)
			d.leave()
		}
		err := poll(ctx, time.Minute, "all switches have a snapshot", func() bool {
			for i, d := range w.switches {
				if d.snapshots.Load() == before[i] || d.runs.Load() == 0 {
					return false
				}
			}
			return true
		})
		if err != nil {
			return err
		}
		took = append(took, time.Since(begin))
	}
	w.add("snapshots of all switches", took, w.since(cpu))
	return nil
}

// drain drains the first backends of a VIP, and returns the time until its hosts, switches and all muxes run it.
func (w *devices) drain(ctx context.Context, i, drained int) (time.Duration, error) {
	vip := w.hardwareVIP(i, drained)
	begin := time.Now()
	r, err := w.client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}})
	if err != nil {
		return 0, fmt.Errorf("drain a backend of VIP %d: %w", i, err)
	}
	var hosts []*agent
	for _, backend := range vip.GetEndpoints()[0].GetBackends() {
		hosts = append(hosts, w.agents[slices.IndexFunc(w.agents, func(a *agent) bool { return a.name == backend.GetHost() })])
	}
	ticker := time.NewTicker(time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); <-ticker.C {
		if !slices.ContainsFunc(hosts, func(a *agent) bool { return a.runs.Load() < r.GetGeneration() }) &&
			!slices.ContainsFunc(w.placesOf(i), func(at int) bool { return w.switches[at].runs.Load() < r.GetGeneration() }) &&
			!slices.ContainsFunc(w.muxes, func(m *mux) bool { return m.generation() < r.GetGeneration() }) {
			return time.Since(begin), nil
		}
	}
	return 0, fmt.Errorf("waited in vain until all run the drain of a backend of VIP %d", i)
}

// drains times drains, each of a backend of another VIP, one after the other.
func (w *devices) drains(ctx context.Context, name string, n int) error {
	var took []time.Duration
	cpu := w.cpu()
	for range n {
		d, err := w.drain(ctx, 1+w.drained*7919%(w.vips-1), 1)
		if err != nil {
			return err
		}
		w.drained++
		took = append(took, d)
	}
	w.add(name, took, w.since(cpu))
	return nil
}

// wideDrains times drains of backends of the widest VIP, and says how much its hosts were told of the first one, until its
// moves were over.
func (w *devices) wideDrains(ctx context.Context, n int) error {
	wake.After(ctx, ended) // the moves of drains before
	before := w.toHosts()
	first, err := w.drain(ctx, wideVIP, 1)
	if err != nil {
		return err
	}
	wake.After(ctx, ended)
	told := w.toHosts() - before
	took, cpu := []time.Duration{first}, w.cpu()
	for k := range n - 1 {
		d, err := w.drain(ctx, wideVIP, k+2)
		if err != nil {
			return err
		}
		took = append(took, d)
	}
	w.add("drain of a backend of the widest VIP", took, w.since(cpu), func(r *result) { r.Bytes = told })
	return nil
}

// toHosts is how many bytes of messages all hosts got.
func (w *devices) toHosts() (sum uint64) {
	for _, a := range w.agents {
		sum += a.received.Load()
	}
	return sum
}
