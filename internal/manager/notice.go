package manager

import (
	"context"
	"fmt"
	"time"

	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// noticeTime is the time between two looks at what changed: a condition that comes and goes between them
// was not there.
const noticeTime = time.Second

// notice notes the conditions of VIPs and what happens, until ctx ends.
func (m *Manager) notice(ctx context.Context) error {
	epoch, _ := m.store.Epoch()
	m.events.Record(store.Event{Kind: events.KindManager, Object: m.cfg.Name, Reason: "LeaderElected", Message: fmt.Sprintf("leads, in epoch %d", epoch)})
	n := statusController{manager: m, pending: map[string]bool{}}
	for {
		state, changed := m.store.Watch()
		if err := n.look(ctx, m.hub.Show(state)); err != nil && ctx.Err() == nil {
			m.log.Warn("conditions of VIPs are not noted", "err", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(m.noticing):
		}
	}
}

// statusController compares each State with the one before.
type statusController struct {
	manager *Manager
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

// look notes what is new in s. What could not be noted is looked at again with the next State.
func (n *statusController) look(ctx context.Context, s *store.State) error {
	muxes := n.paced(floorOf(s), n.manager.now())
	names := n.touched(s, muxes)
	if n.last != nil {
		for _, e := range nodeEvents(n.last, s, s.Since(n.last)) {
			n.manager.events.Record(e)
		}
	}
	conditions, now := map[string]store.Conditions{}, n.manager.now()
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
		c := conditionsOf(s, vip)
		if c.programmed.status == isTrue {
			delete(n.pending, name)
		} else {
			n.pending[name] = true
		}
		next, same := c.noted(before, now)
		if same && noted {
			continue
		}
		conditions[name] = next
		for _, e := range conditionEvents(vip, before, c) {
			n.manager.events.Record(e)
		}
	}
	n.last, n.muxes = s, muxes
	if err := n.manager.store.PutConditions(ctx, conditions, gone); err != nil {
		n.last = nil // look at everything again
		return err
	}
	return nil
}

// allPause is how many looks lie between two in which all VIPs are looked at for what muxes say: one that takes back what
// it said, over and over, would have all conditions written each time.
const allPause = 10

// paced is what muxes say, or what they said before if that was just looked at for all VIPs: they are looked at later.
func (n *statusController) paced(said muxFloor, now time.Time) muxFloor {
	if n.last == nil || said.floor >= n.muxes.floor && said.refused == n.muxes.refused {
		return said
	}
	if now.Sub(n.all) < allPause*n.manager.noticing {
		said.floor, said.refused = n.muxes.floor, n.muxes.refused
		return said
	}
	n.all = now
	return said
}

// touched are the names of the VIPs whose conditions may differ from the last State.
func (n *statusController) touched(s *store.State, muxes muxFloor) map[string]bool {
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
	delta := s.Since(n.last)
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
func conditionEvents(vip model.VIP, before store.Conditions, c conditions) []store.Event {
	var happened []store.Event
	add := func(now condition, before string) {
		if before == now.reason || now.reason == reasonPending {
			return
		}
		happened = append(happened, store.Event{
			Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: now.status != isTrue && now.reason != reasonNotYet,
			Reason: now.reason, Message: now.message,
		})
	}
	add(c.programmed, before.Programmed.Reason)
	add(c.healthy, before.Healthy.Reason)
	return happened
}

// nodeEvents are what nodes and backends tell from one State to the next.
func nodeEvents(last, s *store.State, delta store.Delta) []store.Event {
	var happened []store.Event
	add := func(node model.Node, warning bool, reason, format string, args ...any) {
		happened = append(happened, store.Event{
			Kind: string(node.Role), Object: node.Name, Warning: warning, Reason: reason, Message: fmt.Sprintf(format, args...),
		})
	}
	for name := range delta.Nodes {
		if node, gone := last.Nodes.Get(name); gone && !s.Nodes.Has(name) {
			add(node, false, "Deleted", "forgotten")
		}
	}
	for name := range delta.Streams {
		node := s.Nodes.At(name)
		before, now := last.Streams.Has(name), s.Streams.Has(name)
		switch {
		case node.Name == "" || before == now:
		case now:
			add(node, false, "Joined", "connected, version %s", node.Version)
		default:
			add(node, true, "Lost", "its stream ended; it ran generation %d", s.Status.At(name).Generation)
		}
	}
	for name := range delta.Status {
		node, now := s.Nodes.At(name), s.Status.At(name)
		if node.Name != "" && now.Rejected > last.Status.At(name).Rejected {
			add(node, true, reasonRejected, "refused generation %d: %s", now.Rejected, now.Reason)
		}
	}
	for host := range delta.Health {
		happened = append(happened, healthEvents(last, s, host)...)
	}
	return happened
}

// healthEvents are what a host tells of its backends. They are of their VIP, a line for each backend.
func healthEvents(last, s *store.State, host string) []store.Event {
	var happened []store.Event
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
		e := store.Event{Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Source: host, Reason: "BackendHealthy"}
		e.Message = fmt.Sprintf("backend %s is %s", key.Backend, now.Health)
		if now.Health == model.HealthUnhealthy {
			e.Warning, e.Reason = true, "BackendUnhealthy"
			e.Message += ": " + now.Reason
		}
		happened = append(happened, e)
	}
	return happened
}
