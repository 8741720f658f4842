// Package network holds the virtual networks of a desired state, the VIPs that are attached to them, and what finds both.
// Pure: no I/O, no clock.
//
// A VIP is attached while its spec says so, the network is there and allows the VIP's tenant, and the cluster has an
// overlay: what takes one of these away detaches it, and it is attached again when it comes back.
package network

import (
	"cmp"
	"iter"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/sorted"
)

// Set is the virtual networks of a state. A copy that was not made by Clone is read only.
type Set struct {
	// Overlay is the cluster's; nil: it has none. It is never written to.
	Overlay *vnet.Overlay
	Numbers Numbers // of hosts

	networks sorted.Map[string, vnet.Network]
	vnis     sorted.Map[uint32, string] // names
	wanted   sorted.Map[wanted, none]   // attachments, as VIPs have them
	tenants  sorted.Map[string, string] // of VIPs with attachments, by VIP
	ports    sorted.Map[Port, string]   // names of networks
	usage    sorted.Map[string, Usage]  // by tenant
	places   places
}

type none = struct{}

// wanted is an attachment as a VIP has it, whether it is in force or not.
type wanted struct {
	network string
	address netip.Addr
	vip     string
	mode    model.AttachmentMode
}

// Compare orders attachments by network and address.
func (w wanted) Compare(other wanted) int {
	return cmp.Or(cmp.Compare(w.network, other.network), w.address.Compare(other.address), cmp.Compare(w.vip, other.vip), cmp.Compare(w.mode, other.mode))
}

var _ = sorted.Register(wanted.Compare)

// Port is an interface of a host.
type Port struct{ Host, Interface string }

// Compare orders ports by host.
func (p Port) Compare(other Port) int {
	return cmp.Or(cmp.Compare(p.Host, other.Host), cmp.Compare(p.Interface, other.Interface))
}

var _ = sorted.Register(Port.Compare)

// Usage is what a tenant has of its quotas of networks.
type Usage struct{ Networks, Workloads, Attachments uint32 }

// Clone returns a Set that may be written to; its price does not depend on the Set's size.
func (s Set) Clone() Set {
	return Set{
		Overlay: s.Overlay, networks: s.networks.Clone(), vnis: s.vnis.Clone(), wanted: s.wanted.Clone(), tenants: s.tenants.Clone(),
		ports: s.ports.Clone(), usage: s.usage.Clone(), places: s.places.clone(), Numbers: s.Numbers.clone(),
	}
}

// Get returns the network of a name.
func (s Set) Get(name string) (vnet.Network, bool) { return s.networks.Get(name) }

// All are the networks by name.
func (s Set) All() iter.Seq[vnet.Network] { return s.networks.Values() }

// From are the networks by name, from one on.
func (s Set) From(name string) iter.Seq2[string, vnet.Network] { return s.networks.From(name) }

// Len is how many networks there are.
func (s Set) Len() int { return s.networks.Len() }

// Map are the networks by name; it is read only.
func (s Set) Map() sorted.Map[string, vnet.Network] { return s.networks }

// OfVNI is the network of a VNI.
func (s Set) OfVNI(vni uint32) (vnet.Network, bool) {
	name, there := s.vnis.Get(vni)
	if !there {
		return vnet.Network{}, false
	}
	return s.networks.Get(name)
}

// OfPort is the name of the network that a host's interface is in.
func (s Set) OfPort(p Port) (name string, there bool) { return s.ports.Get(p) }

// PortsOf are the interfaces of a host that are in networks, each with the name of its network.
func (s Set) PortsOf(host string) iter.Seq2[Port, string] {
	return func(yield func(Port, string) bool) {
		for p, name := range s.ports.From(Port{Host: host}) {
			if p.Host != host || !yield(p, name) {
				return
			}
		}
	}
}

// Usage is what a tenant has.
func (s Set) Usage(tenant string) Usage { return s.usage.At(tenant) }

// Put adds or replaces a network.
func (s *Set) Put(n vnet.Network) {
	s.Remove(n.Name)
	s.networks.Set(n.Name, n)
	s.vnis.Set(n.VNI, n.Name)
	for _, w := range n.Workloads {
		s.ports.Set(Port{w.Host, w.Interface}, n.Name)
	}
	s.places.put(n)
	s.count(n.Tenant, Usage{Networks: 1, Workloads: uint32(len(n.Workloads))})
}

// Remove forgets a network. VIPs that it has want it still.
func (s *Set) Remove(name string) {
	n, there := s.networks.Get(name)
	if !there {
		return
	}
	s.networks.Delete(name)
	if s.vnis.At(n.VNI) == name {
		s.vnis.Delete(n.VNI)
	}
	for _, w := range n.Workloads {
		if p := (Port{w.Host, w.Interface}); s.ports.At(p) == name {
			s.ports.Delete(p)
		}
	}
	s.places.remove(n)
	s.count(n.Tenant, Usage{Networks: minusOne, Workloads: -uint32(len(n.Workloads))})
}

// minusOne is added to take one away.
const minusOne = ^uint32(0)

// count adds to what a tenant has.
func (s *Set) count(tenant string, more Usage) {
	u := s.usage.At(tenant)
	u = Usage{u.Networks + more.Networks, u.Workloads + more.Workloads, u.Attachments + more.Attachments}
	if u == (Usage{}) {
		s.usage.Delete(tenant)
		return
	}
	s.usage.Set(tenant, u)
}

// ReplaceVIP has the attachments of is in the place of those of was, which is the VIP before; zero: there is none.
func (s *Set) ReplaceVIP(was, is model.VIP) {
	for _, a := range was.Attachments {
		s.wanted.Delete(wanted{a.Network, a.Address, was.Name, a.Mode})
	}
	for _, a := range is.Attachments {
		s.wanted.Set(wanted{a.Network, a.Address, is.Name, a.Mode}, none{})
	}
	if n := len(was.Attachments); n > 0 {
		s.tenants.Delete(was.Name)
		s.count(was.Tenant, Usage{Attachments: -uint32(n)})
	}
	if n := len(is.Attachments); n > 0 {
		s.tenants.Set(is.Name, is.Tenant)
		s.count(is.Tenant, Usage{Attachments: uint32(n)})
	}
}

// HasAttachments says whether a VIP has any, in force or not.
func (s Set) HasAttachments(vip string) bool { return s.tenants.Has(vip) }

// Wants says whether any VIP has attachments, in force or not.
func (s Set) Wants() bool { return s.tenants.Len() > 0 }

// Attached is a VIP that a network has.
type Attached struct {
	Address netip.Addr // in the network
	VIP     string     // its name
	Tenant  string     // of the VIP
	Mode    model.AttachmentMode
}

// Attached are the VIPs that a network has, by address. There are none while there is no overlay.
func (s Set) Attached(network string) iter.Seq[Attached] {
	return func(yield func(Attached) bool) {
		if s.Overlay == nil {
			return
		}
		s.allowed(network)(yield)
	}
}

// allowed are the VIPs that a network allows, by address.
func (s Set) allowed(network string) iter.Seq[Attached] {
	return func(yield func(Attached) bool) {
		n, there := s.networks.Get(network)
		if !there {
			return
		}
		for w := range s.wanted.From(wanted{network: network}) {
			if w.network != network {
				return
			}
			a := Attached{w.address, w.vip, s.tenants.At(w.vip), w.mode}
			if n.Allows(a.Tenant) && !yield(a) {
				return
			}
		}
	}
}

// AttachedAt is the VIP that a network has at an address.
func (s Set) AttachedAt(network string, address netip.Addr) (at Attached, there bool) {
	n, known := s.networks.Get(network)
	if !known || s.Overlay == nil {
		return at, false
	}
	for w := range s.wanted.From(wanted{network: network, address: address}) {
		if w.network != network || w.address != address {
			break
		}
		if at = (Attached{w.address, w.vip, s.tenants.At(w.vip), w.mode}); n.Allows(at.Tenant) {
			return at, true
		}
	}
	return Attached{}, false
}

// Allowed is Attached, whether there is an overlay or not.
func (s Set) Allowed(network string) iter.Seq[Attached] { return s.allowed(network) }

// State is how an attachment is.
type State string

// The states: the reasons of conditions.
const (
	InForce    State = "Attached"
	NoNetwork  State = "NetworkNotFound"
	NotAllowed State = "NotAllowed" // the network's tenant has not allowed the VIP's, or does so no more
	NoOverlay  State = "NoOverlay"
)

// Reason says for people why.
func (s State) Reason() string {
	switch s {
	case NoNetwork:
		return "there is no such network"
	case NotAllowed:
		return "its tenant does not allow the VIP's"
	case NoOverlay:
		return "the cluster has no overlay"
	}
	return "attached"
}

// StateOf is how an attachment of a VIP of the tenant is.
func (s Set) StateOf(tenant string, a model.Attachment) State {
	n, there := s.networks.Get(a.Network)
	switch {
	case !there:
		return NoNetwork
	case !n.Allows(tenant):
		return NotAllowed
	case s.Overlay == nil:
		return NoOverlay
	}
	return InForce
}

// Wanting are the names of the VIPs that have an attachment to a network, in force or not.
func (s Set) Wanting(network string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for w := range s.wanted.From(wanted{network: network}) {
			if w.network != network || !yield(w.vip) {
				return
			}
		}
	}
}
