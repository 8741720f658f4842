package multipath

import "net/netip"

// Step is how far a packet of a subflow was handed on: as enum gue_chain. It only grows, so there are no loops.
type Step uint8

// The steps. Those between are of daisy chaining.
const (
	StepNone     Step = 0 // a mux or a switch brought it
	StepHome     Step = 4 // to the token's first home
	StepHomeNext Step = 5 // to the second one
	StepHolder   Step = 6 // to the host that has the connection
)

// Verdict is what a host does with a packet.
type Verdict string

// The verdicts.
const (
	Deliver     Verdict = "deliver"      // to the workload behind To
	AskHome     Verdict = "join_home"    // hands it on to a home
	HandOn      Verdict = "join_on"      // hands it on to the connection's host
	DropUnknown Verdict = "join_unknown" // nobody has the token: the client tries again
)

// Decision is what becomes of a packet.
type Decision struct {
	Verdict Verdict
	To      netip.Addr // a tunnel
	Step    Step       // that it is handed on with
}

// Arrival is what a host knows where a SYN with MP_JOIN has come to it. No address: nothing.
type Arrival struct {
	Tunnel netip.Addr    // that the packet came to
	Own    netip.Addr    // a tunnel of this host whose workload has the token
	Named  netip.Addr    // whoever has it, by what this host was told as its home
	Homes  [2]netip.Addr // of the token, by this host's table
	Here   func(netip.Addr) bool
}

// Join says what becomes of a SYN with MP_JOIN. A host delivers what it has itself, or was told by a home that it has: never
// what it only guesses, for a reset ends a subflow for good.
func Join(step Step, at Arrival) Decision {
	if step == StepHolder {
		return Decision{Verdict: Deliver, To: at.Tunnel}
	}
	if at.Own.IsValid() {
		return Decision{Verdict: Deliver, To: at.Own}
	}
	if at.Named.IsValid() {
		if at.Here(at.Named) {
			return Decision{Verdict: Deliver, To: at.Named}
		}
		return Decision{Verdict: HandOn, To: at.Named, Step: StepHolder}
	}
	first, second := at.Homes[0], at.Homes[1]
	switch {
	case step < StepHome && first.IsValid() && !at.Here(first):
		return Decision{Verdict: AskHome, To: first, Step: StepHome}
	case step < StepHomeNext && second.IsValid() && !at.Here(second):
		return Decision{Verdict: AskHome, To: second, Step: StepHomeNext}
	case step == StepHome && first.IsValid() && !at.Here(first): // by this host's table it is the second
		return Decision{Verdict: AskHome, To: first, Step: StepHomeNext}
	}
	return Decision{Verdict: DropUnknown}
}
