package publish

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/desired/nodeconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// networkChanges are what differs of virtual networks for muxes. Which rows: they are read when they are sent.
type networkChanges struct {
	attachments []vnet.AttachmentKey
	hosts       []uint32 // by number
}

func (c networkChanges) size() int { return len(c.attachments) + len(c.hosts) }

// newNetworkChanges computes what changed from old to s, and the hosts that hear of it.
func newNetworkChanges(old, s *store.State, delta store.Delta) (c networkChanges, hosts map[string]bool) {
	if !old.Networks.Wants() && !s.Networks.Wants() {
		return c, nil
	}
	t := networkTouch{vips: map[string]bool{}, networks: map[string]bool{}, nodes: map[string]bool{}}
	t.gather(old, s, delta)
	if t.isNone() {
		return c, nil
	}
	hosts = map[string]bool{}
	keys := map[vnet.AttachmentKey]bool{}
	for _, state := range []*store.State{old, s} {
		for host := range t.hosts(state) {
			hosts[host] = true
		}
		for key := range t.attachments(state) {
			keys[key] = true
		}
	}
	for key := range keys {
		was, had := nodeconfig.Attachment(old.State, key)
		is, has := nodeconfig.Attachment(s.State, key)
		if had != has || was != is {
			c.attachments = append(c.attachments, key)
		}
	}
	numbers := map[uint32]bool{}
	for host := range hosts {
		was, had := nodeconfig.MuxHost(old.State, host)
		is, has := nodeconfig.MuxHost(s.State, host)
		if had != has || !was.Equal(is) {
			numbers[was.Number], numbers[is.Number] = true, true
		}
	}
	delete(numbers, 0)
	slices.SortFunc(c.attachments, vnet.AttachmentKey.Compare)
	c.hosts = slices.Sorted(maps.Keys(numbers))
	return c, hosts
}

// networkTouch is what was written, as far as it may concern nodes of virtual networks.
type networkTouch struct {
	vips     map[string]bool // with attachments
	networks map[string]bool
	nodes    map[string]bool // whose addresses or number changed
}

func (t networkTouch) isNone() bool { return len(t.vips)+len(t.networks)+len(t.nodes) == 0 }

// gather adds what a delta names, if it differs in what nodes get of it.
func (t networkTouch) gather(old, s *store.State, delta store.Delta) {
	for name := range delta.VIPs {
		if was, is := old.VIPs.At(name), s.VIPs.At(name); len(was.Attachments)+len(is.Attachments) > 0 && !sameForNetworks(was, is) {
			t.vips[name] = true
		}
	}
	for name := range delta.Networks {
		t.networks[name] = true
	}
	if delta.Overlay {
		for n := range s.Networks.All() {
			t.networks[n.Name] = true
		}
	}
	for name := range delta.Nodes {
		was, is := old.Nodes.At(name), s.Nodes.At(name)
		if was.Role == is.Role && slices.Equal(was.Addresses, is.Addresses) {
			continue
		}
		t.nodes[name] = true
		for _, a := range slices.Concat(was.Addresses, is.Addresses) { // it may be that of a host without an agent no more
			t.nodes[network.VTEPName(a)] = true
		}
	}
	for host := range delta.HostNumbers {
		if old.Networks.Numbers.Of(host) != s.Networks.Numbers.Of(host) {
			t.nodes[host] = true
		}
	}
}

// sameForNetworks says whether two versions of a VIP are the same to virtual networks.
func sameForNetworks(was, is model.VIP) bool {
	places := func(vip model.VIP) (all []backendPlace) {
		for _, e := range vip.Endpoints {
			for _, b := range e.Backends {
				all = append(all, backendPlace{b.Host, b.TunnelAddress()})
			}
		}
		return all
	}
	return was.Address == is.Address && was.Tenant == is.Tenant && slices.Equal(was.Attachments, is.Attachments) && slices.Equal(places(was), places(is))
}

// backendPlace is where a backend is reached.
type backendPlace struct {
	host   string
	tunnel netip.Addr
}

// hosts are those that have to do with what was written, as of one State.
func (t networkTouch) hosts(s *store.State) map[string]bool {
	hosts := map[string]bool{}
	addAll := func(all iter.Seq[string]) {
		for host := range all {
			hosts[host] = true
		}
	}
	// Of a VIP: its servers, and the clients in its networks.
	vips, networks := maps.Clone(t.vips), maps.Clone(t.networks)
	for node := range t.nodes {
		hosts[node] = true
		for n := range s.Networks.NetworksOn(node) {
			networks[n.Name] = true
		}
		for vip := range s.VIPsOn(node) {
			vips[vip.Name] = vips[vip.Name] || len(vip.Attachments) > 0
		}
	}
	clientsOf := maps.Clone(networks)
	for name, is := range vips {
		if !is {
			continue
		}
		vip := s.VIPs.At(name)
		addAll(nodeconfig.BackendHosts(vip))
		for _, a := range vip.Attachments {
			clientsOf[a.Network] = true
		}
	}
	for name := range clientsOf {
		addAll(s.Networks.HostsIn(name))
	}
	// Of a network: its clients, and the servers of its VIPs.
	for name := range networks {
		for vip := range s.Networks.Wanting(name) {
			addAll(nodeconfig.BackendHosts(s.VIPs.At(vip)))
		}
	}
	return hosts
}

// attachments are the keys of those that have to do with what was written, as of one State.
func (t networkTouch) attachments(s *store.State) map[vnet.AttachmentKey]bool {
	keys := map[vnet.AttachmentKey]bool{}
	for name := range t.vips {
		for _, a := range s.VIPs.At(name).Attachments {
			if n, there := s.Networks.Get(a.Network); there {
				keys[vnet.AttachmentKey{VNI: n.VNI, VIP: a.Address}] = true
			}
		}
	}
	for name := range t.networks {
		n, _ := s.Networks.Get(name)
		for at := range s.Networks.Allowed(name) {
			keys[vnet.AttachmentKey{VNI: n.VNI, VIP: at.Address}] = true
		}
	}
	return keys
}

// muxNetworks is what muxes get of virtual networks with each update.
func muxNetworks(s *store.State) wire.MuxNetworks {
	if s.Networks.Overlay == nil {
		return wire.MuxNetworks{}
	}
	return wire.MuxNetworks{Addresses: s.Networks.Overlay.Addresses, Masters: s.FBTMasters}
}

// addAllNetworks adds all rows of virtual networks.
func addAllNetworks(n *wire.MuxNetworks, s *store.State) {
	n.Attachments = slices.Collect(nodeconfig.MuxAttachments(s.State))
	for name := range nodeconfig.NetworkHosts(s.State) {
		if h, there := nodeconfig.MuxHost(s.State, name); there {
			n.Hosts = append(n.Hosts, h)
		}
	}
}

// addNetworkChanges adds the rows of virtual networks that changed as they are in s, or their removal, in order.
func addNetworkChanges(n *wire.MuxNetworks, s *store.State, changes []muxChanges) {
	attachments, hosts := map[vnet.AttachmentKey]bool{}, map[uint32]bool{}
	for _, c := range changes {
		for _, key := range c.networks.attachments {
			attachments[key] = true
		}
		for _, number := range c.networks.hosts {
			hosts[number] = true
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(attachments), vnet.AttachmentKey.Compare) {
		if a, there := nodeconfig.Attachment(s.State, key); there {
			n.Attachments = append(n.Attachments, a)
		} else {
			n.AttachmentsRemoved = append(n.AttachmentsRemoved, key)
		}
	}
	for _, number := range slices.Sorted(maps.Keys(hosts)) {
		if h, there := hostOf(s.State, number); there {
			n.Hosts = append(n.Hosts, h)
		} else {
			n.HostsRemoved = append(n.HostsRemoved, number)
		}
	}
}

// hostOf is the host of a number as muxes know it.
func hostOf(s desired.State, number uint32) (vnet.MuxHost, bool) {
	name := s.Networks.Numbers.HostOf(number)
	if name == "" {
		return vnet.MuxHost{}, false
	}
	return nodeconfig.MuxHost(s, name)
}
