package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"text/tabwriter"
	"time"
)

// measurement is what was seen of a class, by turns.
type measurement struct {
	cpu             []time.Duration
	peak            int // bytes
	alone, meantime []time.Duration
	answers         map[string]int
}

// turn sends n requests and returns what CPU time they took.
func (w *world) turn(ctx context.Context, c class, n, sources int) (*measurement, error) {
	if err := w.forgetPeak(); err != nil {
		return nil, err
	}
	before, err := w.cpu()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	answers, err := w.crowd.send(order{Class: c.name, To: w.address, Sources: sources, Limit: n})
	fmt.Fprintf(os.Stderr, "%s: %d in %s: %v\n", c.name, n, time.Since(begin).Round(time.Millisecond), answers)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return nil, err
	}
	after, err := w.cpu()
	if err != nil {
		return nil, err
	}
	peak, err := w.memory("VmHWM")
	return &measurement{cpu: []time.Duration{after - before}, peak: peak, answers: answers}, err
}

// fewer is how many times fewer requests come from a single address, which gets slow answers.
const fewer = 5

// round is one turn of a class, and applies alone and beside it.
func (w *world) round(ctx context.Context, c class, m *measurement, b *bench, sources int) error {
	n := b.requests / b.rounds
	if sources == 1 {
		n /= fewer
	}
	sent, err := w.turn(ctx, c, n, sources)
	if err != nil {
		return err
	}
	m.cpu = append(m.cpu, sent.cpu...)
	m.peak = max(m.peak, sent.peak)
	for answer, count := range sent.answers {
		m.answers[answer] += count
	}
	alone, err := w.timeApplies(ctx, b.applies)
	if err != nil {
		return err
	}
	m.alone = append(m.alone, alone...)
	begin := time.Now()
	answers, err := w.crowd.beside(order{Class: c.name, To: w.address, Sources: sources}, func() error {
		time.Sleep(100 * time.Millisecond) // until requests come in full number
		meantime, err := w.timeApplies(ctx, b.applies)
		m.meantime = append(m.meantime, meantime...)
		return err
	})
	fmt.Fprintf(os.Stderr, "%s beside applies for %s: %v\n", c.name, time.Since(begin).Round(time.Millisecond), answers)
	return err
}

// warmUp sends bare handshakes, and applies beside them, until the peak of memory has grown no more for two turns, and returns
// it: a manager lets some 200 MiB of garbage wait, whoever makes it.
func (w *world) warmUp(ctx context.Context, bare class, b *bench) (peak int, err error) {
	const turns, slack = 12, 4 << 20
	for turn, still := 0, 0; turn < turns && still < 2; turn++ {
		m := &measurement{answers: map[string]int{}}
		if err := w.round(ctx, bare, m, b, slices.Max(sourceCounts)); err != nil {
			return 0, err
		}
		still++
		if m.peak > peak+slack {
			peak, still = m.peak, 0
		}
	}
	return peak, nil
}

// applyEnd is how long an apply is waited for.
const applyEnd = 20 * time.Second

func (w *world) timeApplies(ctx context.Context, n int) (took []time.Duration, err error) {
	for range n {
		begin := time.Now()
		within, cancel := context.WithTimeout(ctx, applyEnd)
		err := w.apply(within)
		late := within.Err() != nil && ctx.Err() == nil // it counts as long as it was waited for
		cancel()
		if err != nil && !late {
			return nil, err
		}
		took = append(took, time.Since(begin))
	}
	return took, nil
}

// result is what a class costs.
type result struct {
	Class    string         `json:"class"`
	Sources  int            `json:"sources"`
	CPU      float64        `json:"cpuMilliseconds"`
	CPURatio float64        `json:"cpuToBareHandshakes"` // median of the turns
	MiB      int            `json:"peakGrowthMiB"`       // beyond what was resident after the warm-up
	Alone    float64        `json:"applyAloneMilliseconds"`
	Meantime float64        `json:"applyMeanwhileMilliseconds"`
	Ratio    float64        `json:"applyRatio"`
	Missed   []string       `json:"missed,omitempty"`
	Answers  map[string]int `json:"answers"` // by connection
}

// What 10 000 requests may cost.
const (
	mostMiB   = 64
	mostCPU   = 1.5
	mostApply = 2
)

func (m *measurement) result(name string, sources, warm int, bare *measurement) result {
	var sum time.Duration
	var ratios []float64
	for i, cpu := range m.cpu {
		sum += cpu
		ratios = append(ratios, float64(cpu)/float64(bare.cpu[i]))
	}
	r := result{
		Class: name, Sources: sources, CPU: milliseconds(sum), CPURatio: median(ratios), MiB: max(0, m.peak-warm) >> 20,
		Alone: milliseconds(median(m.alone)), Meantime: milliseconds(median(m.meantime)), Answers: m.answers,
	}
	r.Ratio = r.Meantime / r.Alone
	for what, missed := range map[string]bool{"memory": r.MiB > mostMiB, "CPU": r.CPURatio > mostCPU, "apply": r.Ratio > mostApply} {
		if missed {
			r.Missed = append(r.Missed, what)
		}
	}
	slices.Sort(r.Missed)
	return r
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

func median[T time.Duration | float64](all []T) T {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}

func printTable(w io.Writer, results []result) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "class\taddresses\tCPU ms\tto bare\tpeak MiB\tapply ms\tmeanwhile\tratio\tmissed\tanswers")
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%d\t%.0f\t%.2f\t%d\t%.1f\t%.1f\t%.2f\t%v\t%v\n",
			r.Class, r.Sources, r.CPU, r.CPURatio, r.MiB, r.Alone, r.Meantime, r.Ratio, r.Missed, r.Answers)
	}
	t.Flush() // the terminal is gone: nobody is left to tell
}
