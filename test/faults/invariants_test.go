package faults

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// well waits until the control plane is well again, and holds that all agree: the managers with each other, the
// muxes with each other and with them. What the managers say then goes into the history, as what is there now.
func (w *world) well(t *testing.T) {
	t.Helper()
	for _, n := range w.Of(netlab.Manager) {
		p, err := w.Process(n.Name, "weir-manager")
		must(t, err)
		if !p.Running() {
			t.Fatalf("%s does not run: %s", n.Name, lastLine(w.Log(n.Name, p.Name)))
		}
	}
	generation := w.mark(t)
	for _, r := range w.cluster.replicas {
		w.eventually(t, func(ctx context.Context) error { return w.current(ctx, r, generation) })
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		from := time.Now()
		entries, err := listed(ctx, r, -1)
		cancel()
		must(t, err)
		for _, e := range entries {
			e.Current = true
			w.history.add(e, from)
		}
	}
	w.log(t, "all managers know generation %d", generation)
	w.eventually(t, w.programmed)
	w.eventually(t, func(context.Context) error { return w.muxesAgree() })
	w.log(t, "all muxes run the same tables")
	for _, n := range w.Nodes() {
		for _, program := range []string{"weir-manager", "weir-mux", "weir-agent"} {
			if _, err := w.Process(n.Name, program); err != nil {
				continue
			}
			if log := w.Log(n.Name, program); strings.Contains(log, "panic:") || strings.Contains(log, "DATA RACE") {
				t.Errorf("%s on %s panicked:\n%s", program, n.Name, log[max(0, len(log)-4000):])
			}
		}
	}
}

func lastLine(log string) string {
	log = strings.TrimSpace(log)
	return log[strings.LastIndexByte(log, '\n')+1:]
}

func (w *world) eventually(t *testing.T, ask func(context.Context) error) {
	t.Helper()
	must(t, netlab.Poll(t.Context(), bound, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), callTime)
		defer cancel()
		return ask(ctx)
	}))
}

// mark writes a VIP that nobody else does, by any manager that takes it, and returns the generation that holds
// it: a manager that knows this one knows all that was acknowledged before.
func (w *world) mark(t *testing.T) (generation uint64) {
	t.Helper()
	w.eventually(t, func(ctx context.Context) (err error) {
		generation, err = w.tryMark(ctx)
		return err
	})
	return generation
}

// tryMark is mark, tried once.
func (w *world) tryMark(ctx context.Context) (generation uint64, err error) {
	vip := newVIP(w.Lab, markerVIP, fmt.Sprint(marks.Add(1)), func() uint32 { return 1 })
	response, err := one(w, w.cluster.replicas).ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{vip}})
	return response.GetGeneration(), err
}

// current says what a manager does not know yet.
func (w *world) current(ctx context.Context, r *replica, generation uint64) error {
	status, err := r.GetStatus(ctx, &weirv1.GetStatusRequest{})
	if err != nil {
		return fmt.Errorf("%s: %w", r.name, err)
	}
	if status.GetGeneration() < generation {
		return fmt.Errorf("%s knows generation %d, not %d", r.name, status.GetGeneration(), generation)
	}
	return nil
}

// programmed says which VIP not all muxes run, as any manager tells it.
func (w *world) programmed(ctx context.Context) error {
	for _, r := range w.cluster.replicas {
		response, err := r.ListVIPs(ctx, &weirv1.ListVIPsRequest{})
		if err != nil {
			return fmt.Errorf("%s: %w", r.name, err)
		}
		for _, vip := range response.GetVips() {
			if s := vip.GetStatus(); s.GetMuxesProgrammed() != uint32(w.Muxes) {
				return fmt.Errorf("%s: %d of %d muxes run %s: %v", r.name, s.GetMuxesProgrammed(), w.Muxes, vip.GetName(), s.GetRejections())
			}
		}
	}
	return nil
}

// muxesAgree says how the tables of muxes differ.
func (w *world) muxesAgree() error {
	var first map[string]string
	for _, n := range w.Of(netlab.Mux) {
		tables, err := w.tables(n)
		if err != nil {
			return err
		}
		if first == nil {
			first = tables
		}
		if !maps.Equal(first, tables) {
			return fmt.Errorf("%s runs %v, and mux1 %v", n.Name, tables, first)
		}
	}
	for name, address := range addresses {
		there := slices.ContainsFunc(slices.Collect(maps.Keys(first)), func(endpoint string) bool { return strings.Contains(endpoint, address+":") })
		if slices.Contains([]string{steadyVIP, checkedVIP, markerVIP}, name) && !there {
			return fmt.Errorf("no mux runs %s: %v", name, first)
		}
	}
	return nil
}

// tables are the digests of what a mux's program runs, by endpoint.
func (w *world) tables(n netlab.Node) (map[string]string, error) {
	out, err := w.Run(n.Name, w.Find("weir-mux"), "status", "--pin-path", w.PinPath(n.Name), "-o", "json")
	if err != nil {
		return nil, err
	}
	var status struct {
		Endpoints []struct{ Endpoint, Digest string }
	}
	if err := json.Unmarshal([]byte(out), &status); err != nil {
		return nil, fmt.Errorf("read the status of %s: %w: %s", n.Name, err, out)
	}
	tables := map[string]string{}
	for _, e := range status.Endpoints {
		tables[e.Endpoint] = e.Digest
	}
	return tables, nil
}
