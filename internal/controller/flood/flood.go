// Package flood takes VIPs out of switches while they are flooded, by what hosts count and while a manager leads. What
// follows is package floodpolicy; how a VIP leaves, package placement of the controllers.
//
//	hosts: new sessions without an answer ──▶ flooded for a while? ──▶ do muxes have room? ──▶ placements in the store
//
// Invariants: a host's word counts for VIPs alone that it serves, and no single host has a VIP withdrawn that more than two
// serve; at most maxWithdrawn VIPs are withdrawn at a time, so that no flood has muxes serve what switches did.
package flood

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/floodpolicy"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/backlog"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

const (
	interval = time.Second
	// holdTime is for how long a VIP counts as flooded after hosts said so last.
	holdTime = 5 * time.Second
	// maxWithdrawn bounds the VIPs that are withdrawn at a time.
	maxWithdrawn = 4
	// quorum is how many hosts must say it, or all but one of those that serve the VIP, if they are fewer.
	quorum = 2
	// maxReported is how many VIPs of a host count.
	maxReported = 64
)

// Controller takes VIPs out of switches.
type Controller struct {
	Store   *store.Store
	Reports *reported.Source
	Events  interface{ Record(eventlog.Event) }
	Now     func() time.Time
	Log     *slog.Logger
}

// Run decides until ctx ends. Which VIPs are withdrawn is in the store; for how long they have been flooded begins anew with
// each leader.
func (c *Controller) Run(ctx context.Context) error {
	w := c.Watch()
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := w.Step(ctx, c.Store.State(), c.Now()); err != nil && ctx.Err() == nil {
			c.Log.Warn("flooded VIPs are not taken out of switches, trying again", "err", err)
		}
	}
}

// flooded is a VIP of which hosts say so.
type flooded struct {
	since, last time.Time
	rate        uint64 // sessions without an answer in a second, at the last look that found any
	told        bool   // that muxes have no room
}

// Watch follows what hosts report.
type Watch struct {
	*Controller

	of        map[netip.Addr]*flooded
	floods    *reported.Part[*weirv1.VIPFlood]    // of hosts
	pressures *reported.Part[*weirv1.VIPPressure] // of muxes
}

// Watch begins to follow what hosts report.
func (c *Controller) Watch() *Watch {
	return &Watch{
		Controller: c, of: map[netip.Addr]*flooded{},
		floods:    reported.New(c.Reports, "floods", func(d *weirv1.NodeStatus) []*weirv1.VIPFlood { return d.GetHost().GetFloods() }),
		pressures: reported.New(c.Reports, "pressures", func(d *weirv1.NodeStatus) []*weirv1.VIPPressure { return d.GetMux().GetPressures() }),
	}
}

// Step looks at what hosts report, and writes what follows, as of now.
func (w *Watch) Step(ctx context.Context, s *store.State, now time.Time) error {
	w.observe(s, now)
	if len(w.due(s, now)) == 0 {
		return nil
	}
	var done []step
	_, err := w.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
		done = w.due(s, now)
		change := store.Change{Placements: map[netip.Addr]placementpolicy.State{}}
		for _, d := range done {
			if d.next.Flood != s.Placements.At(d.vip).Flood {
				change.Placements[d.vip] = d.next
			}
		}
		return change, nil
	})
	if err != nil {
		return err
	}
	for _, d := range done {
		if d.event.Reason == "" {
			continue
		}
		if f := w.of[d.vip]; f != nil && d.event.Reason == reason.HardwareFlooded {
			f.told = true
		}
		w.Events.Record(d.event)
		w.Log.Warn(d.event.Message, "vip", d.event.Object, "reason", d.event.Reason)
	}
	return nil
}

// observe notes since when VIPs are flooded.
func (w *Watch) observe(s *store.State, now time.Time) {
	rates, hosts := map[netip.Addr]uint64{}, map[netip.Addr]int{}
	for node := range s.Nodes.Values() {
		if node.Role != model.RoleHost || !s.Streams.At(node.Name) {
			continue
		}
		said := w.floods.Of(s, node.Name, now)
		for _, f := range said[:min(len(said), maxReported)] {
			address, err := netip.ParseAddr(f.GetVip())
			vip, there := s.VIPAt(address)
			if err != nil || !there || !s.Serves(node.Name, vip.Name) {
				continue
			}
			rates[address] += uint64(f.GetUnanswered())
			hosts[address]++
		}
	}
	for address, rate := range rates {
		vip, _ := s.VIPAt(address)
		all := 0
		for range nodeconfig.BackendHosts(vip) {
			all++
		}
		if rate < floodpolicy.Rate || hosts[address] < min(quorum, all-1) {
			continue
		}
		if w.of[address] == nil {
			w.of[address] = &flooded{since: now}
		}
		w.of[address].last, w.of[address].rate = now, rate
	}
	maps.DeleteFunc(w.of, func(_ netip.Addr, f *flooded) bool { return now.Sub(f.last) >= holdTime })
	w.floods.Forget(s)
	w.pressures.Forget(s)
}

// step is what becomes of a VIP.
type step struct {
	vip   netip.Addr
	next  placementpolicy.State
	event eventlog.Event
}

// due is what becomes of VIPs that are flooded, or were, by address: of those that are withdrawn first, as they may make room.
func (w *Watch) due(s *store.State, now time.Time) (due []step) {
	vips := slices.Collect(maps.Keys(w.of))
	withdrawn := 0
	for vip, state := range s.Placements.All() {
		if state.Flood == (floodpolicy.State{}) {
			continue
		}
		if vips = append(vips, vip); state.Flood.Withdrawn {
			withdrawn++
		}
	}
	slices.SortFunc(vips, func(a, b netip.Addr) int {
		return cmp.Or(-cmp.Compare(out(s, a), out(s, b)), a.Compare(b))
	})
	room := w.muxesHaveRoom(s, now)
	for _, address := range slices.Compact(vips) {
		d, event := w.next(s, address, room && withdrawn < maxWithdrawn, now)
		switch event {
		case floodpolicy.Withdrawn:
			withdrawn++
		case floodpolicy.Returns:
			withdrawn--
		}
		if d.next.Flood != s.Placements.At(address).Flood || d.event.Reason != "" {
			due = append(due, d)
		}
	}
	return due
}

// out is 1 of a VIP that is withdrawn.
func out(s *store.State, vip netip.Addr) int {
	if s.Placements.At(vip).Flood.Withdrawn {
		return 1
	}
	return 0
}

// next is what becomes of a VIP.
func (w *Watch) next(s *store.State, address netip.Addr, room bool, now time.Time) (step, floodpolicy.Event) {
	d := step{vip: address, next: s.Placements.At(address)}
	vip, there := s.VIPAt(address)
	seen := floodpolicy.Seen{Room: room, Stays: !there || !vip.LeavesFloods()}
	f := w.of[address]
	if f != nil {
		seen.Flooded = f.last.Sub(f.since) + 1
	}
	if there {
		d.next.VIP, d.next.Tenant = vip.Name, vip.Tenant
	}
	var event floodpolicy.Event
	d.next.Flood, event = d.next.Flood.Next(seen, now.UTC().Truncate(time.Millisecond))
	e := eventlog.Event{Kind: events.KindVIP, Object: d.next.VIP, Tenant: d.next.Tenant, Warning: true, Reason: reason.HardwareFlooded}
	switch event {
	case floodpolicy.Withdrawn:
		e.Message = fmt.Sprintf("%s: it leaves its switches for %s at least, and muxes serve it", evidence(f.rate), floodpolicy.BackOff(d.next.Flood.Times))
	case floodpolicy.NoRoom:
		if f.told {
			return d, event
		}
		e.Message = fmt.Sprintf("%s: it stays in its switches, as muxes have no room for it", evidence(f.rate))
	case floodpolicy.Returns:
		e.Warning, e.Reason, e.Message = false, reason.HardwareFloodOver, "it may go into switches again"
	default:
		return d, event
	}
	d.event = e
	return d, event
}

func evidence(rate uint64) string {
	return fmt.Sprintf("about %d new sessions a second stay without an answer, most of all", rate)
}

// muxesHaveRoom says whether there are muxes, and none of them has too much to do.
func (w *Watch) muxesHaveRoom(s *store.State, now time.Time) bool {
	there := false
	for mux := range s.MuxNodes() {
		if !s.Streams.Has(mux.Name) {
			continue
		}
		there = true
		for _, p := range w.pressures.Of(s, mux.Name, now) {
			if model.OverloadCause(p.GetCause()) != backlog.Pressure {
				return false
			}
		}
	}
	return there
}
