package hardware

import (
	"flag"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
	"github.com/weirlb/weir/internal/testkit/testlab"
)

var (
	seed   = flag.Uint64("seed", 1, "the first seed, which draws faults")
	seeds  = flag.Int("seeds", 0, "run all scenarios in full, with so many seeds each; 0: the short selection, with the first")
	faults = flag.Int("faults", 4, "so many faults of the fabric; 0, or with -seeds: all")
)

// Faults of a fabric of ten switches break no connection, whichever switch serves the VIP.
func TestConnectionsSurviveFaultsOfTheFabric(t *testing.T) {
	ctx := t.Context()
	lab := testlab.Up(t, netlab.Config{Plan: fabriclab.Plan("fabric", "2x2x2x2", 3)})
	w, err := fabriclab.New(ctx, lab, 1)
	testlab.Must(t, err)
	draw := rand.New(rand.NewPCG(*seed, 0))
	load := fabriclab.Load{Streams: streams, Interval: 100 * time.Millisecond, Patience: patience}
	testlab.Must(t, w.Hold(ctx, "begun by the muxes", load))
	testlab.Must(t, w.Place(ctx, "core-1"))
	testlab.Must(t, w.Hold(ctx, "begun by a core", load))
	var order []fabriclab.Fault
	for range max(1, *seeds) {
		all := slices.Clone(fabriclab.Faults)
		draw.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
		order = append(order, all...)
	}
	if *faults > 0 && *seeds == 0 {
		order = order[:*faults]
	}
	for _, f := range order {
		began := time.Now()
		what, err := f.Do(ctx, w, draw)
		t.Logf("%s %s: took %s", f.Name, what, time.Since(began).Round(time.Millisecond))
		testlab.Must(t, err)
	}
	all, err := w.Release()
	testlab.Must(t, err)
	for _, held := range all {
		r := held.Result
		t.Logf("%s: %d of %d broken, %d answers, %d datagrams lost, slowest %s", held.Name, r.Broken, r.Opened, r.Blocks, r.Lost, r.Slowest.Round(time.Millisecond))
		if r.Opened < streams || r.Broken > 0 || len(r.Backends) < 3 {
			t.Errorf("%s: %d opened at %v; broken: %+v", held.Name, r.Opened, r.Backends, r.Breaks[:min(3, len(r.Breaks))])
		}
	}
}

// Linux routers as cores serve a VIP in turns, and muxes, also where their FRR gives the kernel host routes of VIPs. Cables that are
// otherwise than the fabric says are told.
func TestLinuxRoutersServeInAFabric(t *testing.T) {
	ctx := t.Context()
	plan := fabriclab.Plan("fabric", "1x2x2x2", 3)
	plan.SwitchDriver = "linux"
	w, err := fabriclab.New(ctx, testlab.Up(t, netlab.Config{Plan: plan}), 1)
	testlab.Must(t, err)
	load := fabriclab.Load{Streams: streams, Interval: 100 * time.Millisecond, Patience: patience}
	testlab.Must(t, w.Hold(ctx, "begun by the muxes", load))
	hearLLDP(t, w)
	declare(t, w, map[string]string{"core-1 agg-1-1": "agg-1-2"})
	for _, switches := range [][]string{{"core-1"}, {"core-2"}, {"core-1", "core-2"}, nil, {"core-1"}} {
		testlab.Must(t, w.Place(ctx, switches...))
		time.Sleep(time.Second)
	}
	forgetHostRoutes(t, w, "core-1")
	forgetHostRoutes(t, w, "core-2")
	testlab.Must(t, w.Hold(ctx, "begun by a core", load))
	for _, switches := range [][]string{{"core-2"}, nil, {"core-1"}} {
		testlab.Must(t, w.Place(ctx, switches...))
		time.Sleep(time.Second)
	}
	toldOfLinks(t, w, "LinkMissing", "agg-1-2", "core-1")
	toldOfLinks(t, w, "LinkUnexpected", "agg-1-1", "core-1")
	if declare(t, w, nil); *seeds > 0 { // it takes half a minute more
		toldOfLinks(t, w, "LinksRestored")
	}
	served, err := w.Run("core-1", "ip", "nexthop", "show", "protocol", "87")
	if err != nil || !strings.Contains(served, "encap seg6") {
		t.Errorf("core-1 has no tunnels: %s (%v)", served, err)
	}
	all, err := w.Release()
	testlab.Must(t, err)
	for _, held := range all {
		r := held.Result
		t.Logf("%s: %d of %d broken, %d answers, slowest %s", held.Name, r.Broken, r.Opened, r.Blocks, r.Slowest.Round(time.Millisecond))
		if r.Opened < streams || r.Broken > 0 {
			t.Errorf("%s: %d opened; broken: %+v", held.Name, r.Opened, r.Breaks[:min(3, len(r.Breaks))])
		}
	}
}
