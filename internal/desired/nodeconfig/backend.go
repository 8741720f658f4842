package nodeconfig

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// HostBackends are a host's backends as its agent runs them.
type HostBackends map[model.HostBackendKey]model.HostBackend

// BackendsOn are the backends of one host.
func BackendsOn(s desired.State, host string) HostBackends {
	backends := HostBackends{}
	for vip := range s.VIPsOn(host) {
		EachBackend(s, vip, func(name string, b model.HostBackend) {
			if name == host {
				backends[b.Key()] = b
			}
		})
	}
	return backends
}

// CheckedOn are the backends of one host whose health is checked.
func CheckedOn(s desired.State, host string) map[desired.HealthKey]bool {
	checked := map[desired.HealthKey]bool{}
	for vip := range s.VIPsOn(host) {
		for _, e := range vip.Endpoints {
			for _, b := range e.Backends {
				if b.Host == host && e.HealthCheck != nil {
					checked[desired.HealthKey{Endpoint: desired.Key(vip, e), Backend: b.AddrPort()}] = true
				}
			}
		}
	}
	return checked
}

// IsNeededBeforeMuxes says whether a host that has was must have b before muxes use it. How it is checked, and whose it
// is, may wait.
func IsNeededBeforeMuxes(was, b model.HostBackend) bool {
	b.HealthCheck, was.HealthCheck = nil, nil
	b.Tenant, was.Tenant = "", ""
	b.Allow, b.Deny, was.Allow, was.Deny = nil, nil, nil, nil
	if len(b.Homes) > 0 && len(was.Homes) > 0 { // those that were there know what they were told
		b.Homes, was.Homes = nil, nil
	}
	return !was.Equal(b)
}

// EachBackend calls do for the backends of one VIP, as their hosts run them.
func EachBackend(s desired.State, vip model.VIP, do func(host string, b model.HostBackend)) {
	for _, e := range vip.Endpoints {
		table := s.Tables.At(desired.Key(vip, e))
		slots, draining, chainPeers := table.Slots(), table.Draining(), chainPeersOf(table)
		var sources map[netip.Addr][]netip.Addr
		multipath := HasMultipath(s, e)
		if len(chainPeers) > 0 || multipath {
			sources = sourcesOf(s, e)
		}
		var homes []netip.Addr
		if multipath {
			homes = HomesOf(e, table)
		}
		all := everybody(e, sources)
		leave, stay := fastpathClients(s.PrefixLists, vip.Fastpath, e)
		allow, deny := networkClients(s.PrefixLists, vip, e)
		for _, b := range e.Backends {
			slot := slots[b.AddrPort()]
			var peers []netip.Addr
			if multipath {
				peers = all(b.TunnelAddress())
			} else {
				peers = admit(b.TunnelAddress(), chainPeers[slot], sources)
			}
			do(b.Host, model.HostBackend{
				Endpoint: desired.Key(vip, e), Tunnel: b.TunnelAddress(), Backend: b.AddrPort(), HealthCheck: checkAt(s, b.Host, e.HealthCheck),
				Slot: slot, Cookies: table.Cookies == model.CookiesOn || table.Cookies == model.CookiesSettling,
				Buckets: uint32(len(table.Buckets)), Draining: draining[slot], ChainPeers: peers,
				Homes:    homes,
				Affinity: e.Affinity == model.AffinityClient, IdleTimeout: e.Idle(),
				Fastpath: len(leave) > 0, Leave: leave, Stay: stay, SYNCookies: e.WhenSYNCookies(), Tenant: vip.Tenant,
				Allow: allow, Deny: deny,
			})
		}
	}
}

// Muxes are the outer sources that hosts accept: first those that members of the pool are known by, in the order of their
// names, as hosts relay to the first of them and muxes know as many members by the same order.
func Muxes(s desired.State) []netip.Prefix {
	var members, others []netip.Prefix
	for n := range s.MuxNodes() {
		known := map[bool]bool{} // by family
		for _, a := range n.Addresses {
			p := netip.PrefixFrom(a, a.BitLen())
			if known[a.Is4()] {
				others = append(others, p)
				continue
			}
			known[a.Is4()], members = true, append(members, p)
		}
		others = append(others, n.Prefixes...)
	}
	slices.SortFunc(others, netip.Prefix.Compare)
	return unique(append(members, others...))
}

// unique is a list without what is in it already.
func unique(all []netip.Prefix) []netip.Prefix {
	seen := make(map[netip.Prefix]bool, len(all))
	return slices.DeleteFunc(all, func(p netip.Prefix) bool {
		had := seen[p]
		seen[p] = true
		return had
	})
}
