package desired

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// MuxEndpoint is endpoint e of vip as muxes run it, by its table.
func MuxEndpoint(vip model.VIP, e model.Endpoint, table Table) model.MuxEndpoint {
	endpoint := model.MuxEndpoint{
		Key: Key(vip, e), Tenant: vip.Tenant, Buckets: table.Buckets, Backends: make([]model.MuxBackend, 0, len(table.Rows)),
		Cookies:  model.CookiesOff,
		Affinity: e.Affinity == model.AffinityClient, IdleTimeout: e.Idle(),
		Ping: vip.Ping != model.PingIgnore, FlowLimit: vip.FlowLimit,
	}
	for _, r := range table.Rows {
		endpoint.Backends = append(endpoint.Backends,
			model.MuxBackend{Slot: r.Slot, Tunnel: r.Tunnel, Backend: r.Backend, Down: r.Down})
	}
	return endpoint
}

// HostBackends are a host's backends as its agent runs them.
type HostBackends map[model.HostBackendKey]model.HostBackend

// BackendsByHost are the backends of each host that has any.
func (s State) BackendsByHost() map[string]HostBackends {
	hosts := map[string]HostBackends{}
	for _, vip := range s.VIPs {
		eachBackend(vip, func(host string, b model.HostBackend) {
			if hosts[host] == nil {
				hosts[host] = HostBackends{}
			}
			hosts[host][b.Key()] = b
		})
	}
	return hosts
}

// AddsToHosts says whether vip gives some host something that old does not.
func AddsToHosts(old, vip model.VIP) bool {
	before := State{VIPs: map[string]model.VIP{old.Name: old}}.BackendsByHost()
	adds := false
	eachBackend(vip, func(host string, b model.HostBackend) {
		was, had := before[host][b.Key()]
		adds = adds || !had || was.Backend != b.Backend
	})
	return adds
}

func eachBackend(vip model.VIP, do func(host string, b model.HostBackend)) {
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			do(b.Host, model.HostBackend{
				Endpoint: Key(vip, e), Tunnel: b.TunnelAddress(), Backend: b.AddrPort(), HealthCheck: e.HealthCheck,
				Affinity: e.Affinity == model.AffinityClient, IdleTimeout: e.Idle(),
			})
		}
	}
}

// Muxes are the outer sources that hosts accept, in order.
func (s State) Muxes() []netip.Prefix {
	var all []netip.Prefix
	for _, n := range s.Nodes {
		if n.Role != model.RoleMux {
			continue
		}
		for _, a := range n.Addresses {
			all = append(all, netip.PrefixFrom(a, a.BitLen()))
		}
		all = append(all, n.Prefixes...)
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}

// SortedVIPs are the VIPs by name.
func (s State) SortedVIPs() []model.VIP {
	all := make([]model.VIP, 0, len(s.VIPs))
	for _, vip := range s.VIPs {
		all = append(all, vip)
	}
	slices.SortFunc(all, func(a, b model.VIP) int { return cmp.Compare(a.Name, b.Name) })
	return all
}

// SortedNodes are the nodes by name.
func (s State) SortedNodes() []model.Node {
	all := make([]model.Node, 0, len(s.Nodes))
	for _, n := range s.Nodes {
		all = append(all, n)
	}
	slices.SortFunc(all, func(a, b model.Node) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
