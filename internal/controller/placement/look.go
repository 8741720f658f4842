package placement

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

// awaits is what a VIP on its way waits for beside the reports of switches.
type awaits struct {
	hosts bool // to be ready
	time  bool
}

// lookAt looks at what hosts and switches say, and returns the VIPs that take a step.
func (w *Watch) lookAt(s *store.State, now time.Time) []netip.Addr {
	w.observe(s, now)
	w.choose(s, now)
	return w.due(s, now)
}

// observe notes since when switches are silent, and what they say. Which generation hosts have is read before what they say of
// it, and both once a step, however many VIPs wait.
func (w *Watch) observe(s *store.State, now time.Time) {
	w.ready = w.Published()
	clear(w.hosts.heard)
	said := make(map[string]report, len(w.said))
	for node := range desired.SwitchNodes(s.State) {
		said[node.Name] = w.read(s, node.Name)
		w.noteSilence(s, node.Name, now)
		if before, known := w.said[node.Name]; !known || !said[node.Name].equals(before) {
			w.lookAtMoving(s, node.Name)
		}
	}
	w.said = said
	w.hosts.look(s, now, w.look)
}

// lookAtMoving adds the VIPs on their way into a switch, or out of it.
func (w *Watch) lookAtMoving(s *store.State, name string) {
	if len(w.moving) == 0 {
		return
	}
	for vip := range s.Placements.VIPsOf(name) {
		if _, moves := w.moving[vip]; moves {
			w.look[vip] = true
		}
	}
}

// lookAtWaiting adds the VIPs that wait for hosts, if these are ready for more, and now and then those that wait for a time.
func (w *Watch) lookAtWaiting(now time.Time) {
	more, tick := w.ready != w.published, now.Sub(w.timed) >= lookInterval || now.Before(w.timed)
	if w.published = w.ready; tick {
		w.timed = now
	}
	if !more && !tick {
		return
	}
	for vip, a := range w.moving {
		if more && a.hosts || tick && a.time {
			w.look[vip] = true
		}
	}
}

// choose adds the VIPs to look at: of which something was written, and now and then all.
func (w *Watch) choose(s *store.State, now time.Time) {
	if last := w.last; last != nil {
		delta := s.DeltaSince(last)
		for name := range delta.VIPs {
			w.look[last.VIPs.At(name).Address], w.look[s.VIPs.At(name).Address] = true, true
		}
		for key := range delta.Tables {
			w.look[key.VIP] = true
		}
		for vip := range delta.Placements {
			w.look[vip] = true
		}
		for name := range delta.Nodes {
			lookAtAllOf(w, s, name)
		}
	}
	all := w.last == nil
	w.last = s
	w.lookAtWaiting(now)
	if since := now.Sub(w.swept); since >= 0 && since < sweepInterval && !all {
		return
	}
	w.swept = now
	w.hosts.recount(s)
	w.sweep(s, all)
	maps.DeleteFunc(w.moving, func(vip netip.Addr, _ awaits) bool { return !s.Placements.Has(vip) })
	maps.DeleteFunc(w.timers, func(vip netip.Addr, _ map[string]timer) bool { return !s.Placements.Has(vip) })
	maps.DeleteFunc(w.groups, func(vip netip.Addr, _ group) bool { return !s.Placements.Has(vip) })
}

// sweep adds the VIPs that are not settled, and the next part of all, or all.
func (w *Watch) sweep(s *store.State, all bool) {
	w.part = (w.part + 1) % sweepParts
	add := func(vip netip.Addr) {
		if all || w.open[vip] || partOf(vip) == w.part {
			w.look[vip] = true
		}
	}
	for vip := range s.Placements.Keys() {
		add(vip)
	}
	for name := range s.Placements.Required() {
		add(s.VIPs.At(name).Address)
	}
	maps.DeleteFunc(w.open, func(vip netip.Addr, _ bool) bool {
		_, there := s.VIPAt(vip)
		return !there && !s.Placements.Has(vip)
	})
}

// partOf is the part of the sweep that a VIP is in: neighbours are in different ones.
func partOf(vip netip.Addr) int {
	b := vip.As16()
	return (int(b[14])<<8 + int(b[15])) % sweepParts
}

// lookAtAllOf adds the VIPs that have a place at a switch.
func lookAtAllOf(w *Watch, s *store.State, name string) {
	for vip := range s.Placements.VIPsOf(name) {
		w.look[vip] = true
	}
}

// settled says whether nothing becomes of a VIP unless something of it is written, or is reported by a switch or a host: it is in
// all its switches and in no other, or in none and is to be in none, and no time runs.
func settled(w *Watch, s *store.State, address netip.Addr) bool {
	state := s.Placements.At(address)
	vip, there := s.VIPAt(address)
	wanted := state.Chosen
	if there && vip.InHardware() {
		wanted = hardware.Named(vip)
	}
	if len(state.Places) != len(wanted) || !there && len(state.Places) > 0 || len(w.hosts.of[address]) > 0 {
		return false
	}
	for _, name := range wanted {
		place := state.Places[name]
		plain := place.Serving() && place.Reason == "" && place.Part == placementpolicy.Part{} && !place.TIP.IsValid() && !place.Silent
		if !plain || !s.Streams.At(name) || w.timers[address][name].runs.IsZero() {
			return false
		}
	}
	return true
}

// time notes since when the places of a VIP are what they are, that switches run them, and what the VIP waits for.
func (w *Watch) time(s *store.State, vip netip.Addr, now time.Time) {
	places := s.Placements.At(vip).Places
	before := w.timers[vip]
	delete(w.moving, vip)
	if len(places) == 0 {
		delete(w.timers, vip)
		return
	}
	moves, a := false, awaits{}
	timers := make(map[string]timer, len(places))
	for name, place := range places {
		naming := place.TIP.IsValid() && place.Phase == placementpolicy.Hardware && !place.Named
		moves = moves || place.Phase.Moves() || naming
		a.hosts = a.hosts || place.Phase == placementpolicy.Preparing
		a.time = a.time || place.Phase == placementpolicy.Preparing || place.Phase == placementpolicy.Withdrawing || naming
		t := before[name]
		if t.phase != place.Phase {
			t = timer{phase: place.Phase, since: now}
		}
		switch runs := w.said[name].tells(place.Address(vip), s.PlacementWritten.At(vip)); {
		case !runs:
			t.runs = time.Time{}
		case t.runs.IsZero():
			t.runs = now
		}
		switch said := w.said[name]; {
		case said.unrouted[place.Address(vip).String()], said.moreAre && place.Unrouted: // it may be among those that are not named
			t.routed = time.Time{}
		case t.routed.IsZero():
			t.routed = now
		}
		timers[name] = t
	}
	w.timers[vip] = timers
	if moves {
		w.moving[vip] = a
	}
}

// due are the VIPs that take a step, of those that are to be looked at: each has its turn.
func (w *Watch) due(s *store.State, now time.Time) (due []netip.Addr) {
	vips := slices.SortedFunc(maps.Keys(w.look), netip.Addr.Compare)
	first, _ := slices.BinarySearchFunc(vips, w.looked, func(vip, looked netip.Addr) int {
		return cmp.Or(vip.Compare(looked), -1) // behind it
	})
	for _, vip := range slices.Concat(vips[first:], vips[:first]) {
		w.time(s, vip, now)
		if _, changed := w.next(s, vip, now); changed {
			due = append(due, vip)
		} else {
			delete(w.look, vip)
		}
		if delete(w.open, vip); !settled(w, s, vip) {
			w.open[vip] = true
		}
		if w.looked = vip; len(due) == mostSteps {
			break
		}
	}
	return due
}
