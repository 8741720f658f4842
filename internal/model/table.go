package model

import (
	"net/netip"
	"reflect"
	"slices"
	"time"
)

// Generation is a version of the desired state: the store's revision that it was read at.
// Generations only grow; 0 means none.
type Generation uint64

// Epoch is a leader's term: the store's revision at which it was elected. Epochs only grow; 0 means none.
type Epoch uint64

// Slot is a backend's number within its endpoint, 1 to 8191; 0 is invalid. A backend keeps its
// slot for life.
type Slot uint16

// MuxEndpoint is an endpoint as a mux runs it.
type MuxEndpoint struct {
	Key      EndpointKey
	Tenant   string
	Buckets  []Slot // a power of two of them; empty: no backend, drop
	Backends []MuxBackend
	// Previous is, by bucket, the slot that it named before, while connections from then may live;
	// 0: none. Empty when there is none at all.
	Previous    []Slot
	Cookies     Cookies
	Affinity    bool          // hash the client's address without its port
	IdleTimeout time.Duration // how long a silent flow is remembered
	// Ping and FlowLimit are the VIP's, the same in all its endpoints.
	Ping      bool // answer echo requests
	FlowLimit uint32
	Fastpath  *Fastpath
	// SYNCookies is never empty; what is not of TCP has SYNCookiesNever.
	SYNCookies SYNCookies
	// Allow are the sources that may come, all if it is empty; of them those of Deny may not.
	Allow, Deny []netip.Prefix
	// AllowLists and DenyLists are the names of prefix lists, of which the same holds.
	AllowLists, DenyLists []string
	Limits                *Limits // of the VIP, of all muxes together; nil: none
	NAT                   bool    // the VIP's: muxes are the clients of its backends in some virtual network
	Hardware              bool    // the VIP's: switches hold it, and its hosts relay what they can't decide
	Multipath             bool    // SYNs that join a connection of Multipath TCP are forwarded, whoever answers others
}

// Equal says whether both are the same to a mux. What is long is compared as a whole first.
func (e MuxEndpoint) Equal(other MuxEndpoint) bool {
	if !slices.Equal(e.Buckets, other.Buckets) || !slices.Equal(e.Previous, other.Previous) || !slices.Equal(e.Backends, other.Backends) {
		return false
	}
	e.Buckets, e.Previous, e.Backends = nil, nil, nil
	other.Buckets, other.Previous, other.Backends = nil, nil, nil
	return reflect.DeepEqual(e, other)
}

// Cookies says whether a mux reads an endpoint's cookies.
type Cookies string

// The modes.
const (
	CookiesOff      Cookies = "off"
	CookiesSettling Cookies = "settling" // connections without may live: the flow table is asked first
	CookiesOn       Cookies = "on"
)

// MuxBackend is a row of an endpoint's slots.
type MuxBackend struct {
	Slot    Slot
	Tunnel  netip.Addr     // destination of the outer header
	Backend netip.AddrPort // the DIP and its port, for people and for explain
	Host    uint32         // number of its host in the cluster, below 2^24; 0: it has none
	// Down: flows that a mux remembers for this backend are chosen anew. A backend that drains
	// is not down: it is merely in no bucket.
	Down bool
	// Retired: it is the endpoint's no more, and its slot is kept from others for a while. It is down too.
	Retired bool
}

// HostBackend is a backend as its host's agent runs it: what to rewrite and what to check.
type HostBackend struct {
	Endpoint    EndpointKey
	Tunnel      netip.Addr     // outer destination that its packets arrive with
	Backend     netip.AddrPort // what VIP:port is rewritten to
	HealthCheck *HealthCheck   // nil: always healthy
	Slot        Slot           // its cookie
	Cookies     bool           // write cookies into the timestamps of new connections
	// Buckets is how many the endpoint has; Draining those that were this backend's lately and are others' now, in order.
	Buckets  uint32
	Draining []uint32
	// ChainPeers are the tunnels of other backends of the endpoint that may hand connections to this one, or back to it. Homes
	// are one on each host that may know who has a subflow of Multipath TCP; empty: the endpoint has no multipath.
	ChainPeers, Homes []netip.Addr
	Affinity          bool
	IdleTimeout       time.Duration
	Fastpath          bool           // connections may leave the muxes
	Leave, Stay       []netip.Prefix // of clients of Leave, but for those of Stay; of all if Leave is empty
	SYNCookies        SYNCookies     // as in MuxEndpoint
	Tenant            string         // whose VIP it is; empty: a manager or a table does not say
	Allow, Deny       []netip.Prefix // of clients in virtual networks, as of the endpoint; both empty: all are taken
}

// Takes says whether a client in a virtual network may go on.
func (b HostBackend) Takes(client netip.Addr) bool {
	return takes(b.Allow, nil, b.Deny, nil, client, nil)
}

// Equal says whether both are the same to a host.
func (b HostBackend) Equal(other HostBackend) bool {
	if !slices.Equal(b.Draining, other.Draining) || !slices.Equal(b.ChainPeers, other.ChainPeers) {
		return false
	}
	b.Draining, b.ChainPeers, other.Draining, other.ChainPeers = nil, nil, nil, nil
	return reflect.DeepEqual(b, other)
}

// BackendSessions counts the connections that a host remembers of one of its backends.
type BackendSessions struct {
	Key           HostBackendKey
	Sessions      uint64
	WithoutCookie uint64 // muxes find them by flow table and bucket alone
	Draining      uint64 // of WithoutCookie, those in buckets that the backend is draining
}

// HostBackendKey identifies a HostBackend on its host.
type HostBackendKey struct {
	Endpoint EndpointKey
	Tunnel   netip.Addr
}

// Key identifies b on its host.
func (b HostBackend) Key() HostBackendKey {
	return HostBackendKey{Endpoint: b.Endpoint, Tunnel: b.Tunnel}
}

// Role is what a node does.
type Role string

// The roles of nodes.
const (
	RoleMux    Role = "mux"
	RoleHost   Role = "host"
	RoleSwitch Role = "switch"
)

// Node is a registered mux, host or switch.
type Node struct {
	Name        string // unique; a DNS label
	Role        Role
	Addresses   []netip.Addr   // outer source addresses of a mux or switch; a host's own addresses
	Version     string         // of the program that runs on it
	Prefixes    []netip.Prefix // outer sources of a mux that spreads them
	Aggregates  []netip.Prefix // that a mux announces instead of routes to single VIPs
	NATPrefixes []netip.Prefix // by which backends know clients with full NAT in this mux, one of each family at most
	Drained     time.Time      // since when no VIP is to be in the switch; zero: it is not drained
	Multipath   bool           // the host brings subflows of Multipath TCP to the host that has their connection
	PortBlocks  bool           // the host's agent gives ranges of port blocks to workloads

	NeighborPrefixes []netip.Prefix // of VIPs in them the mux can answer ARP and NDP
	MAC              string         // of the mux's interface, in lower case; empty: it has no neighbor prefixes
}

// PoolMember is a mux as the others of its pool know it.
type PoolMember struct {
	Name      string
	Addresses []netip.Addr
	Prefixes  []netip.Prefix
}

// Health is what the agents say of a backend.
type Health string

// The states of a backend's health.
const (
	HealthUnknown   Health = "unknown" // checked, but not yet long enough to tell
	HealthHealthy   Health = "healthy"
	HealthUnhealthy Health = "unhealthy"
	HealthUnchecked Health = "unchecked" // its endpoint has no check
	HealthPending   Health = "pending"   // its host has not joined: no agent says this
)

// BackendHealth is what an agent found of one backend.
type BackendHealth struct {
	Endpoint EndpointKey
	Backend  netip.AddrPort
	Health   Health // healthy or unhealthy
	Reason   string // why the last check failed, or empty
	Silent   bool   // nobody looked: its host's agent is gone, and the host with it for all that is known
}

// Counter counts packets and their bytes (of the whole frame on the way in).
type Counter struct {
	Packets uint64 `json:"packets"`
	Bytes   uint64 `json:"bytes"`
}

// NextHop is the Ethernet addresses that a mux sends a frame with. The zero value means unresolved.
type NextHop struct {
	Source      [6]byte
	Destination [6]byte
}

// Resolved says whether the hop can be used.
func (h NextHop) Resolved() bool { return h != NextHop{} }
