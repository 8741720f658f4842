package placementpolicy

import "net/netip"

// Address is that of the entry that the switch has of a VIP.
func (p Place) Address(vip netip.Addr) netip.Addr {
	if p.TIP.IsValid() {
		return p.TIP
	}
	return vip
}

// HasTIPs says whether a switch has the VIP behind a TIP, or had.
func (s State) HasTIPs() bool {
	for _, p := range s.Places {
		if p.TIP.IsValid() {
			return true
		}
	}
	return false
}

// SendsToTIPs says whether a switch that routers bring packets to may have an entry.
func (s State) SendsToTIPs() bool {
	for _, p := range s.Places {
		if !p.TIP.IsValid() && p.Phase.Occupies() {
			return true
		}
	}
	return false
}

// TIPs are those that the entries of other switches are to name, each once; none: they name backends. One that is silent, or
// has no route to its part, is left out unless all are.
func (s State) TIPs() (tips []netip.Addr) {
	var silent []netip.Addr
	for _, p := range s.Places {
		switch {
		case !p.Named:
		case p.Silent, p.Unrouted:
			silent = append(silent, p.TIP)
		default:
			tips = append(tips, p.TIP)
		}
	}
	if len(tips) == 0 {
		return silent
	}
	return tips
}

// NamesTIPs says whether the entry of a switch with such a place has TIPs as its members.
func (s State) NamesTIPs(place Place) bool { return !place.TIP.IsValid() && len(s.TIPs()) > 0 }

// Name says which TIPs the entries of other switches are to name, in a State that is being made: those whose switches have
// announced them for a while, as ready says, and that are to stay. The last of them stays until no switch has an entry
// that names it, as keepLast says; but for owners who want none: then entries name backends at once.
func (s State) Name(keepLast bool, ready, stays func(name string) bool) {
	named := map[string]bool{}
	for name, p := range s.Places {
		if p.TIP.IsValid() && p.Phase.Announced() && (p.Named || ready(name) && !p.Unrouted) && stays(name) {
			named[name] = true
		}
	}
	keep := len(named) == 0 && keepLast
	for name, p := range s.Places {
		if p.TIP.IsValid() {
			p.Named = named[name] || keep && p.Named && p.Phase.Held()
			s.Places[name] = p
		}
	}
}
