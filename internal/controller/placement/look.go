package placement

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
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
	for node := range s.Nodes.Values() {
		if node.Role == model.RoleSwitch {
			said[node.Name] = w.read(s, node.Name)
			w.noteSilence(s, node.Name, now)
			if before, known := w.said[node.Name]; !known || !said[node.Name].equals(before) {
				w.lookAtMoving(s, node.Name)
			}
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
			for vip := range s.Placements.VIPsOf(name) {
				w.look[vip] = true
			}
		}
	}
	w.last = s
	w.lookAtWaiting(now)
	if since := now.Sub(w.swept); since >= 0 && since < sweepInterval {
		return
	}
	w.swept = now
	w.hosts.recount(s)
	for vip := range s.Placements.Keys() {
		w.look[vip] = true
	}
	for name := range s.Placements.Required() {
		w.look[s.VIPs.At(name).Address] = true
	}
	maps.DeleteFunc(w.moving, func(vip netip.Addr, _ awaits) bool { return !s.Placements.Has(vip) })
	maps.DeleteFunc(w.timers, func(vip netip.Addr, _ map[string]timer) bool { return !s.Placements.Has(vip) })
	maps.DeleteFunc(w.groups, func(vip netip.Addr, _ group) bool { return !s.Placements.Has(vip) })
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
		if w.looked = vip; len(due) == mostSteps {
			break
		}
	}
	return due
}
