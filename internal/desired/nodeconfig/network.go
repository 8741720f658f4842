package nodeconfig

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/network"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
)

// MuxAttachments are the VIPs in virtual networks, as muxes run them, by network.
func MuxAttachments(s desired.State) iter.Seq[vnet.Attachment] {
	return func(yield func(vnet.Attachment) bool) {
		for n := range s.Networks.All() {
			for at := range s.Networks.Attached(n.Name) {
				if !yield(muxAttachment(s, n, at)) {
					return
				}
			}
		}
	}
}

// Attachment is the one of a key as muxes run it, if there is one in force.
func Attachment(s desired.State, key vnet.AttachmentKey) (vnet.Attachment, bool) {
	n, _ := s.Networks.OfVNI(key.VNI)
	at, there := s.Networks.AttachedAt(n.Name, key.VIP)
	if !there {
		return vnet.Attachment{}, false
	}
	return muxAttachment(s, n, at), true
}

func muxAttachment(s desired.State, n vnet.Network, at network.Attached) vnet.Attachment {
	a := attachment(s, n, at)
	if at.Mode == model.ModeNATInMux {
		a.NAT, a.Tenant = true, n.Tenant
	}
	return a
}

// attachment is one as hosts run it.
func attachment(s desired.State, n vnet.Network, at network.Attached) vnet.Attachment {
	return vnet.Attachment{
		AttachmentKey: vnet.AttachmentKey{VNI: n.VNI, VIP: at.Address}, Service: s.VIPs.At(at.VIP).Address, Network: n.Name,
		GatewayMAC: n.GatewayMAC, WithoutAgent: len(n.WithoutAgent) > 0,
		FullNAT: at.Mode != model.ModeBypass, Relay: n.Reply == vnet.ReplyRelay,
	}
}

// attachedTo are the networks that a VIP is attached to, each with the attachment.
func attachedTo(s desired.State, vip model.VIP) iter.Seq2[vnet.Network, network.Attached] {
	return func(yield func(vnet.Network, network.Attached) bool) {
		for _, a := range vip.Attachments {
			n, _ := s.Networks.Get(a.Network)
			at := network.Attached{Address: a.Address, VIP: vip.Name, Tenant: vip.Tenant, Mode: a.Mode}
			if s.Networks.StateOf(vip.Tenant, a) == network.InForce && !yield(n, at) {
				return
			}
		}
	}
}

// isAttached says whether a VIP is attached to any network.
func isAttached(s desired.State, vip model.VIP) bool {
	for range attachedTo(s, vip) {
		return true
	}
	return false
}

// isServer says whether a host has a backend of a VIP that is attached.
func isServer(s desired.State, host string) bool {
	for vip := range s.VIPsOn(host) {
		if isAttached(s, vip) {
			return true
		}
	}
	return false
}

// clientNetworks are the networks with VIPs that have workloads on a host.
func clientNetworks(s desired.State, host string) iter.Seq[vnet.Network] {
	return func(yield func(vnet.Network) bool) {
		for n := range s.Networks.NetworksOn(host) {
			for range s.Networks.Attached(n.Name) {
				if !yield(n) {
					return
				}
				break
			}
		}
	}
}

// NetworkHosts are the hosts that have to do with virtual networks, in order: those with workloads in a network that has
// VIPs, and those with backends of such VIPs. They need numbers.
func NetworkHosts(s desired.State) iter.Seq[string] {
	if s.Networks.Overlay == nil || !s.Networks.Wants() {
		return slices.Values([]string(nil))
	}
	hosts := map[string]bool{}
	for n := range s.Networks.All() {
		for range s.Networks.Attached(n.Name) {
			for host := range s.Networks.HostsIn(n.Name) {
				hosts[host] = true
			}
			break
		}
	}
	for name := range s.Networks.WithAttachments() {
		if vip := s.VIPs.At(name); isAttached(s, vip) {
			for host := range BackendHosts(vip) {
				hosts[host] = true
			}
		}
	}
	maps.DeleteFunc(hosts, func(host string, _ bool) bool {
		_, without := withoutAgent(s, host)
		return !without && s.Nodes.At(host).Role != model.RoleHost
	})
	return slices.Values(slices.Sorted(maps.Keys(hosts)))
}

// BackendHosts are the hosts of a VIP's backends, some of them several times.
func BackendHosts(vip model.VIP) iter.Seq[string] {
	return func(yield func(string) bool) {
		for _, e := range vip.Endpoints {
			for _, b := range e.Backends {
				if !yield(b.Host) {
					return
				}
			}
		}
	}
}

// hostNumbers are the numbers of the hosts of an endpoint's backends, if its VIP has attachments.
func hostNumbers(s desired.State, vip model.VIP, e model.Endpoint) map[netip.AddrPort]uint32 {
	if len(vip.Attachments) == 0 {
		return nil
	}
	numbers := make(map[netip.AddrPort]uint32, len(e.Backends))
	for _, b := range e.Backends {
		numbers[b.AddrPort()] = s.Networks.Numbers.Of(b.Host)
	}
	return numbers
}

// withoutAgent is the VTEP of a host that has no agent. An address that a node has come to have meanwhile is that node's.
func withoutAgent(s desired.State, host string) (vtep netip.Addr, is bool) {
	if vtep, is = network.VTEPOf(host); !is {
		return vtep, false
	}
	for range s.Addresses.Of(vtep, desired.AsNode) {
		return vtep, false
	}
	return vtep, true
}

// MuxHost is a host as muxes know it, if it has to do with virtual networks and has a number.
func MuxHost(s desired.State, host string) (vnet.MuxHost, bool) {
	h := vnet.MuxHost{Number: s.Networks.Numbers.Of(host)}
	if s.Networks.Overlay == nil || h.Number == 0 {
		return vnet.MuxHost{}, false
	}
	if vtep, without := withoutAgent(s, host); without {
		h.Addresses = []netip.Addr{vtep}
	} else {
		node := s.Nodes.At(host)
		if node.Role != model.RoleHost {
			return vnet.MuxHost{}, false
		}
		h.Name, h.Addresses, h.Agent, h.Server = host, own(node), true, isServer(s, host)
	}
	for n := range clientNetworks(s, host) {
		h.VNIs = append(h.VNIs, n.VNI)
	}
	slices.Sort(h.VNIs)
	return h, h.Server || len(h.VNIs) > 0
}

// own are the addresses that clients on a host send VXLAN from, one of each family at most.
func own(n model.Node) (all []netip.Addr) {
	v4, v6 := vnet.Tunnels(n.Addresses)
	for _, a := range []netip.Addr{v4, v6} {
		if a.IsValid() {
			all = append(all, a)
		}
	}
	return all
}

// Networks are the virtual networks of a host, as its agent runs them. The zero value: it has to do with none.
type Networks struct {
	Number      uint32       // of the host
	Own         []netip.Addr // that its clients send VXLAN from
	IsServer    bool         // it gets FBTs
	Attachments map[vnet.AttachmentKey]vnet.Attachment
	Hosts       map[uint32]vnet.NetworkHost
	Networks    map[uint32]vnet.HostNetwork
}

// NetworksOf are those of a host. It knows of others only what its clients and its servers need: the tunnels of servers of
// VIPs that its clients' networks have, and the hosts of clients of VIPs that its servers are of.
func NetworksOf(s desired.State, host string) Networks {
	if _, there := MuxHost(s, host); !there {
		return Networks{}
	}
	v := Networks{
		Number: s.Networks.Numbers.Of(host), Attachments: map[vnet.AttachmentKey]vnet.Attachment{}, Hosts: map[uint32]vnet.NetworkHost{},
		Networks: map[uint32]vnet.HostNetwork{},
	}
	v.Own = own(s.Nodes.At(host))
	v.host(s, host)
	v.addClients(s, host)
	v.addServers(s, host)
	for number, h := range v.Hosts {
		slices.SortFunc(h.Tunnels, netip.Addr.Compare)
		h.Tunnels = slices.Compact(h.Tunnels)
		v.Hosts[number] = h
	}
	return v
}

// addClients adds what the workloads of a host need.
func (v *Networks) addClients(s desired.State, host string) {
	vips := map[string]bool{}
	for n := range clientNetworks(s, host) {
		of := v.network(n)
		for _, w := range n.Workloads {
			if w.Host == host {
				of.Ports = append(of.Ports, vnet.Port{Interface: w.Interface, Workload: w.Name, MAC: w.MAC, Addresses: w.Addresses})
			}
		}
		slices.SortFunc(of.Ports, vnet.Port.Compare)
		v.Networks[n.VNI] = of
		v.isClient(s, host)
		for at := range s.Networks.Attached(n.Name) {
			a := attachment(s, n, at)
			v.Attachments[a.AttachmentKey] = a
			vips[at.VIP] = true
		}
	}
	for name := range vips {
		v.addTunnels(s, s.VIPs.At(name), "")
	}
}

// addServers adds what the backends on a host need.
func (v *Networks) addServers(s desired.State, host string) {
	for vip := range s.VIPsOn(host) {
		for n, at := range attachedTo(s, vip) {
			v.IsServer = true
			v.Networks[n.VNI] = v.network(n)
			a := attachment(s, n, at)
			v.Attachments[a.AttachmentKey] = a
			for client := range s.Networks.HostsIn(n.Name) {
				v.isClient(s, client)
			}
		}
		if isAttached(s, vip) {
			v.addTunnels(s, vip, host)
		}
	}
}

// addTunnels adds where the backends of a VIP are reached: those on a host, or all if that is empty.
func (v *Networks) addTunnels(s desired.State, vip model.VIP, host string) {
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if host != "" && b.Host != host || s.Networks.Numbers.Of(b.Host) == 0 {
				continue
			}
			h := v.host(s, b.Host)
			h.Tunnels = append(h.Tunnels, b.TunnelAddress())
			v.Hosts[h.Number] = h
		}
	}
}

// isClient notes that clients are on a host, if it has a number.
func (v *Networks) isClient(s desired.State, host string) {
	if s.Networks.Numbers.Of(host) != 0 {
		h := v.host(s, host)
		h.Client = true
		v.Hosts[h.Number] = h
	}
}

// host is one that has a number, as it is known so far.
func (v *Networks) host(s desired.State, host string) vnet.NetworkHost {
	number := s.Networks.Numbers.Of(host)
	h, there := v.Hosts[number]
	if !there {
		h = vnet.NetworkHost{Number: number}
		addresses := s.Nodes.At(host).Addresses
		if vtep, without := withoutAgent(s, host); without {
			addresses, h.WithoutAgent = []netip.Addr{vtep}, true
		}
		h.V4, h.V6 = vnet.Tunnels(addresses)
		v.Hosts[number] = h
	}
	return h
}

// network is one as it is known so far.
func (v *Networks) network(n vnet.Network) vnet.HostNetwork {
	if of, there := v.Networks[n.VNI]; there {
		return of
	}
	return vnet.HostNetwork{VNI: n.VNI, Name: n.Name, Tenant: n.Tenant, GatewayMAC: n.GatewayMAC}
}
