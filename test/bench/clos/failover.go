package main

import (
	"context"
	"math"
	"slices"
	"time"
)

// interval is that of the paper's pings.
const interval = 3 * time.Millisecond

// measureFailover has a switch fail that holds two VIPs, and no machine: one alone, one beside another switch, as placement: auto
// has it by default. Pings to these, to a VIP of another switch and to one that muxes serve tell for how long nobody answered.
//
// Of the VIP that it holds alone, each router on the way to a mux has a route up, until it hears of the withdrawal. FRR lets
// each of them wait for 50 ms (the hold time of bgpd's work queue, which can't be set); meanwhile packets go in circles.
func (w *world) measureFailover(ctx context.Context) error {
	const dies = "tor-2-2"
	w.VIPs[0].Switches, w.VIPs[1].Switches, w.VIPs[3].Switches = []string{dies}, []string{"core-2"}, []string{dies, "tor-2-1"}
	ns, err := w.NS("client1")
	if err != nil {
		return err
	}
	var alone, beside []float64
	others := 0
	for range w.how.failures {
		if err := w.Apply(ctx); err != nil {
			return err
		}
		time.Sleep(time.Second)
		p, err := startPinger(ns, interval, w.VIPs[0].Address, w.VIPs[1].Address, w.VIPs[2].Address, w.VIPs[3].Address)
		if err != nil {
			return err
		}
		time.Sleep(time.Second)
		if err := w.Crash(dies); err != nil {
			return err
		}
		time.Sleep(2 * time.Second)
		all, err := p.end()
		if err != nil {
			return err
		}
		w.say("a switch fails: %s without an answer, %d of %d pings lost; where a second switch has the VIP %s, %d lost; to other VIPs %d and %d",
			all[0].gap.Round(time.Millisecond), all[0].lost, all[0].sent, all[3].gap.Round(time.Millisecond), all[3].lost, all[1].lost, all[2].lost)
		alone, beside = append(alone, ms(all[0].gap)), append(beside, ms(all[3].gap))
		others += all[1].lost + all[2].lost
		if err := w.Forget(dies); err != nil {
			return err
		}
		if err := w.Revive(dies); err != nil {
			return err
		}
		if err := w.WaitConnected(ctx, dies); err != nil {
			return err
		}
	}
	w.add("failover_gap_p99_ms", quantile(alone, 0.99))
	w.add("failover_gap_p50_ms", quantile(alone, 0.5))
	w.add("failover_beside_gap_p99_ms", quantile(beside, 0.99))
	w.add("failover_others_lost", float64(others))
	return nil
}

// quantile is the smallest value that is not below so large a part of all.
func quantile(values []float64, part float64) float64 {
	slices.Sort(values)
	return values[min(len(values)-1, max(0, int(math.Ceil(part*float64(len(values))))-1))]
}
