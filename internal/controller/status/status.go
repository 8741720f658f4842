// Package status notes the conditions of VIPs in the store, and records events of what happens to VIPs and nodes, while
// a manager leads.
package status

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/store/vipstatus"
)

// DefaultInterval is the time between two looks at what changed: a condition that comes and goes between them
// was not there.
const DefaultInterval = time.Second

// Controller notes conditions.
type Controller struct {
	Name         string // of this manager
	Store        *store.Store
	WithProgress func(*store.State) *store.State                                        // as users are shown it
	Reported     func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) // newest of a node
	Events       *events.Recorder
	Interval     time.Duration // between two looks
	Now          func() time.Time
	Log          *slog.Logger
}

// Run notes the conditions of VIPs and what happens, until ctx ends.
func (c *Controller) Run(ctx context.Context) error {
	epoch, _ := c.Store.Election.Epoch()
	c.Events.Record(eventlog.Event{Kind: events.KindManager, Object: c.Name, Reason: reason.LeaderElected, Message: fmt.Sprintf("leads, in epoch %d", epoch)})
	n := comparison{Controller: c, pending: map[string]bool{}}
	for {
		state, changed := c.Store.Watch()
		if err := n.recordChanges(ctx, c.WithProgress(state)); err != nil && ctx.Err() == nil {
			c.Log.Warn("conditions of VIPs are not noted", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(c.Interval):
		}
	}
}

// comparison compares each State with the one before.
type comparison struct {
	*Controller

	last    *store.State
	muxes   muxFloor
	all     time.Time       // when all VIPs were looked at for what a mux said
	pending map[string]bool // VIPs that some mux does not run yet
}

// muxFloor is what muxes say that decides about all VIPs.
type muxFloor struct {
	connected int
	floor     model.Generation // that all of them run
	refused   model.Generation // the newest one that one of them refused
}

func floorOf(s *store.State) muxFloor {
	f := muxFloor{}
	for mux := range s.MuxNodes() {
		said := s.Status.At(mux.Name)
		if !s.Streams.Has(mux.Name) || said.Generation == 0 && said.Rejected == 0 {
			continue
		}
		if f.connected++; f.connected == 1 || said.Generation < f.floor {
			f.floor = said.Generation
		}
		f.refused = max(f.refused, said.Rejected)
	}
	return f
}

// recordChanges records conditions and events of what is new in s. What fails is tried again with the next State.
func (n *comparison) recordChanges(ctx context.Context, s *store.State) error {
	muxes := n.paced(floorOf(s), n.Now())
	names := n.touched(s, muxes)
	if n.last != nil {
		delta := s.DeltaSince(n.last)
		for _, e := range append(n.nodeEvents(n.last, s, delta), networkEvents(n.last, s, delta)...) {
			n.Events.Record(e)
		}
	}
	conditions, now := map[string]vipstatus.Conditions{}, n.Now()
	var gone []string
	for name := range names {
		before, noted := s.Conditions.Get(name)
		vip, there := s.VIPs.Get(name)
		if !there {
			delete(n.pending, name)
			if noted {
				gone = append(gone, name)
			}
			continue
		}
		c := condition.Of(s, vip)
		if c.Programmed.Status == condition.True {
			delete(n.pending, name)
		} else {
			n.pending[name] = true
		}
		next, same := c.Noted(before, now)
		if same && noted {
			continue
		}
		conditions[name] = next
		for _, e := range conditionEvents(vip, before, c) {
			n.Events.Record(e)
		}
	}
	n.last, n.muxes = s, muxes
	if err := n.Store.Conditions.Put(ctx, conditions, gone); err != nil {
		n.last = nil // look at everything again
		return err
	}
	return nil
}

// allPause is how many looks lie between two in which all VIPs are looked at for what muxes say: one that takes back
// what it said, over and over, would have all conditions written each time.
const allPause = 10

// paced is what muxes say, or what they said before if that was just looked at for all VIPs: they are looked at later.
func (n *comparison) paced(said muxFloor, now time.Time) muxFloor {
	if n.last == nil || said.floor >= n.muxes.floor && said.refused == n.muxes.refused {
		return said
	}
	if now.Sub(n.all) < allPause*n.Interval {
		said.floor, said.refused = n.muxes.floor, n.muxes.refused
		return said
	}
	n.all = now
	return said
}

// touched are the names of the VIPs whose conditions may differ from the last State.
func (n *comparison) touched(s *store.State, muxes muxFloor) map[string]bool {
	names := map[string]bool{}
	all := n.last == nil || muxes.connected == 0 != (n.muxes.connected == 0) || muxes.floor < n.muxes.floor || muxes.refused != n.muxes.refused
	if all {
		for name := range s.VIPs.Keys() {
			names[name] = true
		}
		for name := range s.Conditions.Keys() {
			names[name] = true
		}
		return names
	}
	delta := s.DeltaSince(n.last)
	for name := range delta.VIPs {
		names[name] = true
	}
	for key := range delta.Tables {
		if vip, there := s.VIPAt(key.VIP); there {
			names[vip.Name] = true
		}
	}
	for host := range delta.Health {
		for vip := range s.VIPsOn(host) {
			names[vip.Name] = true
		}
	}
	for name := range n.pending {
		names[name] = true
	}
	return names
}

// conditionEvents are what a VIP's conditions tell, after those that were noted before.
func conditionEvents(vip model.VIP, before vipstatus.Conditions, c condition.Conditions) []eventlog.Event {
	var happened []eventlog.Event
	add := func(now condition.Condition, before string) {
		if before == now.Reason || now.Reason == condition.ReasonPending {
			return
		}
		happened = append(happened, eventlog.Event{
			Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: now.Status != condition.True && now.Reason != condition.ReasonNotYet,
			Reason: now.Reason, Message: now.Message,
		})
	}
	add(c.Programmed, before.Programmed.Reason)
	add(c.Healthy, before.Healthy.Reason)
	return happened
}

// nodeEvents are what nodes and backends tell from one State to the next.
func (c *Controller) nodeEvents(last, s *store.State, delta store.Delta) []eventlog.Event {
	var happened []eventlog.Event
	add := func(node model.Node, warning bool, why, format string, args ...any) {
		happened = append(happened, eventlog.Event{
			Kind: string(node.Role), Object: node.Name, Warning: warning, Reason: why, Message: fmt.Sprintf(format, args...),
		})
	}
	for name := range delta.Nodes {
		if node, gone := last.Nodes.Get(name); gone && !s.Nodes.Has(name) {
			add(node, false, reason.Deleted, "forgotten")
		}
	}
	for name := range delta.Streams {
		node := s.Nodes.At(name)
		before, now := last.Streams.Has(name), s.Streams.Has(name)
		switch {
		case node.Name == "" || before == now:
		case now:
			add(node, false, reason.Joined, "connected, version %s", node.Version)
		default:
			said, _ := c.Reported(s, node)
			add(node, true, reason.Lost, "its stream ended; it ran generation %d", said.Generation)
		}
	}
	for name := range delta.Status {
		node, now := s.Nodes.At(name), s.Status.At(name)
		if node.Name != "" && now.Rejected > last.Status.At(name).Rejected {
			add(node, true, condition.ReasonRejected, "refused generation %d: %s", now.Rejected, now.Reason)
		}
	}
	for host := range delta.Health {
		happened = append(happened, healthEvents(last, s, host)...)
	}
	return happened
}

// healthEvents are what a host tells of its backends. They are of their VIP, a line for each backend.
func healthEvents(last, s *store.State, host string) []eventlog.Event {
	var happened []eventlog.Event
	before := last.Health.At(host)
	for key, now := range s.Health.At(host) {
		old, known := before[key]
		if known && old.Health == now.Health || !known && now.Health != model.HealthUnhealthy {
			continue
		}
		vip, there := s.VIPAt(key.Endpoint.VIP)
		if !there {
			continue
		}
		e := eventlog.Event{Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Source: host, Reason: reason.BackendHealthy}
		e.Message = fmt.Sprintf("backend %s is %s", key.Backend, now.Health)
		if now.Health == model.HealthUnhealthy {
			e.Warning, e.Reason = true, reason.BackendUnhealthy
			e.Message += ": " + now.Reason
		}
		happened = append(happened, e)
	}
	return happened
}
