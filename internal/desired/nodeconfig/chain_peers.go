package nodeconfig

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// sourcesOf are, by the tunnel of each backend of e, the addresses of its host.
func sourcesOf(s desired.State, e model.Endpoint) map[netip.Addr][]netip.Addr {
	sources := make(map[netip.Addr][]netip.Addr, len(e.Backends))
	for _, b := range e.Backends {
		sources[b.TunnelAddress()] = s.Nodes.At(b.Host).Addresses
	}
	return sources
}

// admit adds to the tunnels of chainPeers what their packets to tunnel come from: their hosts' addresses,
// where a peer's tunnel is of another family.
func admit(tunnel netip.Addr, chainPeers []netip.Addr, sources map[netip.Addr][]netip.Addr) []netip.Addr {
	all := slices.Clone(chainPeers)
	for _, peer := range chainPeers {
		for _, a := range sources[peer] {
			if peer.Is4() != tunnel.Is4() && a.Is4() == tunnel.Is4() {
				all = append(all, a)
			}
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
	return slices.Compact(all)
}

// chainPeersOf are, by slot, the tunnels of those that it may hand connections to, or get some from: the
// slots that buckets name together with it.
func chainPeersOf(t desired.Table) map[model.Slot][]netip.Addr {
	type pair struct{ from, to model.Slot }
	seen := map[pair]bool{}
	chainPeers := map[model.Slot][]netip.Addr{}
	add := func(slot, peer model.Slot) {
		row, there := t.Row(peer)
		if there && !seen[pair{slot, peer}] {
			seen[pair{slot, peer}] = true
			chainPeers[slot] = append(chainPeers[slot], row.Tunnel)
		}
	}
	for _, m := range t.Moves {
		add(m.From, t.Buckets[m.Bucket])
		add(t.Buckets[m.Bucket], m.From)
	}
	for _, tunnels := range chainPeers {
		slices.SortFunc(tunnels, netip.Addr.Compare)
	}
	return chainPeers
}
