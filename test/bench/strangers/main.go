// Command strangers measures what requests without a valid credential cost a manager: CPU time beside bare TLS handshakes,
// memory, and the time of a user's apply meanwhile. See docs/performance.md for how to read the numbers.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// bench is one run.
type bench struct {
	out, binary      string
	only, skip       string
	requests, rounds int
	applies          int
	crowd            bool
}

func main() {
	var b bench
	flag.StringVar(&b.out, "out", "out/bench/strangers.json", "file for the results")
	flag.StringVar(&b.binary, "manager", "bin/weir-manager", "the program to measure")
	flag.StringVar(&b.only, "only", "", "measure classes whose name contains this (default: all)")
	flag.StringVar(&b.skip, "skip", "", "leave out classes whose name contains this: a client's RSA signatures take it an hour")
	flag.IntVar(&b.requests, "requests", 10000, "requests of each class; a fifth from a single address")
	flag.IntVar(&b.rounds, "rounds", 2, "turns that these are sent in")
	flag.IntVar(&b.applies, "applies", 20, "applies that are timed in each turn, alone and meanwhile")
	flag.BoolVar(&b.crowd, "crowd", false, "be the process that sends the requests; for the bench itself")
	limit := flag.Duration("limit", 2*time.Hour, "how long the run may take")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *limit)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	run := b.run
	if b.crowd {
		run = func(ctx context.Context) error { return serveOrders(ctx, os.Stdin, os.Stdout) }
	}
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "bench strangers: %v\n", err)
		stop()
		os.Exit(1) //nolint:gocritic // both have been ended
	}
}

// sourceCounts are how many client addresses the requests come from: rates and places are by address.
var sourceCounts = []int{1, 256}

func (b *bench) run(ctx context.Context) error {
	classes, err := allClasses()
	if err != nil {
		return err
	}
	w, err := newWorld(ctx, b.binary)
	defer w.close()
	if err != nil {
		return err
	}
	warm, err := w.warmUp(ctx, classes[0], b)
	if err != nil {
		return err
	}
	var results []result
	for _, sources := range sourceCounts {
		var measured []result
		if measured, err = b.measure(ctx, w, classes, sources, warm); err != nil {
			break
		}
		results = append(results, measured...)
	}
	printTable(os.Stdout, results)
	return errors.Join(err, benchlab.Write(b.out, results))
}

// measure sends all classes in turns with bare handshakes, after a warm-up by these, whose peak of memory was warm.
func (b *bench) measure(ctx context.Context, w *world, classes []class, sources, warm int) ([]result, error) {
	bare := classes[0]
	measures := map[string]*measurement{}
	for round := range b.rounds {
		for _, c := range classes {
			if c.name != bare.name && (!strings.Contains(c.name, b.only) || b.skip != "" && strings.Contains(c.name, b.skip)) {
				continue
			}
			m := measures[c.name]
			if m == nil {
				m = &measurement{answers: map[string]int{}}
				measures[c.name] = m
			}
			if err := w.round(ctx, c, m, b, sources); err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
		}
		fmt.Fprintf(os.Stderr, "%d sources: round %d of %d\n", sources, round+1, b.rounds)
	}
	var results []result
	for _, c := range classes {
		if m := measures[c.name]; m != nil {
			results = append(results, m.result(c.name, sources, warm, measures[bare.name]))
		}
	}
	return results, nil
}
