package switchconfig

import (
	"slices"

	"github.com/weirlb/weir/internal/placementpolicy"
)

// EntryOf is what a switch with such a place has of a VIP whose backends are the group: its part of them, or the TIPs that
// have them in its stead.
func (g Group) EntryOf(state placementpolicy.State, place placementpolicy.Place) Group {
	if len(g) == 0 || !state.NamesTIPs(place) {
		return g.Part(place.Part)
	}
	var entry Group
	for _, tip := range state.TIPs() {
		entry = append(entry, Share{tip, 1}) // parts weigh the same
	}
	slices.SortFunc(entry, func(a, b Share) int { return a.Tunnel.Compare(b.Tunnel) })
	return entry
}
