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
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/scrape"
)

// leaving is how many VIPs the workloads leave as that ask for ports: one on each host, spread over these.
const leaving = 20

func leavingAddress(i int) string { return fmt.Sprintf("172.31.0.%d", 1+i%leaving) }

func workloadAddress(i int) string { return fmt.Sprintf("10.200.%d.%d", i/250, i%250+1) }

// ports asks for ports of source NAT as the agents of a world do.
type ports struct{ *world }

// makeVIPs makes the VIPs that workloads leave as.
func (p ports) makeVIPs(ctx context.Context) error {
	vips := make([]*weirv1.VIP, leaving)
	for i := range vips {
		vips[i] = &weirv1.VIP{
			Name: fmt.Sprint("leaving", i), Address: leavingAddress(i), Snat: &weirv1.SNAT{MaxPorts: 64512, RequestRate: 100},
		}
	}
	for i := range p.agents {
		snat := vips[i%leaving].Snat
		snat.Workloads = append(snat.Workloads, &weirv1.SNATWorkload{Address: workloadAddress(i), Host: benchlab.HostName(i)})
	}
	r, err := p.client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: vips[:min(len(vips), len(p.agents))]})
	if err != nil {
		return err
	}
	for _, m := range p.muxes {
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

// ask has workloads ask, so many a second, in turn, until ctx ends, and returns when all are answered.
func (p ports) ask(ctx context.Context, perSecond int) *asked {
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
			workload := i % len(p.agents)
			open.Go(func() { p.askOnce(context.WithoutCancel(ctx), workload, all) })
		}
	}
}

func (p ports) askOnce(ctx context.Context, i int, all *asked) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	begin := time.Now()
	_, err := p.agents[i].client.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
		Name: benchlab.HostName(i), Vip: leavingAddress(i), Address: workloadAddress(i), Ports: 1,
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

// measure times port requests of themselves.
func (p ports) measure(ctx context.Context, perSecond int, lasting time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, lasting)
	defer cancel()
	before, cpu := p.stages(), p.cpu()
	p.addAsked(fmt.Sprintf("%d port requests a second", perSecond), p.ask(ctx, perSecond), p.since(cpu))
	stages := p.results[len(p.results)-1].Stages
	for stage, took := range p.stages() {
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

// stages are what all managers say that port requests took as leader, by stage, and all of them.
func (p ports) stages() map[string]spent {
	all := map[string]spent{}
	for _, manager := range p.managers {
		for line := range strings.Lines(scrape.Text("http://" + manager.metrics)) {
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

func (p ports) addAsked(name string, all *asked, more ...func(*result)) {
	if len(all.took) == 0 {
		all.took = []time.Duration{0}
	}
	p.add(name, all.took, more...)
	last := &p.results[len(p.results)-1]
	last.Shed, last.Quantiles, last.Stages = all.refused, quantiles(all.took), map[string]float64{}
	if all.reason != nil {
		fmt.Printf("  %d port requests were refused, one: %v\n", all.refused, all.reason)
	}
}

// besideBurst is burst while ask asks for ports.
func (p ports) besideBurst(ctx context.Context, n, round, perSecond int, ask func(ctx context.Context, perSecond int) *asked) error {
	asking, stop := context.WithCancel(ctx)
	done := make(chan *asked, 1)
	go func() { done <- ask(asking, perSecond) }()
	err := p.burst(ctx, fmt.Sprintf("burst, with %d port requests a second", perSecond), n, round)
	stop()
	p.addAsked(fmt.Sprintf("%d port requests a second, with the burst", perSecond), <-done)
	return err
}
