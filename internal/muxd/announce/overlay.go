package announce

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/bgp"
)

// Overlay is what is announced of virtual networks.
type Overlay struct {
	Addresses []netip.Addr   // that hosts send VXLAN to
	Attached  []bgp.MACRoute // VIPs, for hosts without an agent
}

// without returns what of the overlay is kept too, and whether that is all of it.
func (o Overlay) without(kept Overlay) (rest Overlay, all bool) {
	rest.Addresses = slices.DeleteFunc(slices.Clone(o.Addresses), func(a netip.Addr) bool { return !slices.Contains(kept.Addresses, a) })
	attached := make(map[bgp.MACRoute]bool, len(kept.Attached))
	for _, r := range kept.Attached {
		attached[r] = true
	}
	rest.Attached = slices.DeleteFunc(slices.Clone(o.Attached), func(r bgp.MACRoute) bool { return !attached[r] })
	return rest, len(rest.Addresses) == len(o.Addresses) && len(rest.Attached) == len(o.Attached)
}

// prefixes are those of the addresses. These are no VIPs, so of no aggregate.
func (o Overlay) prefixes() (all []netip.Prefix) {
	for _, a := range o.Addresses {
		all = append(all, netip.PrefixFrom(a, a.BitLen()))
	}
	return all
}

// WithdrawOverlay withdraws what of virtual networks is not kept, and says whether any of it was announced.
func (a *Announcer) WithdrawOverlay(kept Overlay) (announced bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	_, all := a.overlayAnnounced.without(kept)
	a.overlay, _ = a.overlay.without(kept)
	if !all {
		a.announce()
	}
	return !all
}

// announceable is what of the overlay can be announced: an address that hosts may reach, and then the VIPs behind it.
func (a *Announcer) announceable() Overlay {
	if a.reach.Tried {
		return a.overlay
	}
	rest, _ := a.overlay.without(Overlay{Addresses: a.overlayAnnounced.Addresses, Attached: a.overlay.Attached})
	if len(rest.Addresses) == 0 {
		rest.Attached = nil
	}
	return rest
}
