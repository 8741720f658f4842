package nodeconfig

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// HasMultipath says whether the hosts of e bring subflows to the host that has their connection: one of an older version
// would reset them. On a host that was never there nobody delivers anything.
func HasMultipath(s desired.State, e model.Endpoint) bool {
	return e.Multipath && !slices.ContainsFunc(e.Backends, func(b model.Backend) bool {
		host, there := s.Nodes.Get(b.Host)
		return there && !host.Multipath
	})
}

// HomesOf are the hosts that may be homes of tokens of e, each by one tunnel of the endpoint there, in order: those that
// have a backend which is not down, that is, which are not silent. If all of them seem silent, it is the managers who hear
// nothing, and all are homes: hosts without would deliver joins where their buckets are.
func HomesOf(e model.Endpoint, t desired.Table) []netip.Addr {
	down := make(map[netip.AddrPort]bool, len(t.Rows))
	for _, row := range t.Rows {
		down[row.Backend] = row.Down
	}
	homes := tunnelsByHost(e, func(b model.Backend) bool { return !down[b.AddrPort()] })
	if len(homes) == 0 {
		homes = tunnelsByHost(e, func(model.Backend) bool { return true })
	}
	return homes
}

// tunnelsByHost are the first tunnel of each host that has such a backend, in order.
func tunnelsByHost(e model.Endpoint, such func(model.Backend) bool) []netip.Addr {
	byHost := make(map[string]netip.Addr, len(e.Backends))
	for _, b := range e.Backends {
		tunnel := b.TunnelAddress()
		if had := byHost[b.Host]; such(b) && (!had.IsValid() || tunnel.Less(had)) {
			byHost[b.Host] = tunnel
		}
	}
	return slices.SortedFunc(maps.Values(byHost), netip.Addr.Compare)
}

// everybody are, by the family of a tunnel, the sources of all backends of e, as any of them may hand on what belongs to
// another one. A backend is its own peer too: all have the same list, which is made once.
func everybody(e model.Endpoint, sources map[netip.Addr][]netip.Addr) func(tunnel netip.Addr) []netip.Addr {
	tunnels := make([]netip.Addr, len(e.Backends))
	for i, b := range e.Backends {
		tunnels[i] = b.TunnelAddress()
	}
	byFamily := map[bool][]netip.Addr{}
	return func(tunnel netip.Addr) []netip.Addr {
		peers, made := byFamily[tunnel.Is4()]
		if !made {
			peers = admit(tunnel, tunnels, sources)
			byFamily[tunnel.Is4()] = peers
		}
		return peers
	}
}
