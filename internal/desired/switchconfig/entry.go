// Package switchconfig is what a switch is told of a VIP: the tunnels of the backends that take new connections, or a part of
// them, each with its share. Pure: no I/O, no clock.
package switchconfig

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// Group are the tunnels of a VIP, in order of address, with their shares of its buckets. It is read only.
type Group []Share

// Share is what of a VIP's new connections goes to a tunnel: all endpoints weigh the same.
type Share struct {
	Tunnel netip.Addr
	Weight uint64 // at least 1
}

// allBuckets is the size to which endpoints' tables, powers of two, are compared.
const allBuckets = 1 << 16

// GroupOf is that of a VIP: empty if no backend of it takes new connections.
func GroupOf(s desired.State, vip model.VIP) Group {
	var weights sorted.Map[netip.Addr, uint64]
	of := tunnelsOf(vip)
	for _, e := range vip.Endpoints {
		table := s.Tables.At(desired.Key(vip, e))
		size := uint64(len(table.MuxBuckets()))
		for slot, buckets := range table.Shares() {
			if row, there := table.Row(slot); there && !row.Down {
				tunnel := cmp.Or(of[row.Tunnel], row.Tunnel)
				weights.Set(tunnel, weights.At(tunnel)+uint64(buckets)*(allBuckets/size))
			}
		}
	}
	var g Group
	for tunnel, weight := range weights.All() {
		g = append(g, Share{tunnel, weight})
	}
	return g
}

// tunnelsOf says which tunnel a switch has in the place of others: of a VIP with one for each host the lowest of its backends
// there, also of those that take no connections, so that it seldom changes.
func tunnelsOf(vip model.VIP) map[netip.Addr]netip.Addr {
	if vip.Hardware == nil || !vip.Hardware.ByHost {
		return nil
	}
	type place struct {
		host string
		is4  bool
	}
	lowest, of := map[place]netip.Addr{}, map[netip.Addr]netip.Addr{}
	each := func(do func(place, netip.Addr)) {
		for _, e := range vip.Endpoints {
			for _, b := range e.Backends {
				do(place{b.Host, b.TunnelAddress().Is4()}, b.TunnelAddress())
			}
		}
	}
	each(func(at place, tunnel netip.Addr) {
		if was, known := lowest[at]; !known || tunnel.Less(was) {
			lowest[at] = tunnel
		}
	})
	each(func(at place, tunnel netip.Addr) { of[tunnel] = lowest[at] })
	return of
}

// Unfit says why a switch can't hold the VIP, or nothing.
func (g Group) Unfit(node model.Node) (reason string) {
	if len(g) == 0 {
		return "no backend takes new connections"
	}
	of4 := g[0].Tunnel.Is4()
	if i := slices.IndexFunc(g, func(s Share) bool { return s.Tunnel.Is4() != of4 }); i >= 0 {
		return fmt.Sprintf("tunnels are of both families: %s and %s", g[0].Tunnel, g[i].Tunnel)
	}
	if !slices.ContainsFunc(node.Addresses, func(a netip.Addr) bool { return a.Is4() == of4 }) {
		return fmt.Sprintf("the switch has no source of the family of %s", g[0].Tunnel)
	}
	return ""
}
