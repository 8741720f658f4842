package nodeconfig

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// hasMultipath says whether the hosts of e bring subflows to the host that has their connection: one of an older version
// would reset them. On a host that was never there nobody delivers anything.
func hasMultipath(s desired.State, e model.Endpoint) bool {
	return e.Multipath && !slices.ContainsFunc(e.Backends, func(b model.Backend) bool {
		host, there := s.Nodes.Get(b.Host)
		return there && !host.Multipath
	})
}

// homesOf are the hosts that may be homes of tokens of e, each by one tunnel of the endpoint there, in order: those that
// have a backend which is not down, that is, which are not silent.
func homesOf(e model.Endpoint, t desired.Table) []netip.Addr {
	down := make(map[netip.AddrPort]bool, len(t.Rows))
	for _, row := range t.Rows {
		down[row.Backend] = row.Down
	}
	byHost := make(map[string]netip.Addr, len(e.Backends))
	for _, b := range e.Backends {
		tunnel := b.TunnelAddress()
		if had := byHost[b.Host]; !down[b.AddrPort()] && (!had.IsValid() || tunnel.Less(had)) {
			byHost[b.Host] = tunnel
		}
	}
	homes := make([]netip.Addr, 0, len(byHost))
	for _, tunnel := range byHost {
		homes = append(homes, tunnel)
	}
	slices.SortFunc(homes, netip.Addr.Compare)
	return homes
}

// othersOf are the tunnels of the endpoint's other backends, in order.
func othersOf(e model.Endpoint, b model.Backend) []netip.Addr {
	var others []netip.Addr
	for _, other := range e.Backends {
		if tunnel := other.TunnelAddress(); tunnel != b.TunnelAddress() {
			others = append(others, tunnel)
		}
	}
	slices.SortFunc(others, netip.Addr.Compare)
	return slices.Compact(others)
}
