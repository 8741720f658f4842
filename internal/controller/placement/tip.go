package placement

import (
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/store"
)

// nameTime is how long a TIP is announced before entries of other switches name it: routers have heard of it by then.
const nameTime = time.Second

// behindTIP says whether a switch has the VIP behind a TIP, or is to.
func behindTIP(vip model.VIP, name string, was placementpolicy.Place) bool {
	if was.Phase.Occupies() || was.Phase == placementpolicy.Preparing {
		return was.TIP.IsValid()
	}
	return hardware.TIPAt(vip, name).IsValid()
}

// asItIs says whether what a switch has of the VIP is behind the TIP that its owner asks for there. Another one comes when
// it is gone.
func asItIs(vip model.VIP, name string, was placementpolicy.Place) bool {
	return was.TIP == hardware.TIPAt(vip, name) || !was.Phase.Occupies() && was.Phase != placementpolicy.Preparing
}

// split divides names.
func split(names []string, is func(name string) bool) (others, those []string) {
	for _, name := range names {
		if is(name) {
			those = append(those, name)
		} else {
			others = append(others, name)
		}
	}
	return others, those
}

// name says which TIPs the entries of other switches are to name; stay has the switches that are to keep the VIP. A switch
// that is silent is so until it has a stream, and has said that it takes packets from all others, whichever leader knows it.
func (w *Watch) name(s *store.State, vip model.VIP, address netip.Addr, next placementpolicy.State, stay map[string]bool, now time.Time) {
	for name, place := range next.Places {
		if place.TIP.IsValid() {
			place.Silent = w.silentFor(s, name, now) >= placementpolicy.SilentTime || place.Silent && (!s.Streams.At(name) || !w.said[name].tells(place.TIP, s.PlacementWritten.At(address)))
			next.Places[name] = place
		}
	}
	ready := func(name string) bool {
		t := w.timers[address][name]
		return next.Places[name].Phase == placementpolicy.Hardware && t.phase == placementpolicy.Hardware && now.Sub(t.since) >= nameTime
	}
	wantsTIPs := !vip.InHardware() || len(vip.Hardware.TIPs) > 0
	// By what switches have: next does not have the places of those yet.
	next.Name(wantsTIPs && s.Placements.At(address).SendsToTIPs(), ready, func(name string) bool { return stay[name] })
}

// tipsTakeSenders says whether the switches behind a VIP's TIPs take packets from all that its places say: a switch sends to
// no TIP that would drop them.
func (w *Watch) tipsTakeSenders(s *store.State, vip netip.Addr) bool {
	state := s.Placements.At(vip)
	tips := state.TIPs()
	for name, place := range state.Places {
		if slices.Contains(tips, place.TIP) && !w.said[name].took(place.TIP, s.PlacementWritten.At(vip)) {
			return false
		}
	}
	return true
}

// isNamed says whether another switch may have an entry that names the TIP of a place: it is told so, or has not said since
// that it has another one. One that refuses keeps what it had.
func (w *Watch) isNamed(s *store.State, vip netip.Addr, tip placementpolicy.Place, now time.Time) bool {
	if tip.Named {
		return true
	}
	for name, place := range s.Placements.At(vip).Places {
		gone := w.silentFor(s, name, now) >= placementpolicy.GoneTime
		if !place.TIP.IsValid() && place.Phase.Occupies() && !gone && !w.said[name].took(vip, s.PlacementWritten.At(vip)) {
			return true
		}
	}
	return false
}

// unfitEntry says why a switch that routers bring packets to can't have the entry of a VIP with TIPs, or nothing.
func (w *Watch) unfitEntry(s *store.State, vip model.VIP, name string, before, next placementpolicy.State, stay map[string]bool) string {
	if vip.Hardware == nil || len(vip.Hardware.TIPs) == 0 {
		return ""
	}
	some := false
	for other, place := range next.Places {
		some = some || place.Named && place.Phase.Announced() && stay[other]
	}
	switch place := before.Places[name]; {
	case some:
		return w.groupOf(s, vip).EntryOf(next, place).Unfit(s.Nodes.At(name))
	case place.Phase.Held() && len(before.TIPs()) == 0: // it has the backends until there is a TIP
		return ""
	}
	return "none of the VIP's TIPs is announced"
}
