package switchconfig

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/placementpolicy"
)

// SendersTo are the outer sources that a TIP of a VIP takes packets from, in order: those of the switches that routers bring
// the VIP's packets to, or may still bring them to. Of switches without an entry, of which there may be many when owners change
// their minds, those that lost it last have the room that others leave. Without one it is the TIP itself, which nobody has as a
// source: a list that is empty would take any.
func SendersTo(s desired.State, state placementpolicy.State, tip netip.Addr) []netip.Addr {
	first := slices.DeleteFunc(slices.Collect(maps.Keys(state.Places)), func(name string) bool { return state.Places[name].TIP.IsValid() })
	mayHold := func(p placementpolicy.Place) bool { return p.Phase.Occupies() || p.Phase.Serves() }
	slices.SortFunc(first, func(a, b string) int {
		left, right := state.Places[a], state.Places[b]
		if mayHold(left) != mayHold(right) {
			if mayHold(left) {
				return -1
			}
			return 1
		}
		return cmp.Or(right.Since.Compare(left.Since), cmp.Compare(a, b))
	})
	senders := []netip.Addr{}
	for _, name := range first {
		node := s.Nodes.At(name)
		if node.Role != model.RoleSwitch {
			continue
		}
		for _, a := range node.Addresses {
			if a.Is4() == tip.Is4() && (mayHold(state.Places[name]) || len(senders) < hardware.MaxSources) {
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
