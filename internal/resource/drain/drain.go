// Package drain takes switches out of service and back: no VIP goes into one that is drained, and those in it leave by the
// phases of package placementpolicy.
package drain

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

// maxListed bounds the VIPs that an answer names.
const maxListed = 1000

// Switches serves the calls.
type Switches struct {
	Store    *store.Store
	Recorder *events.Recorder
	Now      func() time.Time
	Log      *slog.Logger
}

// DrainSwitch drains a switch. Of one that is drained already it says how far that is.
func (m *Switches) DrainSwitch(ctx context.Context, r *weirv1.DrainSwitchRequest) (*weirv1.DrainSwitchResponse, error) {
	s, generation, changed, err := m.set(ctx, r.GetName(), r.GetDryRun(), m.Now().UTC().Truncate(time.Millisecond))
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	p := &weirv1.DrainSwitchResponse{Generation: uint64(generation), Connected: s.Streams.At(r.GetName())}
	for address := range s.Placements.VIPsOf(r.GetName()) {
		state := s.Placements.At(address)
		place := state.Places[r.GetName()]
		if p.Total++; place.Phase.Occupies() {
			p.Held++
		}
		if len(p.GetVips()) == maxListed {
			continue
		}
		row := &weirv1.DrainedVIP{Vip: state.VIP, Address: address.String(), Phase: string(place.Phase)}
		for _, other := range state.Switches() {
			if other != r.GetName() && state.Places[other].Serving() && s.Nodes.At(other).Drained.IsZero() {
				row.Switches = append(row.Switches, other)
			}
		}
		p.Vips = append(p.Vips, row)
	}
	if changed {
		m.tell(ctx, r.GetName(), reason.SwitchDrained, fmt.Sprintf("is drained: %d VIPs leave it", p.GetHeld()))
	}
	return p, nil
}

// UndrainSwitch undoes the drain of a switch.
func (m *Switches) UndrainSwitch(ctx context.Context, r *weirv1.UndrainSwitchRequest) (*weirv1.UndrainSwitchResponse, error) {
	s, generation, changed, err := m.set(ctx, r.GetName(), r.GetDryRun(), time.Time{})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	p := &weirv1.UndrainSwitchResponse{Generation: uint64(generation)}
	for name := range s.Placements.Required() {
		if !hardware.AsksFor(s.VIPs.At(name), r.GetName()) {
			continue
		}
		if p.Total++; len(p.GetVips()) < maxListed {
			p.Vips = append(p.Vips, name)
		}
	}
	if changed {
		m.tell(ctx, r.GetName(), reason.SwitchUndrained, fmt.Sprintf("is drained no more: %d VIPs may go into it", p.GetTotal()))
	}
	return p, nil
}

// set has the switch be drained since then, or not at all; with dryRun nothing is written. It returns a State and its
// generation, and whether that differs from the one before.
func (m *Switches) set(ctx context.Context, name string, dryRun bool, since time.Time) (s *store.State, generation model.Generation, changed bool, err error) {
	decide := func(now *store.State) (change store.Change, err error) {
		s = now
		node, there := s.Nodes.Get(name)
		switch {
		case !there:
			return change, apierr.NotFound("switch", name, s.Nodes, isSwitch)
		case !isSwitch(node):
			return change, &model.FieldError{Field: "name", Reason: fmt.Sprintf("must be the name of a switch: %s is a %s", name, node.Role)}
		}
		if changed = node.Drained.IsZero() != since.IsZero(); changed {
			node.Drained = since
			change.Nodes = []model.Node{node}
		}
		return change, nil
	}
	if dryRun {
		s = m.Store.State()
		_, err = decide(s)
		return s, s.Generation, false, err
	}
	generation, err = m.Store.Update(ctx, decide)
	return s, generation, changed, err
}

func isSwitch(n model.Node) bool { return n.Role == model.RoleSwitch }

func (m *Switches) tell(ctx context.Context, name, why, message string) {
	m.Recorder.RecordCall(ctx, eventlog.Event{Kind: string(model.RoleSwitch), Object: name, Reason: why, Message: message})
	m.Log.Info("switch "+message, "node", name)
}
