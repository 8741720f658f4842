package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

// leaving is how many VIPs the workloads leave as that ask for ports: one on each host, spread over these.
const leaving = 20

func (w *world) leavingAddress(i int) string { return fmt.Sprintf("172.31.0.%d", 1+i%leaving) }

func workloadAddress(i int) string { return fmt.Sprintf("10.200.%d.%d", i/250, i%250+1) }

// loadPorts makes the VIPs that workloads leave as.
func (w *world) loadPorts(ctx context.Context) error {
	vips := make([]*weirv1.VIP, leaving)
	for i := range vips {
		vips[i] = &weirv1.VIP{Name: fmt.Sprint("leaving", i), Address: w.leavingAddress(i), Snat: &weirv1.SNAT{MaxPorts: 64512, RequestRate: 100}}
	}
	for i := range w.agents {
		snat := vips[i%leaving].Snat
		snat.Workloads = append(snat.Workloads, &weirv1.SNATWorkload{Address: workloadAddress(i), Host: hostName(i)})
	}
	r, err := w.client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: vips[:min(len(vips), len(w.agents))]})
	if err != nil {
		return err
	}
	for _, m := range w.muxes {
		if err := m.runs(ctx, r.GetGeneration()); err != nil {
			return err
		}
	}
	return nil
}

// asked is what became of port requests.
type asked struct {
	mu      sync.Mutex
	took    []time.Duration
	refused int
	reason  error // of one that was refused
}

// askForPorts has workloads ask, so many a second, in turn, until ctx ends, and returns when all are answered.
func (w *world) askForPorts(ctx context.Context, perSecond int) *asked {
	all := &asked{}
	var open sync.WaitGroup
	defer open.Wait()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return all
		case <-tick.C:
		}
		for due := int(time.Since(begin).Seconds() * float64(perSecond)); i < due; i++ {
			workload := i % len(w.agents)
			open.Go(func() { w.askFor(context.WithoutCancel(ctx), workload, all) })
		}
	}
}

func (w *world) askFor(ctx context.Context, i int, all *asked) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	begin := time.Now()
	_, err := w.agents[i].client.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
		Name: hostName(i), Vip: w.leavingAddress(i), Address: workloadAddress(i), Ports: 1,
	})
	all.note(time.Since(begin), err)
}

// note notes what became of one request.
func (all *asked) note(took time.Duration, err error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if err != nil {
		all.refused++
		all.reason = err
		return
	}
	all.took = append(all.took, took)
}

// crowdOver is how long after the last change of a user port requests do not wait for others any more, and some more.
const crowdOver = time.Second

// ports times port requests of themselves, when the VIPs' loading is over.
func (w *world) ports(ctx context.Context, perSecond int, lasting time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(crowdOver):
	}
	ctx, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	before, cpu := w.portStages(), w.cpu()
	w.addAsked(fmt.Sprintf("%d port requests a second", perSecond), w.askForPorts(ctx, perSecond), w.since(cpu))
	stages := w.results[len(w.results)-1].Stages
	for stage, took := range w.portStages() {
		if n := took.count - before[stage].count; n > 0 {
			stages[stage] = 1000 * (took.seconds - before[stage].seconds) / n
		}
	}
	for _, stage := range slices.Sorted(maps.Keys(stages)) {
		fmt.Fprintf(os.Stderr, "  %s: %.1f ms on average\n", stage, stages[stage])
	}
	return nil
}

// spent is how long something took in all, and how often it was done.
type spent struct{ seconds, count float64 }

// portStages are what all managers say that port requests took as leader, by stage, and all of them.
func (w *world) portStages() map[string]spent {
	all := map[string]spent{}
	for _, p := range w.managers {
		for line := range strings.Lines(scrape.Text("http://" + p.metrics)) {
			rest, is := strings.CutPrefix(line, "weir_manager_snat_port_request_")
			name, value, _ := strings.Cut(strings.TrimSpace(rest), " ")
			number, err := strconv.ParseFloat(value, 64)
			if !is || err != nil {
				continue
			}
			stage := "all at the leader"
			if _, label, labelled := strings.Cut(name, `{stage="`); labelled {
				stage = strings.TrimSuffix(label, `"}`)
			}
			name, _, _ = strings.Cut(name, "{")
			took := all[stage]
			switch {
			case strings.HasSuffix(name, "duration_seconds_sum"):
				took.seconds += number
			case strings.HasSuffix(name, "duration_seconds_count"):
				took.count += number
			default:
				continue
			}
			all[stage] = took
		}
	}
	return all
}

func (w *world) addAsked(name string, all *asked, more ...func(*result)) {
	if len(all.took) == 0 {
		all.took = []time.Duration{0}
	}
	w.add(name, all.took, more...)
	last := &w.results[len(w.results)-1]
	last.Shed, last.Quantiles, last.Stages = all.refused, quantiles(all.took), map[string]float64{}
	if all.reason != nil {
		fmt.Printf("  %d port requests were refused, one: %v\n", all.refused, all.reason)
	}
}

// burstAndPorts is burst while port requests arrive.
func (w *world) burstAndPorts(ctx context.Context, n, perSecond int) error {
	asking, stop := context.WithCancel(ctx)
	done := make(chan *asked, 1)
	go func() { done <- w.askForPorts(asking, perSecond) }()
	err := w.burst(ctx, fmt.Sprintf("burst, with %d port requests a second", perSecond), n, 3)
	stop()
	w.addAsked(fmt.Sprintf("%d port requests a second, with the burst", perSecond), <-done)
	return err
}
