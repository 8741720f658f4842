// Package switchconfig is what a switch is told of a VIP: the tunnels of the backends that take new connections, each with
// its share of them. Pure: no I/O, no clock.
package switchconfig

import (
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
	for _, e := range vip.Endpoints {
		table := s.Tables.At(desired.Key(vip, e))
		size := uint64(len(table.MuxBuckets()))
		for slot, buckets := range table.Shares() {
			if row, there := table.Row(slot); there && !row.Down {
				weights.Set(row.Tunnel, weights.At(row.Tunnel)+uint64(buckets)*(allBuckets/size))
			}
		}
	}
	var g Group
	for tunnel, weight := range weights.All() {
		g = append(g, Share{tunnel, weight})
	}
	return g
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

// Member is a tunnel of an entry, with its entries of the ECMP group.
type Member struct {
	Tunnel  netip.Addr
	Entries uint32
}

// entriesEach is how many entries of a group a member has on average at most, where shares differ: the error of a share is
// half an entry.
const entriesEach = 4

// Members are those of the entry, in order of address, with at most so many entries in all, if they are not more themselves;
// most 0: the bound is not known.
func (g Group) Members(most uint32) []Member {
	members := make([]Member, len(g))
	if len(g) == 0 {
		return members
	}
	n := uint64(len(g))
	total, sum := n, uint64(0)
	for _, s := range g {
		sum += s.Weight
	}
	if slices.ContainsFunc(g, func(s Share) bool { return s.Weight != g[0].Weight }) {
		total *= entriesEach
	}
	if most > 0 {
		total = min(total, max(uint64(most), n))
	}
	left := total
	for i, s := range g {
		entries := 1 + (total-n)*s.Weight/sum
		members[i] = Member{s.Tunnel, uint32(entries)}
		left -= entries
	}
	// Each that is left over goes to the member that has the least of its share.
	lacks := func(i int) int64 { return int64(total*g[i].Weight) - int64(uint64(members[i].Entries)*sum) }
	for ; left > 0; left-- {
		at := 0
		for i := range g {
			if lacks(i) > lacks(at) {
				at = i
			}
		}
		members[at].Entries++
	}
	reduce(members)
	return members
}

// reduce divides the entries by what all have in common.
func reduce(members []Member) {
	common := uint32(0)
	for _, m := range members {
		for a, b := m.Entries, common; ; a, b = b, a%b {
			if b == 0 {
				common = a
				break
			}
		}
	}
	for i := range members {
		members[i].Entries /= common
	}
}
