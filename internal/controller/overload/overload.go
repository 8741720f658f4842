// Package overload takes and ends the steps of VIPs' overload policies, by what muxes report, while a manager leads.
// What a policy does next is package overloadpolicy; which VIP has too much come decides package internal/overload in
// each mux.
package overload

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/controller/reported"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/events/reason"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/overloadpolicy"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/eventlog"
)

const (
	// sampleInterval is the time between two looks at what muxes say of VIPs.
	sampleInterval = 200 * time.Millisecond
	// pressureGap is how long nobody may speak of a VIP until it is calm: the stream of a mux that has too much
	// to do may break.
	pressureGap = 5 * time.Second
	// pressureQuorum is how many muxes must say the same of a VIP, or all that are connected if they are fewer, before its
	// routes change on all of them: a single mux that lies can't have a VIP black-holed, nor diverted to a scrubber.
	pressureQuorum = 2
)

// Controller takes and ends the steps of overload policies.
type Controller struct {
	Store   *store.Store
	Reports *reported.Source
	Events  *events.Recorder
	Steps   *prometheus.CounterVec // by action
	Now     func() time.Time
	Log     *slog.Logger
}

// Run takes and ends the steps of overload policies, until ctx ends. What is in force is in the store; for how
// long muxes have complained begins anew with each leader.
func (c *Controller) Run(ctx context.Context) error {
	watch := c.Watch()
	tick := time.NewTicker(sampleInterval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := watch.Step(ctx, c.Now()); err != nil && ctx.Err() == nil {
			c.Log.Warn("overload policies are not followed, trying again", "err", err)
		}
	}
}

// pressed is a VIP of which a mux complains, and its tenant, if the mux knows; and what for.
type pressed struct {
	address netip.Addr
	tenant  string
	cause   model.OverloadCause
}

// overloadReport is for how long muxes have said the same.
type overloadReport struct {
	since, last   time.Time
	quorum, heard time.Time         // since when, and until when, a quorum says it
	by            map[string]string // mux → evidence, of the last look that found any
}

// Watch follows what muxes say of VIPs.
type Watch struct {
	*Controller

	of   map[pressed]*overloadReport
	said *reported.Part[*weirv1.VIPPressure]
}

// Watch begins to follow what muxes say.
func (c *Controller) Watch() *Watch {
	return &Watch{Controller: c, of: map[pressed]*overloadReport{}, said: reported.New(c.Reports, "pressures", func(d *weirv1.NodeStatus) []*weirv1.VIPPressure {
		return d.GetMux().GetPressures()
	})}
}

// Step looks at what muxes say, and takes and ends steps, as of now.
func (p *Watch) Step(ctx context.Context, now time.Time) error {
	state := p.Store.State()
	p.observe(state, now)
	return p.takeSteps(ctx, state, now)
}

// observe reads the newest reports of connected muxes.
func (p *Watch) observe(s *store.State, now time.Time) {
	said, connected := map[pressed]map[string]string{}, 0
	for mux := range s.MuxNodes() {
		if !s.Streams.Has(mux.Name) {
			continue
		}
		connected++
		for _, v := range p.said.Of(s, mux.Name, now) {
			address, err := netip.ParseAddr(v.GetVip())
			if err != nil {
				continue
			}
			at := pressed{address, v.GetTenant(), model.OverloadCause(v.GetCause())}
			if said[at] == nil {
				said[at] = map[string]string{}
			}
			said[at][mux.Name] = events.CutMessage(v.GetEvidence())
		}
	}
	for at, by := range said {
		if p.of[at] == nil {
			p.of[at] = &overloadReport{since: now}
		}
		p.of[at].last, p.of[at].by = now, by
		p.of[at].count(len(by) >= min(pressureQuorum, connected), now)
	}
	maps.DeleteFunc(p.of, func(_ pressed, c *overloadReport) bool { return now.Sub(c.last) > pressureGap })
	p.said.Forget(s)
}

// count notes whether a quorum of muxes says it now.
func (c *overloadReport) count(enough bool, now time.Time) {
	switch {
	case enough:
		if c.heard = now; c.quorum.IsZero() {
			c.quorum = now
		}
	case now.Sub(c.heard) > pressureGap:
		c.quorum = time.Time{}
	}
}

// on is what muxes say of vip that its policy is about. What they say of another tenant's VIP is not about it.
func (p *Watch) on(vip model.VIP) (worst overloadpolicy.Pressure) {
	if vip.Overload == nil {
		return worst
	}
	var evidence []string
	for at, c := range p.of {
		if at.address != vip.Address || at.tenant != "" && at.tenant != vip.Tenant || !slices.Contains(vip.Overload.Triggers, at.cause) {
			continue
		}
		if worst.Since.IsZero() || c.since.Before(worst.Since) {
			worst.Since = c.since
		}
		if !c.quorum.IsZero() && (worst.Quorum.IsZero() || c.quorum.Before(worst.Quorum)) {
			worst.Quorum = c.quorum
		}
		evidence = append(evidence, c.String())
	}
	slices.Sort(evidence)
	worst.Evidence = strings.Join(evidence, "; ")
	return worst
}

// String is what one mux says, and how many more do.
func (c *overloadReport) String() string {
	muxes := slices.Sorted(maps.Keys(c.by))
	text := fmt.Sprintf("%s: %s", muxes[0], c.by[muxes[0]])
	if more := len(muxes) - 1; more > 0 {
		text += fmt.Sprintf(" (and %d more)", more)
	}
	return text
}

// concerned are the names of the VIPs of which muxes complain, or of which anything is known.
func (p *Watch) concerned(s *store.State) map[string]bool {
	names := map[string]bool{}
	for at := range p.of {
		if vip, there := s.VIPAt(at.address); there && vip.Overload != nil {
			names[vip.Name] = true
		}
	}
	for name := range s.Steps.Keys() {
		names[name] = true
	}
	return names
}

// stepped is what happened to a VIP's policy.
type stepped struct {
	vip    model.VIP
	before overloadpolicy.State
	after  overloadpolicy.State
	event  overloadpolicy.Event
}

// stepsDue is what becomes of the policies of all VIPs that are concerned.
func stepsDue(s *store.State, p *Watch, now time.Time) (due []stepped) {
	for name := range p.concerned(s) {
		vip, before := s.VIPs.At(name), s.Steps.At(name)
		after, event := before.Next(vip, p.on(vip), now)
		if event != overloadpolicy.Nothing {
			due = append(due, stepped{vip, before, after, event})
		}
	}
	slices.SortFunc(due, func(a, b stepped) int { return cmp.Compare(a.vip.Name, b.vip.Name) })
	return due
}

// takeSteps writes what becomes of the policies, and tells of it. A leader that has lost its lead writes nothing.
func (p *Watch) takeSteps(ctx context.Context, s *store.State, now time.Time) error {
	if len(stepsDue(s, p, now)) == 0 {
		return nil
	}
	var done []stepped
	_, err := p.Store.UpdateAs(ctx, store.Health, func(s *store.State) (store.Change, error) {
		done = stepsDue(s, p, now)
		change := store.Change{Steps: map[string]overloadpolicy.State{}}
		for _, d := range done {
			change.Steps[d.vip.Name] = d.after
		}
		return change, nil
	})
	if err != nil {
		return err
	}
	for _, d := range done {
		p.recordStep(d, now)
	}
	return nil
}

// recordStep tells people what was done about a VIP, and why.
func (c *Controller) recordStep(d stepped, now time.Time) {
	e := eventlog.Event{Kind: events.KindVIP, Object: d.vip.Name, Tenant: d.vip.Tenant}
	switch d.event {
	case overloadpolicy.Taken:
		e.Warning, e.Reason = true, condition.StepReasons[d.after.Action]
		e.Message = fmt.Sprintf("%s, for %s at least: %s", condition.StepText(d.vip, d.after.Action), d.after.HoldDown, d.after.Evidence)
		c.Steps.WithLabelValues(string(d.after.Action)).Inc()
		c.Log.Warn("overload step taken", "vip", d.vip.Name, "action", d.after.Action, "reason", d.after.Evidence)
	case overloadpolicy.Restored:
		e.Reason, e.Message = reason.Restored, fmt.Sprintf("as usual again, %s after the first step", now.Sub(d.before.Began).Round(time.Second))
		c.Log.Info("overload steps ended", "vip", d.vip.Name)
	case overloadpolicy.Withdrawn:
		if d.vip.Name == "" {
			return // it is gone itself
		}
		e.Reason, e.Message = reason.Restored, fmt.Sprintf("as usual again: its overload policy has no %s any more", d.before.Action)
		c.Log.Info("overload steps ended, as the policy has them no more", "vip", d.vip.Name)
	default:
		return
	}
	c.Events.Record(e)
}

// InForce are how many there are, by the last step in force.
func InForce(s *store.State) map[model.OverloadAction]int {
	n := map[model.OverloadAction]int{}
	for _, action := range model.OverloadActions {
		n[action] = 0
	}
	for name, state := range s.Steps.All() {
		if now := state.Of(s.VIPs.At(name)); now.Action != "" {
			n[now.Action]++
		}
	}
	return n
}
