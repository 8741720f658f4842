// Command manager measures the control plane: weir-manager processes over loopback, with muxes and agents
// that speak the real protocol and do nothing with what they are told. See docs/performance.md for how to
// read the numbers.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

func main() {
	var b bench
	flag.StringVar(&b.out, "out", "out/bench/manager.json", "file for the results")
	flag.StringVar(&b.plots, "plots", "", "folder for plots of how the figures grow (default: none)")
	flag.StringVar(&b.binary, "manager", "bin/weir-manager", "the program to measure")
	flag.StringVar(&b.weir, "weir", "bin/weir", "the command line that loads 20 000 VIPs from a file")
	flag.BoolVar(&b.quick, "quick", false, "a tenth of the sizes, for a look")
	flag.StringVar(&b.only, "only", "bounds growth large huge snat blocks", "parts to measure; hardware: VIPs in switches; scale: one change where there is more, with tenants that have quotas; pages: the web page in a browser; beside: the burst alone, and beside port requests that port blocks serve, in turns")
	flag.StringVar(&b.replicas, "replicas", "1 3 5", "numbers of replicas with which the bounds are measured; all figures only with the last")
	flag.IntVar(&b.changes, "changes", 300, "single changes to time with each number of replicas")
	limit := flag.Duration("limit", 15*time.Minute, "how long the run may take")
	flag.Parse()
	if err := b.runWithin(*limit); err != nil {
		fmt.Fprintf(os.Stderr, "bench manager: %v\n", err)
		os.Exit(1)
	}
}

// runWithin runs until the limit, or until it is interrupted.
func (b *bench) runWithin(limit time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	return b.run(ctx)
}

// bench is one run.
type bench struct {
	out, plots     string
	binary, weir   string
	only, replicas string
	quick          bool
	changes        int
	results        []result
}

// scale is n, or less in a quick run.
func (b *bench) scale(n int) int {
	if b.quick {
		return max(n/10, min(n, 10))
	}
	return n
}

func (b *bench) run(ctx context.Context) error {
	for _, part := range []struct {
		name string
		do   func(context.Context) error
	}{
		{"bounds", b.bounds},
		{"growth", b.growth},
		{"large", b.large},
		{"huge", b.huge},
		{"snat", b.snat},
		{"ports", b.portsAlone},
		{"blocks", b.portBlocks},
		{"beside", b.beside},
		{"hardware", b.hardware},
		{"pages", b.pages},
		{"scale", b.more},
	} {
		if !slices.Contains(strings.Fields(b.only), part.name) {
			continue
		}
		begin := time.Now()
		if err := part.do(ctx); err != nil {
			// What was measured before is worth keeping.
			return fmt.Errorf("measure %s: %w (kept: %w)", part.name, err, benchlab.Write(b.out, b.results))
		}
		fmt.Fprintf(os.Stderr, "%s took %s\n", part.name, time.Since(begin).Round(time.Second))
	}
	printTable(os.Stdout, b.results)
	if b.plots != "" {
		if err := plotAll(b.plots, b.results); err != nil {
			return err
		}
		if err := plotSNAT(b.plots, b.results); err != nil {
			return err
		}
	}
	return benchlab.Write(b.out, b.results)
}

// bounds measures the table of the figures that have one, with 5 replicas, and the first of them with fewer.
func (b *bench) bounds(ctx context.Context) error {
	numbers := strings.Fields(b.replicas)
	for i, number := range numbers {
		replicas, err := strconv.Atoi(number)
		if err != nil {
			return fmt.Errorf("read -replicas: %w", err)
		}
		err = b.with(ctx, size{replicas: replicas, vips: b.scale(1000), muxes: 8, agents: b.scale(1000)}, func(w *world) error {
			if err := w.changes(ctx, "one change", b.scale(b.changes)); err != nil || i+1 < len(numbers) {
				return err
			}
			if err := w.burst(ctx, "burst", b.scale(1000), 2); err != nil {
				return err
			}
			if err := (ports{w}).makeVIPs(ctx); err != nil {
				return err
			}
			if err := (ports{w}).measure(ctx, b.scale(500), 5*time.Second); err != nil {
				return err
			}
			if err := (ports{w}).besideBurst(ctx, b.scale(1000), 3, b.scale(2000), (ports{w}).ask); err != nil {
				return err
			}
			if err := w.health(ctx, b.scale(200)); err != nil {
				return err
			}
			return w.storm(ctx, b.scale(100))
		})
		if err != nil {
			return fmt.Errorf("%d replicas: %w", replicas, err)
		}
	}
	return nil
}

// growth measures one change with more and more of each thing.
func (b *bench) growth(ctx context.Context) error {
	base := size{replicas: 1, vips: b.scale(1000), muxes: 8, agents: b.scale(100)}
	for _, muxes := range []int{1, 2, 4, 8, 16, 32} {
		of := base
		of.muxes = muxes
		if err := b.once(ctx, "by muxes", of); err != nil {
			return err
		}
	}
	for _, agents := range []int{10, 100, 1000, 3000} {
		of := base
		of.agents = b.scale(agents)
		if err := b.once(ctx, "by agents", of); err != nil {
			return err
		}
	}
	for _, vips := range []int{100, 1000, 5000, 20000} {
		of := base
		of.vips = b.scale(vips)
		if err := b.once(ctx, "by VIPs", of); err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) once(ctx context.Context, name string, of size) error {
	return b.with(ctx, of, func(w *world) error { return w.changes(ctx, name, b.scale(200)) })
}

// large measures the start of a replica, and the first snapshot to a mux, with 20 000 VIPs.
func (b *bench) large(ctx context.Context) error {
	return b.with(ctx, size{replicas: 1, vips: b.scale(20000), muxes: 1, agents: b.scale(1000), weir: b.weir}, func(w *world) error {
		return w.restart(ctx)
	})
}

// huge measures the memory with 100 000 VIPs and 10 000 agents.
func (b *bench) huge(ctx context.Context) error {
	return b.with(ctx, size{replicas: 1, vips: b.scale(100000), muxes: 2, agents: b.scale(10000), alone: true}, func(w *world) error {
		return w.memory(ctx)
	})
}

// with builds a world, measures it and takes it down.
func (b *bench) with(ctx context.Context, of size, do func(*world) error) error {
	fmt.Fprintf(os.Stderr, "%s\n", of)
	w, err := newWorld(ctx, b.binary, of)
	if err != nil {
		return err
	}
	err = do(w)
	b.results = append(b.results, w.results...)
	w.close()
	return err
}
