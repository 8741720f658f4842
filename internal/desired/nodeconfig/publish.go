package nodeconfig

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// MuxEndpoint is endpoint e of vip as muxes run it, by its table, and by what is in force of its overload policy.
func MuxEndpoint(s desired.State, vip model.VIP, e model.Endpoint) model.MuxEndpoint {
	table := s.Tables.At(desired.Key(vip, e))
	endpoint := model.MuxEndpoint{
		Key: desired.Key(vip, e), Tenant: vip.Tenant, Buckets: table.MuxBuckets(), Backends: make([]model.MuxBackend, 0, len(table.Rows)),
		Cookies: table.Cookies, Affinity: e.Affinity == model.AffinityClient, IdleTimeout: e.Idle(),
		Ping: vip.Ping != model.PingIgnore, FlowLimit: vip.FlowLimit, Fastpath: vip.Fastpath,
		SYNCookies: e.WhenSYNCookies(),
		Allow:      e.Allow, Deny: e.Deny, AllowLists: e.AllowLists, DenyLists: e.DenyLists,
		Limits: limits(s, vip),
	}
	if endpoint.Cookies == "" { // the table is older than cookies, and will be computed anew
		endpoint.Cookies = model.CookiesOff
	}
	for _, r := range table.Rows {
		endpoint.Backends = append(endpoint.Backends,
			model.MuxBackend{Slot: r.Slot, Tunnel: r.Tunnel, Backend: r.Backend, Down: r.Down, Retired: r.Retired()})
	}
	if len(table.Moves) > 0 && !table.Closed {
		endpoint.Previous = make([]model.Slot, len(table.Buckets))
		for _, m := range table.Moves {
			endpoint.Previous[m.Bucket] = m.From
		}
	}
	return endpoint
}

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
	return !was.Equal(b)
}

// EachBackend calls do for the backends of one VIP, as their hosts run them.
func EachBackend(s desired.State, vip model.VIP, do func(host string, b model.HostBackend)) {
	for _, e := range vip.Endpoints {
		table := s.Tables.At(desired.Key(vip, e))
		slots, draining, chainPeers := table.Slots(), table.Draining(), chainPeersOf(table)
		var sources map[netip.Addr][]netip.Addr
		if len(chainPeers) > 0 {
			sources = sourcesOf(s, e)
		}
		leave, stay := fastpathClients(s.PrefixLists, vip.Fastpath, e)
		for _, b := range e.Backends {
			slot := slots[b.AddrPort()]
			do(b.Host, model.HostBackend{
				Endpoint: desired.Key(vip, e), Tunnel: b.TunnelAddress(), Backend: b.AddrPort(), HealthCheck: e.HealthCheck,
				Slot: slot, Cookies: table.Cookies == model.CookiesOn || table.Cookies == model.CookiesSettling,
				Buckets: uint32(len(table.Buckets)), Draining: draining[slot], ChainPeers: admit(b.TunnelAddress(), chainPeers[slot], sources),
				Affinity: e.Affinity == model.AffinityClient, IdleTimeout: e.Idle(),
				Fastpath: len(leave) > 0, Leave: leave, Stay: stay, SYNCookies: e.WhenSYNCookies(), Tenant: vip.Tenant,
			})
		}
	}
}

// fastpathClients are the clients whose connections to e may leave the muxes: the sources of its VIP's Fastpath, as far as
// e takes them, but for those of stay. They are none if the lists of e have so many of them that hosts would get
// more than model.MaxSources: then all connections stay.
func fastpathClients(lists desired.PrefixLists, f *model.Fastpath, e model.Endpoint) (leave, stay []netip.Prefix) {
	if f == nil {
		return nil, nil
	}
	sets := func(prefixes []netip.Prefix, names []string) []model.PrefixSet {
		all := []model.PrefixSet{model.NewPrefixSet(prefixes)}
		for _, name := range names {
			all = append(all, lists.Prefixes(name))
		}
		return all
	}
	allow, deny := sets(e.Allow, e.AllowLists), sets(e.Deny, e.DenyLists)
	leave = f.Sources
	if len(e.Allow)+len(e.AllowLists) > 0 {
		leave = common(f.Sources, allow, false)
	}
	stay = common(leave, deny, true)
	if len(leave) > max(model.MaxSources, len(f.Sources)) || len(stay) > model.MaxSources {
		return nil, nil
	}
	return leave, stay
}

// common are the addresses that both sources and one of the sets have: in the prefixes of the sets if whole, else in
// what both have. It ends when they are more than hosts get.
func common(sources []netip.Prefix, sets []model.PrefixSet, whole bool) []netip.Prefix {
	var all []netip.Prefix
	for _, source := range sources {
		for _, set := range sets {
			if around, covered := set.Covering(source); covered {
				if !whole {
					around = source
				}
				all = append(all, around)
				continue // with what lies in it
			}
			for inner := range set.Within(source) {
				if len(all) > 2*model.MaxSources {
					return all
				}
				all = append(all, inner)
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

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

// Muxes are the outer sources that hosts accept, in order.
func Muxes(s desired.State) []netip.Prefix {
	var all []netip.Prefix
	for n := range s.MuxNodes() {
		for _, a := range n.Addresses {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
		all = append(all, n.Prefixes...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
