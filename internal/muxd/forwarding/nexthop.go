package forwarding

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/muxd/announce"
	"github.com/weirlb/weir/internal/netlink"
)

// nextHops are the next hops to the tunnels, as the kernel resolves them.
type nextHops struct {
	netlink.State

	tried bool // each was resolved or failed once
}

// set replaces the state, and says whether each next hop was resolved or failed once.
func (n *nextHops) set(state netlink.State, tunnels []netip.Addr) bool {
	n.State = state
	n.tried = n.tried || n.haveResult(tunnels)
	return n.tried
}

// haveResult says whether every tunnel has a next hop or a reason to have none.
func (n *nextHops) haveResult(tunnels []netip.Addr) bool {
	return !slices.ContainsFunc(tunnels, func(tunnel netip.Addr) bool {
		return !n.NextHops[tunnel].Resolved() && n.Problems[tunnel] == ""
	})
}

// resolved counts the tunnels with a next hop.
func (n *nextHops) resolved(tunnels []netip.Addr) (count int) {
	for _, tunnel := range tunnels {
		if n.NextHops[tunnel].Resolved() {
			count++
		}
	}
	return count
}

// reach is whether each next hop has a result now, and whether none is resolved.
func (n *nextHops) reach(tunnels []netip.Addr) announce.Reach {
	tried := n.tried && n.haveResult(tunnels)
	return announce.Reach{Tried: tried, None: tried && len(tunnels) > 0 && n.resolved(tunnels) == 0}
}

// warnings are what is wrong with the interface, and why destinations have no next hop, in order.
func (n *nextHops) warnings() (link, problems []string) {
	if n.Link != "" {
		link = []string{n.Link}
	}
	for _, addr := range slices.SortedFunc(maps.Keys(n.Problems), netip.Addr.Compare) {
		problems = append(problems, n.Problems[addr])
	}
	return link, problems
}
