package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// snat measures Figures 15 and 13 of Ananta, at the manager: the time that port requests take, and that of normal
// tenants' while one tenant asks more and more.
func (b *bench) snat(ctx context.Context) error {
	return b.leave(ctx, func(p ports) error { return p.fairness(ctx, 5*time.Second) })
}

// portsAlone measures Figure 15 alone, and then with fewer requests.
func (b *bench) portsAlone(ctx context.Context) error {
	return b.leave(ctx, func(p ports) error {
		for _, perSecond := range []int{100, 20} {
			if err := p.measure(ctx, perSecond, 5*time.Second); err != nil {
				return err
			}
		}
		return nil
	})
}

// leave measures Figure 15, and then does more.
func (b *bench) leave(ctx context.Context, then func(ports) error) error {
	of := size{replicas: 5, vips: b.scale(100), muxes: 8, agents: b.scale(200)}
	return b.with(ctx, of, func(w *world) error {
		p := ports{w}
		if err := p.makeVIPs(ctx); err != nil {
			return err
		}
		if err := p.measure(ctx, 500, 10*time.Second); err != nil {
			return err
		}
		return then(p)
	})
}

// Of Figure 13.
const (
	normalTenants = 9
	normalEvery   = time.Minute / 150
)

// greedySteps are the requests a second that one tenant makes, one after the other.
var greedySteps = []int{0, 10, 50, 100, 250, 500, 1000, 2000}

// fairness has some tenants ask for ports as often as 150 connections a minute would, each with a port of its own
// range, while another one, on a host and with a VIP of its own, asks without bound.
func (p ports) fairness(ctx context.Context, step time.Duration) error {
	var vips []*weirv1.VIP
	for i := range normalTenants + 1 {
		vips = append(vips, &weirv1.VIP{
			Name: fmt.Sprint("tenant", i), Tenant: fmt.Sprint("tenant", i), Address: tenantAddress(i),
			Snat: &weirv1.SNAT{Workloads: []*weirv1.SNATWorkload{{Address: fmt.Sprintf("10.201.0.%d", i+1), Host: benchlab.HostName(i)}}},
		})
		if i < normalTenants {
			vips[i].Snat.MaxPorts = 64512
		}
	}
	if _, err := p.client.ApplyVIPs(ctx, &weirv1.ApplyVIPsRequest{Vips: vips}); err != nil {
		return err
	}
	for _, perSecond := range greedySteps {
		normal, greedy := p.beside(ctx, perSecond, step)
		p.addAsked(fmt.Sprintf("%d tenants, while one asks %d times a second", normalTenants, perSecond), normal)
		fmt.Printf("  the one was given ports %d times, and refused %d times\n", len(greedy.took), greedy.refused)
	}
	return nil
}

func tenantAddress(i int) string { return fmt.Sprintf("172.31.1.%d", i+1) }

// beside returns what became of the requests of the normal tenants, and of those of the greedy one.
func (p ports) beside(ctx context.Context, perSecond int, step time.Duration) (normal, greedy *asked) {
	ctx, cancel := context.WithTimeout(ctx, step)
	defer cancel()
	normal, greedy = &asked{}, &asked{}
	var open sync.WaitGroup
	defer open.Wait()
	for i := range normalTenants {
		open.Go(func() {
			tick := time.NewTicker(normalEvery)
			defer tick.Stop()
			for ctx.Err() == nil {
				p.askAs(context.WithoutCancel(ctx), i, normal)
				select {
				case <-ctx.Done():
				case <-tick.C:
				}
			}
		})
	}
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	for i := 0; ; {
		select {
		case <-ctx.Done():
			return normal, greedy
		case <-tick.C:
		}
		for due := int(time.Since(begin).Seconds() * float64(perSecond)); i < due; i++ {
			open.Go(func() { p.askAs(context.WithoutCancel(ctx), normalTenants, greedy) })
		}
	}
}

func (p ports) askAs(ctx context.Context, tenant int, all *asked) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	begin := time.Now()
	_, err := p.agents[tenant].client.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
		Name: benchlab.HostName(tenant), Vip: tenantAddress(tenant), Address: fmt.Sprintf("10.201.0.%d", tenant+1), Ports: 1,
	})
	all.note(time.Since(begin), err)
}

// line is one curve of a plot.
type line struct {
	name, color string
	points      [][2]float64
}

// plotSNAT writes the plots of what snat measured, if it did.
func plotSNAT(dir string, results []result) error {
	p50, p99 := line{name: "p50", color: "#36c"}, line{name: "p99", color: "#c33"}
	for _, r := range results {
		if len(r.Quantiles) > 0 && r.Name == "500 port requests a second" {
			curve := line{name: "", color: "#36c"}
			for i, ms := range r.Quantiles {
				curve.points = append(curve.points, [2]float64{ms, float64(i)})
			}
			text := draw("port requests, 500 a second, 5 replicas", "ms", "%", []line{curve})
			if err := os.WriteFile(filepath.Join(dir, "snat-requests.svg"), []byte(text), 0o644); err != nil {
				return err
			}
		}
		var tenants, perSecond int
		if n, _ := fmt.Sscanf(r.Name, "%d tenants, while one asks %d times a second", &tenants, &perSecond); n == 2 {
			x := float64(max(perSecond, 1))
			p50.points, p99.points = append(p50.points, [2]float64{x, r.P50}), append(p99.points, [2]float64{x, r.P99})
		}
	}
	if len(p50.points) == 0 {
		return nil
	}
	text := draw("port requests of 9 tenants, while another asks", "times a second", "ms", []line{p99, p50})
	return os.WriteFile(filepath.Join(dir, "snat-fairness.svg"), []byte(text), 0o644)
}

// draw is a plot with a logarithmic x axis from 1 on.
func draw(title, xAxis, yAxis string, lines []line) string {
	const width, height = 420, 260
	most, high := 10.0, 1.0
	for _, l := range lines {
		for _, p := range l.points {
			most, high = max(most, p[0]), max(high, p[1])
		}
	}
	decades := math.Ceil(math.Log10(most))
	px := func(x float64) float64 {
		return left + math.Log10(max(x, 1))/decades*(width-left-right)
	}
	py := func(y float64) float64 { return height - bottom - y/high*(height-top-bottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" font-family="sans-serif" font-size="11">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="100%%" height="100%%" fill="white"/>`+"\n"+`<text x="%d" y="16" font-weight="bold">%s</text>`+"\n", left, title)
	for decade := 0.0; decade <= decades; decade++ {
		x := px(math.Pow(10, decade))
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1f" y1="%d" y2="%d" stroke="#ddd"/>`+"\n", x, x, top, height-bottom)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%.0f</text>`+"\n", x, height-bottom+14, math.Pow(10, decade))
	}
	for _, part := range []float64{0, 0.5, 1} {
		y := py(part * high)
		fmt.Fprintf(&b, `<line x1="%d" x2="%d" y1="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", left, width-right, y, y)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n", left-4, y+4, part*high)
	}
	fmt.Fprintf(&b, `<text x="%d" y="%d" text-anchor="end">%s</text>`+"\n", width-right, height-6, xAxis)
	fmt.Fprintf(&b, `<text x="4" y="%d">%s</text>`+"\n", top-2, yAxis)
	for _, l := range lines {
		var path []string
		for _, p := range l.points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", px(p[0]), py(p[1])))
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s"/>`+"\n", strings.Join(path, " "), l.color)
		end := l.points[len(l.points)-1]
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="end" fill="%s">%s</text>`+"\n", px(end[0]), py(end[1])-6, l.color, l.name)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// quantiles are the times, in ms, within which 0 to 100 of 100 were done.
func quantiles(took []time.Duration) []float64 {
	sorted := slices.Sorted(slices.Values(took))
	all := make([]float64, 101)
	for i := range all {
		all[i] = float64(sorted[min(i*len(sorted)/100, len(sorted)-1)].Microseconds()) / 1000
	}
	return all
}
