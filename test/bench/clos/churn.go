package main

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/stream"
	"github.com/weirlb/weir/internal/testkit/fabriclab"
)

const patience = 20 * time.Second

// measureChurn has every fault happen, in drawn order, under connections that were begun by muxes and by a switch.
func (w *world) measureChurn(ctx context.Context) error {
	draw := rand.New(rand.NewPCG(w.how.seed, 0))
	load := fabriclab.Load{Streams: w.how.streams / 2, Interval: w.how.interval, Patience: patience}
	if err := w.Hold(ctx, "begun by the muxes", load); err != nil {
		return err
	}
	if err := w.Place(ctx, "core-1"); err != nil {
		return err
	}
	if err := w.Hold(ctx, "begun by a core", load); err != nil {
		return err
	}
	began := time.Now()
	events := 0
	for range w.how.rounds {
		order := slices.Clone(fabriclab.Faults)
		draw.Shuffle(len(order), func(i, j int) { order[i], order[j] = order[j], order[i] })
		for _, f := range order {
			start := time.Now()
			what, err := f.Do(ctx, w.World, draw)
			if err != nil {
				return err
			}
			events++
			w.say("%s %s %s: %s", start.Format(time.TimeOnly+".000"), f.Name, what, time.Since(start).Round(time.Millisecond))
		}
	}
	streams, broken, err := w.release()
	w.add("broken_under_churn", float64(broken))
	w.add("churn_streams", float64(streams))
	w.add("churn_events", float64(events))
	w.add("churn_s", time.Since(began).Seconds())
	return err
}

// release ends all streams, and counts them.
func (w *world) release() (streams, broken int, err error) {
	all, err := w.Release()
	if err != nil {
		return 0, 0, err
	}
	for _, h := range all {
		r := h.Result
		w.say("%s: %d of %d broken, %d answers, %d datagrams lost, slowest %s", h.Name, r.Broken, r.Opened, r.Blocks, r.Lost, r.Slowest.Round(time.Millisecond))
		for _, late := range slowest(r.Late) {
			w.say("  an answer to %s took %s until %s", late.Local, late.Took.Round(time.Millisecond), late.At.Format(time.TimeOnly+".000"))
		}
		for _, b := range r.Breaks[:min(5, len(r.Breaks))] {
			w.say("  %s to %s: %s, at %s", b.Local, b.Backend, b.Reason, b.At.Format(time.TimeOnly))
		}
		streams, broken = streams+r.Opened, broken+r.Broken
	}
	return streams, broken, nil
}

// slowest are the three answers that took longest.
func slowest(late []stream.Late) []stream.Late {
	slices.SortFunc(late, func(a, b stream.Late) int { return cmp.Compare(b.Took, a.Took) })
	return late[:min(3, len(late))]
}

// measureControl has muxes hand the VIP to a switch while no host takes what others steer.
func (w *world) measureControl(ctx context.Context) error {
	const impatience = 5 * time.Second
	load := fabriclab.Load{Streams: w.how.streams / 4, Interval: 500 * time.Millisecond, Patience: impatience}
	if err := w.Hold(ctx, "without steering", load); err != nil {
		return err
	}
	if err := w.Place(ctx, "core-1"); err != nil {
		return err
	}
	rows, err := w.refuseSteered()
	if err == nil && rows == 0 {
		err = errors.New("no host takes what others hand on: nothing can be refused")
	}
	if err != nil {
		return err
	}
	time.Sleep(impatience + 2*time.Second)
	streams, broken, err := w.release()
	w.add("broken_without_steering", float64(broken)/float64(max(1, streams)))
	return err
}

// refuseSteered has all hosts refuse what others hand on to them, and their agents leave it so. It returns how many rows
// that took.
func (w *world) refuseSteered() (rows int, err error) {
	for _, n := range w.Of(netlab.Host) {
		agent, err := w.Process(n.Name, "weir-agent")
		if err != nil {
			return rows, err
		}
		if err := agent.Signal(unix.SIGSTOP); err != nil {
			return rows, err
		}
		table, err := ebpf.LoadPinnedMap(filepath.Join(w.PinPath(n.Name), "live", "steer_sources"), nil)
		if err != nil {
			return rows, err
		}
		var hosts [][]byte
		var key, role []byte
		for all := table.Iterate(); all.Next(&key, &role); {
			if binary.NativeEndian.Uint32(role) == uint32(bpf.AgentSteerRoleSTEER_HOST) {
				hosts = append(hosts, slices.Clone(key))
			}
		}
		for _, key := range hosts {
			err = errors.Join(err, table.Delete(key))
		}
		rows += len(hosts)
		if err = errors.Join(err, table.Close()); err != nil {
			return rows, err
		}
	}
	return rows, nil
}

// measureHops counts what hosts steer of TCP with timestamps: of connections that a switch began, and of those that it begins
// after muxes served the VIP.
func (w *world) measureHops(ctx context.Context) error {
	for _, c := range []struct{ name, warm string }{{"extra_hops_steady", ""}, {"extra_hops_new_after_move", "moved"}} {
		if c.warm != "" {
			if err := w.Place(ctx); err != nil {
				return err
			}
		}
		if err := w.Place(ctx, "core-1"); err != nil {
			return err
		}
		// The first connections of all teach hosts that their workloads answer with timestamps.
		for _, counted := range []bool{false, true} {
			before, err := w.steered()
			if err != nil {
				return err
			}
			load := fabriclab.Load{Streams: w.how.streams / 4, Interval: 500 * time.Millisecond, Patience: patience}
			if err := w.HoldTimestamps(ctx, c.name, load); err != nil {
				return err
			}
			time.Sleep(3 * time.Second)
			streams, _, err := w.release()
			if err != nil {
				return err
			}
			after, err := w.steered()
			if err != nil {
				return err
			}
			if counted {
				w.add(c.name, float64(after.steered-before.steered)/float64(max(1, after.delivered-before.delivered)))
				w.add(c.name+"_packets", float64(after.delivered-before.delivered))
				w.add(c.name+"_streams", float64(streams))
			}
		}
	}
	return nil
}

type packets struct{ delivered, steered uint64 }

// steered counts what hosts have delivered to workloads, and sent on to other hosts.
func (w *world) steered() (all packets, err error) {
	for _, n := range w.Of(netlab.Host) {
		verdicts, err := w.Verdicts(n.Name)
		if err != nil {
			return all, err
		}
		for name, count := range verdicts {
			switch {
			case strings.HasPrefix(name, "deliver_"):
				all.delivered += count
			case strings.HasPrefix(name, "steered_"), strings.HasPrefix(name, "chain_"):
				all.steered += count
			}
		}
	}
	return all, nil
}
