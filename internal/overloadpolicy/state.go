package overloadpolicy

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// memory is how long after its end an episode is remembered at least: pressure that begins in it is a relapse. A
// longer hold-down is remembered for as long as it was.
const memory = time.Minute

// State is how far a VIP's policy is in force. The zero value is of a VIP of which nothing is.
type State struct {
	Address  netip.Addr           `json:"address"` // of the VIP, and its tenant: of another one nothing is in force
	Tenant   string               `json:"tenant"`
	Action   model.OverloadAction `json:"action,omitempty"` // of the last step taken; empty: none is in force
	Since    time.Time            `json:"since,omitzero"`   // of that
	Until    time.Time            `json:"until,omitzero"`   // it lasts at least
	HoldDown time.Duration        `json:"holdDown"`         // of the episode, in nanoseconds
	Reached  model.OverloadAction `json:"reached"`          // the farthest of the episode
	Began    time.Time            `json:"began"`            // when its first step was taken
	Ended    time.Time            `json:"ended,omitzero"`   // when Action was empty again
	Evidence string               `json:"evidence"`         // that the last step was taken for
}

// Pressure is what muxes say of a VIP. The zero value is calm.
type Pressure struct {
	Since time.Time
	// Quorum is since when so many muxes say it that a single one can't have made it up; zero: they do not.
	Quorum   time.Time
	Evidence string
}

// Event is what happened to a State.
type Event int

// The events.
const (
	Nothing   Event = iota
	Taken           // a step, or several
	Restored        // all steps ended, as it is calm and their time is over
	Withdrawn       // all steps ended, as the policy does not have the last one any more
	Forgotten       // the last episode is
)

// Of is s if it is of the VIP as it is now, or else nothing.
func (s State) Of(vip model.VIP) State {
	if s.Address != vip.Address || s.Tenant != vip.Tenant || s.Action != "" && vip.Overload.Step(s.Action) < 0 {
		return State{}
	}
	return s
}

// InForce are the steps of vip's policy that are in force.
func (s State) InForce(vip model.VIP) []model.OverloadStep {
	if s = s.Of(vip); s.Action == "" {
		return nil
	}
	return vip.Overload.Steps[:vip.Overload.Step(s.Action)+1]
}

// Next is what becomes of s, the state of vip, at a time.
func (s State) Next(vip model.VIP, pressure Pressure, now time.Time) (State, Event) {
	if s.Action != "" && s.Of(vip).Action == "" {
		return State{}, Withdrawn
	}
	policy, pressed := vip.Overload, !pressure.Since.IsZero()
	if s.Address.IsValid() && (policy == nil || s.Of(vip) == State{} || !pressed && s.Action == "" && now.Sub(s.Ended) >= s.remembered()) {
		return State{}, Forgotten
	}
	step := policy.Step(s.Action)
	switch {
	case !pressed && step >= 0 && !now.Before(s.Until):
		s.Action, s.Since, s.Until, s.Ended = "", time.Time{}, time.Time{}, now
		return s, Restored
	case !pressed || policy == nil || step+1 == len(policy.Steps):
		return s, Nothing
	}
	since := pressure.since(policy.Steps[step+1].Action)
	if since.IsZero() {
		return s, Nothing
	}
	if s.Since.After(since) {
		since = s.Since
	}
	if now.Sub(since) < policy.Steps[step+1].After {
		return s, Nothing
	}
	return s.escalate(vip, step+1, pressure, now), Taken
}

// since is the time since which there is enough pressure for an action. One that changes a VIP's routes on all muxes
// takes a quorum.
func (p Pressure) since(action model.OverloadAction) time.Time {
	if action == model.ActionLimit {
		return p.Since
	}
	return p.Quorum
}

// escalate takes the next step, and those after it up to the farthest of an episode that has ended only just.
func (s State) escalate(vip model.VIP, step int, pressure Pressure, now time.Time) State {
	policy := vip.Overload
	if s.Action == "" {
		relapse := !s.Ended.IsZero() && pressure.Since.Sub(s.Ended) < s.remembered()
		holdDown := policy.HoldDown
		if relapse {
			if farthest := policy.Step(s.Reached); farthest > step && !pressure.since(s.Reached).IsZero() {
				step = farthest
			}
			holdDown = max(holdDown, min(2*s.HoldDown, policy.MaxHoldDown))
		}
		s = State{Address: vip.Address, Tenant: vip.Tenant, HoldDown: holdDown, Began: now}
	}
	s.Action, s.Since, s.Until, s.Evidence = policy.Steps[step].Action, now, now.Add(s.HoldDown), pressure.Evidence
	s.Reached = s.Action
	return s
}

func (s State) remembered() time.Duration { return max(s.HoldDown, memory) }
