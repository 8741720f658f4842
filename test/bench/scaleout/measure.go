package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/lab/flood"
)

const (
	patience = 2 * time.Minute        // for a mux's route
	longest  = 10 * time.Minute       // of the SYNs
	every    = 250 * time.Millisecond // samples are taken
	polled   = 50 * time.Millisecond  // is the router for routes
	risen    = 0.95                   // of the rate of a step's end, that ends a rise
)

// sample is what muxes forwarded in a short time.
type sample struct {
	At        float64 `json:"at_s"`
	Muxes     int     `json:"muxes"` // that the router has a route to
	Forwarded float64 `json:"forwarded_per_s"`
}

func (w *world) measure(ctx context.Context) (r *report, err error) {
	r = &report{Connections: w.how.connections, Linear: 1}
	group, before, err := w.open(ctx)
	if err != nil {
		return nil, fmt.Errorf("open connections: %w", err)
	}
	defer func() { err = errors.Join(err, group.Close()) }()
	stop, err := w.flood(ctx)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, stop()) }()
	began := time.Now()
	for n := 1; n <= w.how.muxes; n++ {
		s := step{Muxes: n}
		from := time.Now()
		if n > 1 {
			if err := w.lab.Join(muxName(n)); err != nil {
				return nil, err
			}
			if s.Join, err = w.waitRouted(ctx, n); err != nil {
				return nil, err
			}
		}
		routed := time.Now()
		first := len(r.Samples)
		if err := w.watch(ctx, r, n, began, from.Add(w.how.step)); err != nil {
			return nil, err
		}
		if err := s.settle(r.Samples[first:], routed.Sub(began).Seconds()); err != nil {
			return nil, err
		}
		s = r.add(s)
		fmt.Printf("%d muxes: %.0f SYNs a second forwarded, %.3f of linear; %.1f s until the route, %.2f s from there\n",
			n, s.Forwarded, s.ToLinear, s.Join, s.Rise)
	}
	return r, r.notice(ctx, group, before)
}

// add adds a step, compared with the first.
func (r *report) add(s step) step {
	one := s.Forwarded
	if len(r.Steps) > 0 {
		one = r.Steps[0].Forwarded
	}
	s.ToLinear = s.Forwarded / one / float64(s.Muxes)
	r.Linear, r.Join, r.Rise = min(r.Linear, s.ToLinear), max(r.Join, s.Join), max(r.Rise, s.Rise)
	r.Steps = append(r.Steps, s)
	return s
}

// settle reads rate and rise of samples; the later half of them is the rate.
func (s *step) settle(samples []sample, routed float64) error {
	late := samples[len(samples)/2:]
	if len(late) == 0 {
		return errors.New("the step was over before it was looked at: make it longer")
	}
	for _, of := range late {
		s.Forwarded += of.Forwarded / float64(len(late))
	}
	for _, of := range samples {
		if of.Forwarded >= risen*s.Forwarded {
			s.Rise = max(of.At-routed, 0)
			break
		}
	}
	return nil
}

// watch takes samples until a time, and for a while by all means.
func (w *world) watch(ctx context.Context, r *report, muxes int, began, until time.Time) error {
	if least := time.Now().Add(w.how.step / 2); until.Before(least) {
		until = least
	}
	before, at, err := w.count(muxes)
	if err != nil {
		return err
	}
	for time.Now().Before(until) {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(every):
		}
		now, then, err := w.count(muxes)
		if err != nil {
			return err
		}
		r.Samples = append(r.Samples, sample{then.Sub(began).Seconds(), muxes, float64(now-before) / then.Sub(at).Seconds()})
		before, at = now, then
	}
	return nil
}

// count is what the first muxes have forwarded up to a time.
func (w *world) count(muxes int) (sum uint64, at time.Time, err error) {
	for n := 1; n <= muxes; n++ {
		count, err := w.forwarded(n)
		if err != nil {
			return 0, at, err
		}
		sum += count
	}
	return sum, time.Now(), nil
}

// waitRouted waits until the router sends SYNs to so many muxes, and returns how long that took in seconds.
func (w *world) waitRouted(ctx context.Context, muxes int) (float64, error) {
	began := time.Now()
	for {
		routed, err := w.lab.Routed(floodVIP)
		switch {
		case err != nil:
			return 0, err
		case routed >= muxes:
			return time.Since(began).Seconds(), nil
		case time.Since(began) > patience:
			return 0, fmt.Errorf("the router has routes to %d of %d muxes", routed, muxes)
		}
		select {
		case <-ctx.Done():
			return 0, ctx.Err()
		case <-time.After(polled):
		}
	}
}

// flood sends SYNs, more than all muxes take, until it is stopped.
func (w *world) flood(ctx context.Context) (stop func() error, err error) {
	ns, err := w.lab.NS(attacker)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- ns.Do(func() error {
			_, err := flood.Run(ctx, flood.Config{
				Targets: []netip.AddrPort{netip.AddrPortFrom(floodVIP, 80)}, Kind: flood.SYN,
				Rate: int(surplus * float64(w.how.muxes*w.how.rate)), Duration: longest,
			})
			return err
		})
	}()
	return func() error { cancel(); return <-ended }, nil
}
