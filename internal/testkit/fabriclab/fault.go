package fabriclab

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/clos"
	"github.com/weirlb/weir/internal/lab/netlab"
)

// outage is how long what fails is away.
const outage = 1500 * time.Millisecond

// Fault is something that happens to the fabric, and ends.
type Fault struct {
	Name string
	do   func(ctx context.Context, w *World, draw *rand.Rand) (what string, err error)
}

// Do lets it happen, to what draw says.
func (f Fault) Do(ctx context.Context, w *World, draw *rand.Rand) (what string, err error) {
	if what, err = f.do(ctx, w, draw); err != nil {
		return what, fmt.Errorf("%s (%s): %w", f.Name, what, err)
	}
	if err := w.WaitPlaced(ctx); err != nil {
		return what, err
	}
	return what, w.WaitFabric(ctx)
}

// Faults are all that no connection may notice.
var Faults = []Fault{
	{"moved to a switch", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		to := pick(draw, w.names(netlab.Switch))
		return to, w.Place(ctx, to)
	}},
	{"moved to two switches", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		cores := w.fabric().Cores // equally far for everybody outside
		return fmt.Sprint(cores[:2]), w.Place(ctx, cores[:2]...)
	}},
	{"moved to muxes", func(ctx context.Context, w *World, _ *rand.Rand) (string, error) { return "", w.Place(ctx) }},
	{"switch dies, and boots", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		name := w.pickSwitch(draw)
		return name, w.away(ctx, name, w.Crash, w.Forget)
	}},
	{"switch loses its power, unseen", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		name := w.pickSwitch(draw)
		return name, w.away(ctx, name, w.CutPower)
	}},
	{"switch comes back with the tables of before", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		name := w.pickSwitch(draw)
		return name, w.away(ctx, name, w.Crash, func(string) error { w.drain(draw); return w.Write() })
	}},
	{"link cut", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) { return w.cut(ctx, draw, false) }},
	{"link silent", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) { return w.cut(ctx, draw, true) }},
	{"weir-switch killed", func(_ context.Context, w *World, draw *rand.Rand) (string, error) {
		name := w.pickSwitch(draw)
		return name, w.restart(name, "weir-switch")
	}},
	{"agent killed", func(_ context.Context, w *World, draw *rand.Rand) (string, error) {
		name := pick(draw, w.names(netlab.Host))
		return name, w.restart(name, "weir-agent")
	}},
	{"manager killed", func(_ context.Context, w *World, _ *rand.Rand) (string, error) {
		return "", w.restart(string(netlab.Manager), "weir-manager")
	}},
	{"mux dies", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		name := pick(draw, w.names(netlab.Mux))
		return name, w.away(ctx, name, w.Crash)
	}},
	{"backend drained, or back", func(ctx context.Context, w *World, draw *rand.Rand) (string, error) {
		w.drain(draw)
		return w.Drained, w.Apply(ctx)
	}},
}

func pick(draw *rand.Rand, names []string) string { return names[draw.IntN(len(names))] }

func (w *World) names(kind netlab.Kind) (all []string) {
	for _, n := range w.Of(kind) {
		all = append(all, n.Name)
	}
	return all
}

// pickSwitch draws one of those that serve a VIP, or else of all, but no ToR of machines: these would be away with it.
func (w *World) pickSwitch(draw *rand.Rand) string {
	var serving, all []string
	for _, n := range w.Of(netlab.Switch) {
		if w.isAbove(n.Name) {
			continue
		}
		all = append(all, n.Name)
		if slices.ContainsFunc(w.VIPs, func(v VIP) bool { return slices.Contains(v.Switches, n.Name) }) {
			serving = append(serving, n.Name)
		}
	}
	if len(serving) > 0 {
		return pick(draw, serving)
	}
	return pick(draw, all)
}

// isAbove tells whether a router has machines below it.
func (w *World) isAbove(router string) bool {
	return slices.ContainsFunc(slices.Concat(w.Of(netlab.Host), w.Of(netlab.Mux)), func(n netlab.Node) bool { return w.Above(n) == router })
}

// away has a machine fail by the steps, stay away for a while, and come back.
func (w *World) away(ctx context.Context, name string, steps ...func(string) error) error {
	for _, step := range steps {
		if err := step(name); err != nil {
			return err
		}
	}
	if err := wait(ctx, outage); err != nil {
		return err
	}
	if err := w.Revive(name); err != nil {
		return err
	}
	return w.WaitConnected(ctx, name)
}

// wait lets time pass.
func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fabric is the lab's; netlab has validated it.
func (w *World) fabric() clos.Fabric {
	f, _ := clos.Parse(w.Fabric, string(netlab.Router))
	return f
}

// Address is a router's on its link to another one.
func (w *World) Address(router, other string) (v4 netip.Addr, ok bool) {
	return w.fabric().Address(router, other)
}

// cut cuts a link, for a while.
func (w *World) cut(ctx context.Context, draw *rand.Rand, silent bool) (what string, err error) {
	links := w.fabric().Links
	l := links[draw.IntN(len(links))]
	what = l.Lower + " to " + l.Upper
	if err := w.CutLink(l.Lower, l.Upper, silent); err != nil {
		return what, err
	}
	if err := wait(ctx, outage); err != nil {
		return what, err
	}
	return what, w.RestoreLink(l.Lower, l.Upper)
}

func (w *World) restart(node, program string) error {
	p, err := w.Process(node, program)
	if err != nil {
		return err
	}
	if err := p.Stop(unix.SIGKILL, Bound); err != nil {
		return err
	}
	_, err = w.Restart(node, program)
	return err
}

// drain drains a workload, or has the one that is drained back.
func (w *World) drain(draw *rand.Rand) {
	if w.Drained != "" {
		w.Drained = ""
		return
	}
	w.Drained = pick(draw, w.names(netlab.Workload))
}
