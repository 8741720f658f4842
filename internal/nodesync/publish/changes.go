package publish

import (
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/steered"
	"github.com/weirlb/weir/internal/store"
)

// changes are what differs between two States for nodes.
type changes struct {
	sources   bool                  // that hosts accept
	hosts     map[string]hostChange // by host
	endpoints []model.EndpointKey   // of muxes
	snat      []model.SNATKey       // of muxes and hosts
	lists     []string              // of muxes, those that endpoints name
	networks  networkChanges        // of muxes
	steered   []steered.Change      // of VIPs that switches hold, for hosts
	moves     []network.Move        // of networks' clients, for hosts
}

// hostChange is what changed for one host.
type hostChange struct {
	backends map[model.HostBackendKey]*model.HostBackend // nil: removed
	networks bool                                        // virtual networks changed
	steering []netip.Addr                                // VIPs that switches hold, or held, and that changed
	adds     bool                                        // muxes wait until the host has it
}

// newChanges computes what changed from old to s. Its cost grows with what was written, not with the State.
func newChanges(old, s *store.State, delta store.Delta, held *steered.Table) changes {
	c := changes{hosts: map[string]hostChange{}}
	vips := touched(old, s, delta)
	before, after := placed{}, placed{}
	for name := range vips {
		before.gather(old, name)
		after.gather(s, name)
	}
	for at := range before {
		if _, kept := after[at]; !kept {
			c.host(at.host, at.key, nil, false)
		}
	}
	for at, b := range after {
		was, had := before[at]
		if !had || !was.Equal(b) {
			c.host(at.host, at.key, &b, nodeconfig.IsNeededBeforeMuxes(was, b))
		}
	}
	c.steered = held.Changes(old.State, s.State, maps.Keys(vips))
	for _, vip := range c.steered {
		for _, host := range vip.Hosts {
			change := c.hosts[host]
			change.steering, change.adds = append(change.steering, vip.Address), true
			c.hosts[host] = change
		}
	}
	c.endpoints = changedEndpoints(old, s, vips)
	c.snat = changedSNAT(old, s, delta)
	c.lists = changedLists(old, s, vips, delta)
	var hosts map[string]bool
	c.networks, hosts = newNetworkChanges(old, s, delta)
	c.moves = newClientMoves(old, s, delta)
	for host := range hosts {
		change := c.hosts[host]
		change.networks, change.adds = true, true
		c.hosts[host] = change
	}
	for name := range delta.Nodes {
		if old.Nodes.At(name).Role == model.RoleMux || s.Nodes.At(name).Role == model.RoleMux {
			c.sources = c.sources || !slices.Equal(nodeconfig.Muxes(old.State), nodeconfig.Muxes(s.State))
		}
	}
	return c
}

func (c changes) host(host string, key model.HostBackendKey, b *model.HostBackend, adds bool) {
	change := c.hosts[host]
	if change.backends == nil {
		change.backends = map[model.HostBackendKey]*model.HostBackend{}
	}
	change.backends[key] = b
	change.adds = change.adds || adds
	c.hosts[host] = change
}

// touched are the names of the VIPs that what was written may have changed for nodes.
func touched(old, s *store.State, delta store.Delta) map[string]bool {
	vips := map[string]bool{}
	for name := range delta.VIPs {
		vips[name] = true
	}
	for key := range delta.Tables {
		for _, state := range []*store.State{old, s} {
			if vip, there := state.VIPAt(key.VIP); there {
				vips[vip.Name] = true
			}
		}
	}
	for name := range steered.Touched(old.State, s.State, delta.Placements, delta.Ports) {
		vips[name] = true
	}
	for name := range delta.PrefixLists { // hosts have of them what concerns Fastpath and virtual networks
		for vip := range s.VIPsUsingList(name) {
			vips[vip.Name] = vips[vip.Name] || vip.Fastpath != nil || len(vip.Attachments) > 0
		}
	}
	for name := range delta.Nodes {
		if was, is := old.Nodes.At(name), s.Nodes.At(name); slices.Equal(was.Addresses, is.Addresses) && was.Multipath == is.Multipath {
			continue
		}
		for vip := range s.VIPsOn(name) {
			vips[vip.Name] = true
		}
		for vip := range steered.VIPsOf(s.State, name) {
			vips[vip] = true
		}
	}
	for host := range delta.HostNumbers {
		for vip := range s.VIPsOn(host) {
			vips[vip.Name] = vips[vip.Name] || len(vip.Attachments) > 0
		}
	}
	maps.DeleteFunc(vips, func(_ string, is bool) bool { return !is })
	return vips
}

// hostedBackend names a backend of a host.
type hostedBackend struct {
	host string
	key  model.HostBackendKey
}

// placed are backends of VIPs as their hosts run them.
type placed map[hostedBackend]model.HostBackend

// gather adds the backends of a VIP, if it is there.
func (p placed) gather(s *store.State, name string) {
	if vip, there := s.VIPs.Get(name); there {
		nodeconfig.EachBackend(s.State, vip, func(host string, b model.HostBackend) { p[hostedBackend{host, b.Key()}] = b })
	}
}

// changedEndpoints are the endpoints of the VIPs that changed for muxes.
func changedEndpoints(old, s *store.State, vips map[string]bool) []model.EndpointKey {
	keys := map[model.EndpointKey]bool{}
	for name := range vips {
		for _, state := range []*store.State{old, s} {
			vip := state.VIPs.At(name)
			for _, e := range vip.Endpoints {
				keys[desired.Key(vip, e)] = true
			}
		}
	}
	var changed []model.EndpointKey
	for key := range keys {
		was, had := muxEndpoint(old, key)
		is, has := muxEndpoint(s, key)
		if had != has || !was.Equal(is) {
			changed = append(changed, key)
		}
	}
	return changed
}

// muxEndpoint is an endpoint as muxes run it, if there is one of that key.
func muxEndpoint(s *store.State, key model.EndpointKey) (model.MuxEndpoint, bool) {
	vip, e, there := s.EndpointAt(key)
	if !there {
		return model.MuxEndpoint{}, false
	}
	return nodeconfig.MuxEndpoint(s.State, vip, e), true
}
