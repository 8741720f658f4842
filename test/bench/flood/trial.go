package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/load"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netload"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

const (
	settle   = 3 * time.Second         // before the first flood
	gap      = time.Second             // behind each: what began in it counts as well
	patience = 2500 * time.Millisecond // of a client: after two SYNs its connection is lost
	// grace is what a flood is given until the victim's own clients are to be served.
	grace = time.Second
)

// series is floods of one kind, one after the other, at one base load.
type series struct {
	Mode string     `json:"mode"`
	Kind flood.Kind `json:"kind"`
	Load string     `json:"load"`
	Rate int        `json:"connections_per_s"` // of all clients

	Trials  []trial `json:"trials"`
	Seconds []bin   `json:"seconds"` // since the beginning of a flood, of all trials
	Machine float64 `json:"machine_cpu"`
	// Changes of the muxes' sessions while the series ran: none are expected.
	Sessions netlab.Sessions `json:"sessions_changed"`
}

// trial is one flood.
type trial struct {
	Victim int       `json:"victim"` // tenant
	Began  time.Time `json:"began"`
	Rate   float64   `json:"packets_per_s"`
	Ended  time.Time `json:"ended"`     // with what follows the flood
	Detect []float64 `json:"detect_ms"` // of each mux and family, until it answered SYNs itself
	Gone   []float64 `json:"gone_ms"`   // of each family, until the router had no way to the VIP any more
	Others tally     `json:"others"`    // clients of the other tenants
	Own    tally     `json:"own"`       // of the victim
	Late   tally     `json:"own_late"`  // of these, those that began grace after the flood did
}

// tally counts connections.
type tally struct {
	Connections int     `json:"connections"`
	Failed      int     `json:"failed"`
	Again       int     `json:"sent_again"` // of those made, in which the client sent a segment again
	Slowest     float64 `json:"slowest_ms"` // of those made
}

func (t *tally) add(a load.Attempt) {
	t.Connections++
	switch {
	case a.Failed:
		t.Failed++
		return
	case a.Again > 0:
		t.Again++
	}
	t.Slowest = max(t.Slowest, float64(a.Took.Microseconds())/1000)
}

func (t *tally) merge(of tally) {
	t.Connections += of.Connections
	t.Failed += of.Failed
	t.Again += of.Again
	t.Slowest = max(t.Slowest, of.Slowest)
}

// lost is the share that failed, in %.
func (t tally) lost() float64 { return 100 * float64(t.Failed) / float64(max(t.Connections, 1)) }

// bin is a second of all trials.
type bin struct {
	Others tally `json:"others"`
	Own    tally `json:"own"`
}

// measureFigure has floods of SYNs in each mode at each base load.
func (w *world) measureFigure(ctx context.Context, how options) (all []series, err error) {
	for _, m := range modes {
		if how.modes != "" && !slices.Contains(strings.Split(how.modes, ","), m.name) {
			continue
		}
		if err := w.apply(ctx, m); err != nil {
			return nil, err
		}
		for _, base := range how.loads {
			s, err := w.measure(ctx, how, m, flood.SYN, base, max(1, how.trials/m.part))
			if err != nil {
				return nil, fmt.Errorf("mode %s, base load %s: %w", m.name, base.Name, err)
			}
			all = append(all, s)
		}
	}
	return all, ctx.Err()
}

// measureKinds has a few floods of each other kind.
func (w *world) measureKinds(ctx context.Context, how options) (all []series, err error) {
	const trials = 3
	if err := w.apply(ctx, modes[0]); err != nil {
		return nil, err
	}
	for _, kind := range flood.Kinds {
		if kind == flood.SYN {
			continue
		}
		s, err := w.measure(ctx, how, modes[0], kind, how.loads[1], min(trials, how.trials))
		if err != nil {
			return nil, fmt.Errorf("%s: %w", kind, err)
		}
		all = append(all, s)
	}
	return all, ctx.Err()
}

// measure floods one tenant after the other while clients of all ask.
func (w *world) measure(ctx context.Context, how options, m mode, kind flood.Kind, base baseLoad, trials int) (series, error) {
	s := series{Mode: m.name, Kind: kind, Load: base.Name, Rate: base.Rate}
	sessions, err := w.sessions()
	if err != nil {
		return s, err
	}
	c, err := w.start(ctx, base.Rate)
	if err != nil {
		return s, err
	}
	pause(ctx, settle)
	before, err := benchlab.MachineUsed()
	if err != nil {
		return s, err
	}
	for n := range trials {
		if ctx.Err() != nil {
			break
		}
		t, err := w.flood(n%tenants, flood.Config{Kind: kind, Rate: how.rate, Duration: how.lasts})
		if err != nil {
			return s, errors.Join(err, c.abandon())
		}
		pause(ctx, gap)
		if t.Ended, err = w.back(ctx, t.Victim); err != nil {
			return s, errors.Join(err, c.abandon())
		}
		s.Trials = append(s.Trials, t)
		pause(ctx, m.rest)
	}
	after, err := benchlab.MachineUsed()
	if err != nil {
		return s, errors.Join(err, c.abandon())
	}
	s.Machine = 100 * float64(after.Busy-before.Busy) / float64(max(after.All-before.All, 1))
	if err := c.end(&s); err != nil {
		return s, err
	}
	if s.Sessions, err = w.changed(sessions); err != nil {
		return s, err
	}
	w.detected(&s)
	s.print()
	return s, ctx.Err()
}

// flood floods a tenant, by both families.
func (w *world) flood(victim int, config flood.Config) (trial, error) {
	for _, vip := range vipsOf(victim) {
		config.Targets = append(config.Targets, netip.AddrPortFrom(vip, 80))
	}
	stop := w.watchRoutes(vipsOf(victim))
	r, err := netload.Flood(w.lab, attacker, config)
	gone := stop()
	t := trial{Victim: victim, Began: r.Began, Ended: time.Now(), Rate: float64(r.Packets) / max(r.Took.Seconds(), 1e-9)}
	for _, at := range gone {
		t.Gone = append(t.Gone, float64(at.Sub(r.Began).Microseconds())/1000)
	}
	return t, err
}

// crowd is the clients of all VIPs.
type crowd map[netip.Addr]*netload.Load

// start has clients ask all VIPs, all together at a rate.
func (w *world) start(ctx context.Context, rate int) (crowd, error) {
	c := crowd{}
	for _, vip := range vips() {
		run, err := netload.StartLoad(ctx, w.lab, clients, load.Config{
			URL: "http://" + netip.AddrPortFrom(vip, 80).String() + "/", Rate: rate / len(vips()), Duration: time.Hour, Timeout: patience, Record: true,
		})
		if err != nil {
			return nil, errors.Join(err, c.abandon())
		}
		c[vip] = run
	}
	return c, nil
}

// abandon ends the clients, whatever they noticed.
func (c crowd) abandon() (err error) {
	for _, run := range c {
		_, failed := run.Stop()
		err = errors.Join(err, failed)
	}
	return err
}

// end ends the clients, and counts what each trial did to them.
func (c crowd) end(s *series) error {
	for tenant := range tenants {
		for _, vip := range vipsOf(tenant) {
			r, err := c[vip].Stop()
			if err != nil {
				return err
			}
			for _, a := range r.Attempts {
				s.count(tenant, a)
			}
		}
	}
	return nil
}

func (s *series) count(tenant int, a load.Attempt) {
	for i := range s.Trials {
		t := &s.Trials[i]
		at := a.Started.Sub(t.Began)
		if at < 0 || a.Started.After(t.Ended) {
			continue
		}
		for len(s.Seconds) <= int(at/time.Second) {
			s.Seconds = append(s.Seconds, bin{})
		}
		second := &s.Seconds[at/time.Second]
		if tenant != t.Victim {
			t.Others.add(a)
			second.Others.add(a)
			continue
		}
		t.Own.add(a)
		second.Own.add(a)
		if at >= grace {
			t.Late.add(a)
		}
	}
}

// all are the tallies of all trials together.
func (s *series) all() (others, own, late tally) {
	for _, t := range s.Trials {
		others.merge(t.Others)
		own.merge(t.Own)
		late.merge(t.Late)
	}
	return others, own, late
}
