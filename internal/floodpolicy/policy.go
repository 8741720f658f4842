// Package floodpolicy decides when a flooded VIP leaves its switches, which have no guards, for the muxes, and when it may come
// back. Pure: no I/O, no clock.
//
//	in switches ── flooded for a while, and muxes have room ──▶ with muxes ── back-off is over, and calm ──▶ in switches
//
// Muxes answer for the hosts, which see no flood then: so the way back is a trial, and the next back-off is twice as long.
package floodpolicy

import "time"

// State is how far it is with a VIP. The zero value is of a VIP that was not flooded lately.
type State struct {
	Withdrawn bool      `json:"withdrawn,omitempty"` // it is to be in no switch
	Since     time.Time `json:"since,omitzero"`      // that it is so, or is not any more
	Times     uint32    `json:"times,omitempty"`     // withdrawals in a row
}

// Bounds.
const (
	// Rate is how many new sessions stay without an answer in a second at least while a VIP is flooded. Hosts report only such
	// of which most do.
	Rate = 2000
	// floodTime is for how long: longer than a host takes between two counts.
	floodTime = 8 * time.Second

	firstBackOff = 5 * time.Minute
	lastBackOff  = time.Hour
)

// Seen is what the leader sees of a VIP.
type Seen struct {
	Flooded time.Duration // for how long; 0: it is not
	Room    bool          // muxes can take it
	Stays   bool          // its owner has it stay in switches, or it is to be in none
}

// Event is what a step means to people.
type Event string

// The events. The empty string means none.
const (
	Withdrawn Event = "withdrawn"
	NoRoom    Event = "no room" // it would be, and muxes can't take it
	Returns   Event = "returns"
)

// Next is the State that follows s, as of now.
func (s State) Next(seen Seen, now time.Time) (State, Event) {
	switch flooded := seen.Flooded >= floodTime; {
	case s.Withdrawn && (seen.Stays || seen.Flooded == 0 && now.Sub(s.Since) >= BackOff(s.Times)):
		return State{Since: now, Times: s.Times}, Returns
	case s.Withdrawn:
	case flooded && !seen.Stays && !seen.Room:
		return s, NoRoom
	case flooded && !seen.Stays:
		return State{Withdrawn: true, Since: now, Times: min(s.Times, maxTimes-1) + 1}, Withdrawn
	case s.Times > 0 && seen.Flooded == 0 && now.Sub(s.Since) >= lastBackOff:
		return State{}, ""
	}
	return s, ""
}

// maxTimes is when the back-off does not grow any more.
const maxTimes = 6

// BackOff is how long a VIP that was withdrawn so often stays with muxes.
func BackOff(times uint32) time.Duration {
	wait := firstBackOff
	for ; times > 1 && wait < lastBackOff; times-- {
		wait *= 2
	}
	return min(wait, lastBackOff)
}
