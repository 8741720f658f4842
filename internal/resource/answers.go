package resource

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/store"
)

// answers tell which muxes answer ARP and NDP, of one State. Reports of muxes are read once each.
type answers struct {
	*Config

	state *store.State
	muxes []neighbor.Mux                 // that can answer
	held  map[string]map[netip.Addr]bool // what each said that it answers for, by name
}

func newAnswers(c *Config, s *store.State) *answers {
	return &answers{Config: c, state: s, muxes: slices.Collect(s.Neighbors.Values()), held: map[string]map[netip.Addr]bool{}}
}

// by is the mux that answers for a VIP; empty: none does. The owner may not, as it does not forward for the VIP, waits for
// another one, found a station that has the address, or answers for as many as it can.
func (a *answers) by(vip netip.Addr) string {
	owner := neighbor.Owner(vip, a.muxes)
	if owner == "" {
		return ""
	}
	held, read := a.held[owner]
	if !read {
		held = map[netip.Addr]bool{}
		a.held[owner] = held
		_, said := a.Reported(a.state, a.state.Nodes.At(owner))
		for _, text := range said.GetMux().GetNeighbors() {
			if address, err := netip.ParseAddr(text); err == nil {
				held[address] = true
			}
		}
	}
	if !held[vip] {
		return ""
	}
	return owner
}

// isUnanswered says whether some mux has a neighbor prefix with the address, and none answers for it.
func (a *answers) isUnanswered(vip netip.Addr) bool {
	for mux := range a.state.MuxNodes() {
		if (neighbor.Mux{Prefixes: mux.NeighborPrefixes}).Covers(vip) {
			return a.by(vip) == ""
		}
	}
	return false
}
