package placementpolicy

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/floodpolicy"
)

// Phase is how far a VIP is on its way into a switch, or out of it.
type Phase string

// The phases, in this order.
const (
	Preparing   Phase = "preparing"   // hosts get what they need to take packets from the switch
	Programming Phase = "programming" // the switch gets the entry
	Announcing  Phase = "announcing"  // it tells routers
	Hardware    Phase = "hardware"    // it serves the VIP
	Withdrawing Phase = "withdrawing" // it tells routers no more
	Removing    Phase = "removing"    // it loses the entry
	Leaving     Phase = "leaving"     // hosts still take what it sends
	Evicted     Phase = "evicted"     // it refused, and is asked again later
)

// Phases are all.
var Phases = []Phase{Preparing, Programming, Announcing, Hardware, Withdrawing, Removing, Leaving, Evicted}

// Held says whether the switch is told an entry.
func (p Phase) Held() bool {
	return p == Programming || p == Announcing || p == Hardware || p == Withdrawing
}

// Moves says whether the next step waits for hosts or the switch.
func (p Phase) Moves() bool {
	switch p {
	case Preparing, Programming, Announcing, Withdrawing, Removing:
		return true
	case Hardware, Leaving, Evicted:
	}
	return false
}

// Occupies says whether the switch may hold an entry: it is told one, or has not said that it is gone.
func (p Phase) Occupies() bool { return p.Held() || p == Removing }

// Announced says whether it is told to tell routers.
func (p Phase) Announced() bool { return p == Announcing || p == Hardware }

// Place is where a VIP is of one switch. The zero value is none.
type Place struct {
	Phase    Phase     `json:"phase"`
	Since    time.Time `json:"since"`              // for people: durations are measured by the leader that is
	Reason   string    `json:"reason,omitempty"`   // why it is on its way out, or evicted, or refuses
	Attempts uint32    `json:"attempts,omitempty"` // refusals in a row
	Host     string    `json:"host,omitempty"`     // that does not steer the VIP: the Place waits, or is on its way out, for it
	Part     Part      `json:"part,omitzero"`      // of the VIP's members
	// TIP is the address that other switches send the VIP's packets to; invalid: routers bring them.
	TIP    netip.Addr `json:"tip,omitzero"`
	Named  bool       `json:"named,omitempty"`  // of a TIP: entries of other switches name it
	Silent bool       `json:"silent,omitempty"` // of a TIP: its switch may be dead, so that others are named alone
	// Unrouted says that the switch, which is to announce the VIP, has withdrawn it: it has no route to its tunnels.
	Unrouted bool `json:"unrouted,omitempty"`
}

// NoRoute is why an Unrouted VIP is not served.
const NoRoute = "the switch has no route to its tunnels, and has withdrawn it"

// Serving says whether the switch serves the VIP, and not only is to.
func (p Place) Serving() bool { return p.Phase == Hardware && !p.Unrouted }

// Refuses says whether the switch refused a change, and goes on with what it has because other switches send to its TIP.
func (p Place) Refuses() bool { return p.Phase.Announced() && p.Reason != "" }

// State is where a VIP is. It is read only.
type State struct {
	VIP    string           `json:"vip"` // its name
	Tenant string           `json:"tenant"`
	Places map[string]Place `json:"places"` // by switch

	// Of placement auto: what the leader chose.
	Chosen   []string `json:"chosen,omitempty"`   // switches, in order
	Split    bool     `json:"split,omitempty"`    // each of these has a part
	Unplaced string   `json:"unplaced,omitempty"` // why none are chosen
	KbitPerS uint64   `json:"kbitPerS,omitempty"` // traffic when it was last measured

	Flood floodpolicy.State `json:"flood,omitzero"`
}

// Empty says whether there is nothing to keep.
func (s State) Empty() bool {
	return len(s.Places) == 0 && len(s.Chosen) == 0 && s.Unplaced == "" && s.Flood == floodpolicy.State{}
}

// Wants says whether the switch, of a VIP of placement auto, is to have it: it was chosen, or serves the VIP until all that
// were chosen do.
func (s State) Wants(name string) bool {
	if slices.Contains(s.Chosen, name) {
		return true
	}
	return s.Places[name].Phase.Announced() && slices.ContainsFunc(s.Chosen, func(to string) bool { return s.Places[to].Phase != Hardware })
}

// Moves says whether the VIP, of placement auto, is on its way: switches that were chosen do not serve it yet, or others do.
func (s State) Moves() bool {
	for name, p := range s.Places {
		if p.Phase.Held() && !slices.Contains(s.Chosen, name) || p.Phase == Removing {
			return true
		}
	}
	return slices.ContainsFunc(s.Chosen, func(to string) bool { return s.Places[to].Phase != Hardware })
}

// Switches are those that have a place, in order.
func (s State) Switches() []string { return slices.Sorted(maps.Keys(s.Places)) }

// Equal says whether both are the same.
func (s State) Equal(other State) bool {
	return s.VIP == other.VIP && s.Tenant == other.Tenant && maps.Equal(s.Places, other.Places) &&
		slices.Equal(s.Chosen, other.Chosen) && s.Split == other.Split && s.Unplaced == other.Unplaced && s.KbitPerS == other.KbitPerS && s.Flood == other.Flood
}

// Bounds of time.
const (
	// settle is how long routers have had the time to hear that a VIP is withdrawn before its entry goes.
	settle = time.Second
	// LeaveTime is how long hosts take and steer what a switch sends that should not any more. It is beyond the time after
	// which a switch without a manager withdraws by itself.
	LeaveTime = 10 * time.Minute
	// GoneTime is after how long of silence a switch counts as one that has withdrawn by itself.
	GoneTime = LeaveTime + time.Minute
	// SilentTime is after how long of silence a switch gets no new VIP.
	SilentTime = 5 * time.Second

	// RoutedTime is how long a switch must have had a route to a VIP again before that counts: of routes that come and go the
	// first loss is written, and no more.
	RoutedTime = 5 * time.Second

	firstBackOff = time.Minute
	lastBackOff  = time.Hour
)

// Seen is what the leader sees of a VIP and a switch.
type Seen struct {
	Wanted     bool          // the VIP is to be in the switch
	Unfit      string        // why it is not, though its owner asks for it, or the switch can't hold it as it is now
	HostsReady bool          // the hosts have what the Place in the store says
	Silent     time.Duration // that the switch has been without a stream
	Runs       bool          // the switch has reported that it has what the Place in the store says
	RunsFor    time.Duration // for how long the leader has known that
	Refused    string        // and what it refused of it; empty: nothing
	For        time.Duration // that the leader has seen the Place in this phase
	Named      bool          // another switch may have an entry that names the TIP of the Place
	Host       string        // that does not steer the VIP as it was told; empty: none that counts
	HostSays   string        // why
	Unrouted   bool          // the switch says that it has no route to the VIP's tunnels
	RoutedFor  time.Duration // for how long it has said that it does
}

// fits says whether the VIP may go on into the switch.
func (s Seen) fits() bool { return s.Wanted && s.Unfit == "" }

// may says whether a VIP that is on its way out may come back into the switch.
func (s Seen) may() bool { return s.fits() && s.Silent < SilentTime }

// gone says whether the switch is taken to have withdrawn by itself.
func (s Seen) gone() bool { return s.Silent >= GoneTime }

// Event is what a step means to people.
type Event string

// The events. The empty string means none.
const (
	Placed    Event = "placed"    // the switch serves the VIP
	Withdrawn Event = "withdrawn" // it does not any more
	Refused   Event = "refused"
	Unsteered Event = "unsteered" // it does not any more, or did not yet, as a host does not steer it
	Unrouted  Event = "unrouted"  // it does not as long as it has no route to the VIP's tunnels
)

// Next is the Place that follows p, as of now. The zero Place: there is none any more.
func (p Place) Next(seen Seen, now time.Time) (Place, Event) {
	switch p.Phase {
	case Preparing, Programming, Announcing, Hardware:
		return p.in(seen, now)
	case Withdrawing, Removing, Leaving, Evicted:
		return p.out(seen, now), ""
	}
	if seen.fits() && seen.Silent < SilentTime {
		return p.to(Preparing, now), ""
	}
	return Place{}, ""
}

// to is p in another phase.
func (p Place) to(phase Phase, now time.Time) Place {
	p.Phase, p.Since, p.Unrouted = phase, now.UTC().Truncate(time.Millisecond), false
	switch phase {
	case Preparing, Hardware:
		p.Reason, p.Host = "", ""
	case Leaving:
		p.Host = ""
	case Programming, Announcing, Withdrawing, Removing, Evicted:
	}
	return p
}

// in is what follows on the way in, and in hardware.
func (p Place) in(seen Seen, now time.Time) (Place, Event) {
	back := map[Phase]Phase{Preparing: Leaving, Programming: Removing, Announcing: Withdrawing, Hardware: Withdrawing}[p.Phase]
	switch {
	case p.Refuses(), p.Phase != Preparing && seen.Runs && seen.Refused != "":
		return p.refused(back, seen, now)
	case !seen.fits() && seen.Named && p.Phase.Announced():
	case !seen.fits():
		event := Event("")
		if p.Phase == Hardware {
			event = Withdrawn
		}
		p.Reason, p.Attempts, p.Host = seen.Unfit, 0, ""
		if p.Unrouted { // it is not chosen again at once
			p.Reason, p.Attempts = NoRoute, 1
		}
		return p.to(back, now), event
	case seen.Host != "":
		return p.unsteered(back, seen, now)
	case p.Phase == Preparing && seen.HostsReady:
		p.Reason, p.Host = "", ""
		return p.to(Programming, now), ""
	case p.Phase == Programming && seen.Runs:
		return p.to(Announcing, now), ""
	case p.Phase.Announced() && seen.Runs:
		return p.announced(seen, now)
	}
	return p, ""
}

// announced is what follows when the switch has what it is to announce: it serves the VIP while it has a route to its tunnels.
func (p Place) announced(seen Seen, now time.Time) (Place, Event) {
	switch {
	case seen.Unrouted && !p.Unrouted:
		p.Unrouted, p.Since = true, now.UTC().Truncate(time.Millisecond)
		return p, Unrouted
	case seen.Unrouted, p.Unrouted && seen.RoutedFor < RoutedTime:
		return p, ""
	case p.Phase == Announcing, p.Unrouted:
		return p.to(Hardware, now), Placed
	}
	return p, ""
}

// refused is what follows when the switch refuses what it is told. It leaves, but for a TIP that other switches send to:
// these stop first. That it refused stays known until it has left, whatever it says by then.
func (p Place) refused(back Phase, seen Seen, now time.Time) (Place, Event) {
	event := Refused
	if p.Refuses() { // people were told
		event = ""
	} else {
		if p.Phase == Hardware && seen.For >= lastBackOff {
			p.Attempts = 0
		}
		p.Reason, p.Host = seen.Refused, ""
	}
	if seen.Named && p.Phase.Announced() {
		return p, event
	}
	p.Attempts++
	return p.to(back, now), event
}

// unsteered is what follows while a host does not steer the VIP: it waits, or leaves for longer each time. Of who it waits
// for is written once, so that hosts which change their minds have nothing written.
func (p Place) unsteered(back Phase, seen Seen, now time.Time) (Place, Event) {
	switch {
	case p.Phase == Preparing && p.Host != "":
		return p, ""
	case p.Phase == Preparing:
		p.Reason, p.Host = seen.HostSays, seen.Host
		return p, ""
	case p.Phase == Hardware && seen.For >= lastBackOff:
		p.Attempts = 0
	}
	p.Reason, p.Host = seen.HostSays, seen.Host
	p.Attempts++
	return p.to(back, now), Unsteered
}

// out is what follows on the way out.
func (p Place) out(seen Seen, now time.Time) Place {
	refused := p.Attempts > 0
	switch p.Phase {
	case Withdrawing:
		if seen.may() && !refused { // the entry is still there, and so is what hosts need
			p.Reason = ""
			return p.to(Announcing, now)
		}
		if (seen.Runs && seen.RunsFor >= settle || seen.gone()) && !seen.Named {
			return p.to(Removing, now)
		}
	case Removing:
		if seen.Runs || seen.gone() {
			if refused && seen.Wanted {
				return p.to(Evicted, now)
			}
			return p.to(Leaving, now)
		}
	case Leaving:
		if seen.may() {
			p.Attempts = 0
			return p.to(Preparing, now)
		}
		if seen.For >= LeaveTime {
			return Place{}
		}
	case Evicted:
		if !seen.Wanted {
			p.Attempts = 0
			return p.to(Leaving, now)
		}
		if seen.For >= BackOff(p.Attempts) && seen.may() {
			return p.to(Preparing, now)
		}
	}
	return p
}

// BackOff is how long a switch that has refused so often is not asked again.
func BackOff(attempts uint32) time.Duration {
	wait := firstBackOff
	for ; attempts > 1 && wait < lastBackOff; attempts-- {
		wait *= 2
	}
	return min(wait, lastBackOff)
}
