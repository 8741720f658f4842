package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/plan"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// Loads of a mux, as parts of what it takes.
var parts = []float64{0, 0.1, 0.25, 0.5, 0.75, 0.9, 1.1, 1.3}

const pingInterval = 3 * time.Millisecond // the paper's

// latency is Figure 1.
type latency struct {
	Direct trips   `json:"direct"` // past the mux, without load
	Adds50 float64 `json:"mux_adds_p50_us"`
	Adds90 float64 `json:"mux_adds_p90_us"`
	Steps  []step  `json:"steps"`
}

// step is a load: medians of all rounds.
type step struct {
	Part float64 `json:"part"` // of what the mux takes
	rate
	trips
}

func (w *world) measureLatency(ctx context.Context, how options, most float64) (*latency, error) {
	rounds := make([][]step, len(parts))
	var direct []trips
	for range how.rounds {
		pings, err := w.ping(netip.AddrPortFrom(hostDIP, dipPort), how.step)
		if err != nil {
			return nil, err
		}
		direct = append(direct, summarise(pings))
		for i, part := range parts {
			if part > 1 && !w.mux.isFull {
				continue // So much can't be sent.
			}
			s := step{Part: part}
			s.rate, err = w.under(ctx, &w.mux, part*most, how.step, func() error {
				pings, err := w.ping(netip.AddrPortFrom(pinged, vipPort), how.step)
				s.trips = summarise(pings)
				return err
			})
			if err != nil {
				return nil, err
			}
			rounds[i] = append(rounds[i], s)
		}
	}
	l := &latency{Direct: medianTrips(direct)}
	for _, of := range rounds {
		if len(of) == 0 {
			continue
		}
		var found []trips
		s := step{Part: of[0].Part}
		for _, one := range of {
			found = append(found, one.trips)
		}
		s.trips = medianTrips(found)
		for to, from := range map[*float64]func(step) float64{
			&s.Sent: func(o step) float64 { return o.Sent }, &s.Forwarded: func(o step) float64 { return o.Forwarded },
			&s.Lost: func(o step) float64 { return o.Lost }, &s.Arrived: func(o step) float64 { return o.Arrived }, &s.CPU: func(o step) float64 { return o.CPU },
		} {
			*to = median(of, from)
		}
		l.Steps = append(l.Steps, s)
		fmt.Printf("%4.0f %% of what the mux takes: %8.0f sent, %8.0f forwarded a second, CPU %3.0f %%, p50 %.0f µs, p99 %.0f µs, %.1f %% lost, %.1f %% of pings\n",
			100*s.Part, s.Sent, s.Forwarded, 100*s.CPU, s.P50, s.P99, 100*s.Lost, 100*s.Gone)
	}
	l.Adds50, l.Adds90 = l.Steps[0].P50-l.Direct.P50, l.Steps[0].P90-l.Direct.P90
	fmt.Printf("the mux adds %.0f µs in the median, %.0f µs in the 90th percentile\n", l.Adds50, l.Adds90)
	return l, nil
}

// ping pings an address for a time.
func (w *world) ping(to netip.AddrPort, lasts time.Duration) ([]ping, error) {
	p, err := startPinger(w.network, client, to, pingInterval)
	if err != nil {
		return nil, err
	}
	time.Sleep(lasts)
	pings, err := p.stop()
	if err == nil && !slices.ContainsFunc(pings, func(p ping) bool { return p.Trip > 0 }) {
		err = fmt.Errorf("nobody answers at %s", to)
	}
	return pings, err
}

func median[T any](of []T, value func(T) float64) float64 {
	all := make([]float64, len(of))
	for i, v := range of {
		all[i] = value(v)
	}
	slices.Sort(all)
	return all[len(all)/2]
}

// medianTrips has the median of each quantile.
func medianTrips(of []trips) (t trips) {
	for to, from := range map[*float64]func(trips) float64{
		&t.P10: func(o trips) float64 { return o.P10 }, &t.P50: func(o trips) float64 { return o.P50 },
		&t.P90: func(o trips) float64 { return o.P90 }, &t.P99: func(o trips) float64 { return o.P99 },
		&t.Gone: func(o trips) float64 { return o.Gone },
	} {
		*to = median(of, from)
	}
	for i := range of[0].CDF {
		t.CDF = append(t.CDF, median(of, func(o trips) float64 { return o.CDF[i] }))
	}
	return t
}

func (l *latency) plot(dir, load string) error {
	trips := plan.Chart{Title: "pings that were answered within, %", Axis: "µs", LogX: true}
	cpu := plan.Chart{Title: "a mux's CPU, %", Axis: "packets that came, a second"}
	used := plan.Line{Name: "of one CPU"}
	for _, s := range l.Steps {
		line := plan.Line{Name: fmt.Sprintf("%.0f 000 packets/s", s.Sent/1000)}
		for percent, at := range s.CDF {
			line.Points = append(line.Points, plan.Point{X: at, Y: float64(percent)})
		}
		trips.Series = append(trips.Series, line)
		used.Points = append(used.Points, plan.Point{X: s.Sent, Y: 100 * s.CPU})
	}
	cpu.Series = []plan.Line{used}
	names := []string{"duet-1-latency.svg", "duet-1-cpu.svg"}
	if load == syns {
		names = []string{"mplb-8.svg", "mplb-8-cpu.svg"}
	}
	return errors.Join(benchlab.Draw(dir, names[0], trips), benchlab.Draw(dir, names[1], cpu))
}

// phase is one of Figure 11.
type phase struct {
	Name string  `json:"name"`
	From float64 `json:"from_s"`
	To   float64 `json:"to_s"`
	rate
	trips
	Seconds []second `json:"seconds"`
}

// second is what came to a box in a second, and what it forwarded.
type second struct {
	At float64 `json:"at_s"`
	rate
}

// measureSwitch has the VIP pinged while a mux gets two thirds of what it takes, then twice as much, and then a switch has the
// VIPs.
func (w *world) measureSwitch(ctx context.Context, how options, most float64) (all []phase, pings []ping, err error) {
	if !w.mux.isFull {
		return nil, nil, fmt.Errorf("the mux takes all that one CPU sends, %.0f packets a second: it can't be overloaded here", most)
	}
	p, err := startPinger(w.network, client, netip.AddrPortFrom(pinged, vipPort), pingInterval)
	if err != nil {
		return nil, nil, err
	}
	began := p.began
	for _, ph := range []struct {
		name string
		by   *box
		part float64
	}{{"mux, two thirds", &w.mux, 2. / 3}, {"mux, four thirds", &w.mux, 4. / 3}, {"switch", &w.sw, 4. / 3}} {
		one := phase{Name: ph.name}
		if err = w.route(ph.by); err != nil {
			break
		}
		one.rate, err = w.under(ctx, ph.by, ph.part*most, how.phase, func() error {
			one.From = time.Since(began).Seconds()
			one.Seconds, err = w.watch(ctx, ph.by, began, how.phase)
			one.To = time.Since(began).Seconds()
			return err
		})
		if err != nil {
			break
		}
		all = append(all, one)
	}
	pings, failed := p.stop()
	if err := errors.Join(err, failed, w.route(&w.mux)); err != nil {
		return nil, nil, err
	}
	for i := range all {
		within := slices.DeleteFunc(slices.Clone(pings), func(p ping) bool { return p.At < all[i].From || p.At > all[i].To })
		all[i].trips = summarise(within)
		fmt.Printf("%-18s %8.0f sent, %8.0f forwarded a second, CPU %3.0f %%, p50 %.0f µs, p99 %.0f µs, %.1f %% lost, %.1f %% of pings\n",
			all[i].Name, all[i].Sent, all[i].Forwarded, 100*all[i].CPU, all[i].P50, all[i].P99, 100*all[i].Lost, 100*all[i].Gone)
	}
	return all, pings, nil
}

// watch looks at a box every second.
func (w *world) watch(ctx context.Context, b *box, began time.Time, lasts time.Duration) (all []second, err error) {
	before, err := w.count(b)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(lasts); time.Now().Before(end) && ctx.Err() == nil; {
		time.Sleep(time.Second)
		now, err := w.count(b)
		if err != nil {
			return nil, err
		}
		all, before = append(all, second{now.at.Sub(began).Seconds(), now.since(before)}), now
	}
	return all, ctx.Err()
}

func plotPhases(dir string, pings []ping, phases []phase) error {
	var came, sent, forwarded plan.Line
	for _, p := range pings {
		if p.Trip > 0 {
			came.Points = append(came.Points, plan.Point{X: p.At, Y: p.Trip})
		}
	}
	sent.Name, forwarded.Name = "come", "are forwarded"
	for _, ph := range phases {
		for _, s := range ph.Seconds {
			sent.Points = append(sent.Points, plan.Point{X: s.At, Y: s.Sent})
			forwarded.Points = append(forwarded.Points, plan.Point{X: s.At, Y: s.Forwarded})
		}
	}
	axis := fmt.Sprintf("s; from %.0f s on twice the packets, from %.0f s on by the switch", phases[1].From, phases[2].From)
	return errors.Join(
		benchlab.Draw(dir, "duet-11.svg", plan.Chart{Title: "µs until a ping is answered", Axis: axis, Series: []plan.Line{came}}),
		benchlab.Draw(dir, "duet-11-packets.svg", plan.Chart{Title: "packets a second", Axis: axis, Series: []plan.Line{sent, forwarded}}))
}
