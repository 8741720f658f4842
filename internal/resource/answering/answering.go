// Package answering tells which mux answers ARP and NDP for a VIP.
package answering

import (
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

// Reported is the newest that a node reported.
type Reported func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus)

// Muxes are those of one State that answer. Their reports are read once each. One goroutine has it.
type Muxes struct {
	reported Reported
	state    *store.State
	able     []neighbor.Mux                 // that can answer
	held     map[string]map[netip.Addr]bool // what each said that it answers for, by name
}

// New reads no report yet.
func New(reported Reported, s *store.State) *Muxes {
	return &Muxes{reported: reported, state: s, able: slices.Collect(s.Neighbors.Values()), held: map[string]map[netip.Addr]bool{}}
}

// By is the mux that answers for a VIP; empty: none does. The owner may not, as it does not forward for the VIP, waits for
// another one, found a station that has the address, or answers for as many as it can.
func (m *Muxes) By(vip netip.Addr) string {
	owner := neighbor.Owner(vip, m.able)
	if owner == "" {
		return ""
	}
	held, read := m.held[owner]
	if !read {
		held = map[netip.Addr]bool{}
		m.held[owner] = held
		_, said := m.reported(m.state, m.state.Nodes.At(owner))
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

// IsUnanswered says whether some mux has a neighbor prefix with the address, and none answers for it.
func (m *Muxes) IsUnanswered(vip netip.Addr) bool {
	for mux := range m.state.MuxNodes() {
		if (neighbor.Mux{Prefixes: mux.NeighborPrefixes}).Covers(vip) {
			return m.By(vip) == ""
		}
	}
	return false
}
