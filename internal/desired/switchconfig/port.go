package switchconfig

import (
	"cmp"
	"net/netip"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Astray is which part of an endpoint's packets switches bring to tunnels without a backend of it that takes new
// connections: a switch knows no ports, so that its group is one for all endpoints. Hosts hand these on.
func (g Group) Astray(s desired.State, vip model.VIP, e model.Endpoint) float64 {
	own, of := map[netip.Addr]bool{}, tunnelsOf(vip)
	table := s.Tables.At(desired.Key(vip, e))
	for slot := range table.Shares() {
		if row, there := table.Row(slot); there && !row.Down {
			own[cmp.Or(of[row.Tunnel], row.Tunnel)] = true
		}
	}
	astray := uint64(0)
	for _, share := range g {
		if !own[share.Tunnel] {
			astray += share.Weight
		}
	}
	return float64(astray) / float64(max(g.weight(), 1))
}
