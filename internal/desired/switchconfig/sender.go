package switchconfig

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// SendersTo are the outer sources that a TIP of a VIP takes packets from, in order: those of the switches that routers bring
// the VIP's packets to, or may still bring them to. Without one it is the TIP itself, which nobody has as a source: a list
// that is empty would take any.
func SendersTo(s desired.State, state placementpolicy.State, tip netip.Addr) []netip.Addr {
	senders := []netip.Addr{}
	for name, place := range state.Places {
		node := s.Nodes.At(name)
		if place.TIP.IsValid() || node.Role != model.RoleSwitch {
			continue
		}
		for _, a := range node.Addresses {
			if a.Is4() == tip.Is4() {
				senders = append(senders, a)
			}
		}
	}
	if len(senders) == 0 {
		return []netip.Addr{tip}
	}
	slices.SortFunc(senders, netip.Addr.Compare)
	return slices.Compact(senders)
}
