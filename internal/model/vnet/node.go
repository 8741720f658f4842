package vnet

import (
	"cmp"
	"net/netip"
	"reflect"
	"slices"
)

// Bounds of what muxes and hosts have tables for, of all tenants together.
const (
	MaxHosts       = 4096  // numbers, from 1 on
	MaxAttachments = 16383 // of all VIPs
	MaxPlaces      = 32768 // pairs of a network and a host with workloads of it: a mux has a row for each address of that
)

// AttachmentKey names an attachment on muxes and hosts.
type AttachmentKey struct {
	VNI uint32
	VIP netip.Addr // in that network
}

// Compare orders attachments by network.
func (k AttachmentKey) Compare(other AttachmentKey) int {
	return cmp.Or(cmp.Compare(k.VNI, other.VNI), k.VIP.Compare(other.VIP))
}

// Attachment is a VIP in a virtual network, as muxes and hosts run it.
type Attachment struct {
	AttachmentKey

	Service    netip.Addr // the VIP's own address, of the same family: that of its endpoints
	Network    string     // name of the network, for people
	GatewayMAC MAC        // from which the network's VIPs answer
	// WithoutAgent says that the network has hosts without an agent, which EVPN tells of the VIP.
	WithoutAgent bool
	FullNAT      bool // backends answer all clients by the muxes
	Relay        bool // likewise, those whose host has no agent

	// To muxes alone.
	NAT    bool   // muxes are the clients of its backends
	Tenant string // of the network: whose quota of sessions such connections use
}

// Equal says whether both are the same to a node.
func (a Attachment) Equal(other Attachment) bool { return a == other }

// MuxHost is a host as muxes know it: it sends VXLAN to them, or gets it from them, or both.
type MuxHost struct {
	Number    uint32       // in the cluster; 1 to MaxHosts
	Name      string       // its keys of FBTs are derived from it
	Addresses []netip.Addr // that it sends VXLAN from, one of each family at most
	Agent     bool         // one runs there
	Server    bool         // it has backends of VIPs that are attached: FBTs to it are made with its keys
	VNIs      []uint32     // of the networks that it has workloads in, in order: it sends VXLAN of no others
}

// Equal says whether both are the same to a mux.
func (h MuxHost) Equal(other MuxHost) bool { return reflect.DeepEqual(h, other) }

// NetworkHost is a host as other ones know it, and as it knows itself: clients of a network are there that has VIPs with
// backends here, or backends of VIPs that a network with workloads here has.
type NetworkHost struct {
	Number uint32
	V4, V6 netip.Addr // where its clients are reached, and send from; not valid: none of the family
	Client bool       // such clients are there
	// WithoutAgent says that no agent is there: it sends nothing straight.
	WithoutAgent bool
	// Tunnels are where such backends are reached, and answer from, in order.
	Tunnels []netip.Addr
}

// Equal says whether both are the same to a host.
func (h NetworkHost) Equal(other NetworkHost) bool {
	return h.Number == other.Number && h.V4 == other.V4 && h.V6 == other.V6 && h.Client == other.Client && h.WithoutAgent == other.WithoutAgent && slices.Equal(h.Tunnels, other.Tunnels)
}

// HostNetwork is a virtual network as hosts know it.
type HostNetwork struct {
	VNI        uint32
	Name       string
	Tenant     string // whose quota of sessions its clients use
	GatewayMAC MAC
	Ports      []Port // of its workloads on this host, by interface
}

// Equal says whether both are the same to a host.
func (n HostNetwork) Equal(other HostNetwork) bool { return reflect.DeepEqual(n, other) }

// Port is the host's end of the interface of a workload.
type Port struct {
	Interface string
	Workload  string // its name, for people
	MAC       MAC    // the workload's
	Addresses []netip.Addr
}

// Compare orders ports by interface.
func (p Port) Compare(other Port) int { return cmp.Compare(p.Interface, other.Interface) }

// Move is that addresses of a network are on another host than before.
type Move struct {
	VNI       uint32
	Addresses []netip.Addr
	Host      uint32 // its number
}

// MaxMoves is how many addresses are told of that moved.
const MaxMoves = 16384

// ConnectionsScan is how many rows of its sessions a host reads at least for an answer that is not full; it has at most
// MaxConnectionRows.
const (
	ConnectionsScan   = 1 << 18
	MaxConnectionRows = 1 << 24
)

// Tunnels are the addresses of a host that its clients send VXLAN from: its first of each family; not valid: there is none.
func Tunnels(addresses []netip.Addr) (v4, v6 netip.Addr) {
	for _, a := range addresses {
		switch {
		case a.Is4() && !v4.IsValid():
			v4 = a
		case a.Is6() && !v6.IsValid():
			v6 = a
		}
	}
	return v4, v6
}
