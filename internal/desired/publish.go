package desired

import (
	"cmp"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// MuxEndpoint is endpoint e of vip as muxes run it.
func (s State) MuxEndpoint(vip model.VIP, e model.Endpoint) model.MuxEndpoint {
	table := s.Tables[Key(vip, e)]
	health := make(map[netip.AddrPort]model.Health, len(e.Backends))
	for _, b := range e.Backends {
		health[b.AddrPort()], _ = s.BackendHealth(vip, e, b)
	}
	// When the policy keeps all, the check may be what is broken: no flow is chosen anew for it.
	kept := s.effective(vip, e).kept
	endpoint := model.MuxEndpoint{Key: Key(vip, e), Tenant: vip.Tenant, Buckets: table.Buckets}
	for _, r := range table.Rows {
		endpoint.Backends = append(endpoint.Backends, model.MuxBackend{
			Slot: r.Slot, Tunnel: r.Tunnel, Backend: r.Backend,
			Down: r.Retired() || !kept && health[r.Backend] == model.HealthUnhealthy,
		})
	}
	return endpoint
}

// MuxEndpoints are all endpoints as muxes run them.
func (s State) MuxEndpoints() map[model.EndpointKey]model.MuxEndpoint {
	all := make(map[model.EndpointKey]model.MuxEndpoint, len(s.Tables))
	for _, vip := range s.VIPs {
		for _, e := range vip.Endpoints {
			all[Key(vip, e)] = s.MuxEndpoint(vip, e)
		}
	}
	return all
}

// HostBackends are the backends that live on host, as its agent runs them.
func (s State) HostBackends(host string) map[model.HostBackendKey]model.HostBackend {
	all := map[model.HostBackendKey]model.HostBackend{}
	for _, vip := range s.VIPs {
		for _, e := range vip.Endpoints {
			for _, b := range e.Backends {
				if b.Host != host {
					continue
				}
				backend := model.HostBackend{
					Endpoint: Key(vip, e), Tunnel: b.TunnelAddress(), Backend: b.AddrPort(), HealthCheck: e.HealthCheck,
				}
				all[backend.Key()] = backend
			}
		}
	}
	return all
}

// Muxes are the outer sources that hosts accept, in order.
func (s State) Muxes() []netip.Addr {
	var all []netip.Addr
	for _, n := range s.Nodes {
		if n.Role == model.RoleMux {
			all = append(all, n.Addresses...)
		}
	}
	slices.SortFunc(all, netip.Addr.Compare)
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
