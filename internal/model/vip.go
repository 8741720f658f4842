package model

import (
	"net/netip"
	"time"

	"github.com/weirlb/weir/internal/model/healthcheck"
)

// VIP is a virtual address that clients use, as its owner wrote it.
type VIP struct {
	Name      string // unique; a DNS label
	Tenant    string // owner; a DNS label
	Labels    map[string]string
	Address   netip.Addr // not valid: the manager takes one from Pool
	Pool      string     // name of the AddressPool that Address is of; empty: none was named
	Family    Family     // of the address to take from Pool; empty: of the backends, else what the pool has
	Endpoints []Endpoint // at least one, unless there is SNAT; (protocol, port) unique
	// Consistency, Ping and FlowLimit hold for all endpoints.
	Consistency Consistency
	Ping        Ping
	FlowLimit   uint32 // flows that each mux remembers at most; 0: a share of its table
	SNAT        *SNAT  // nil: nobody leaves as this VIP
	// Fastpath holds for all endpoints; nil: connections stay with the muxes.
	Fastpath *Fastpath
	// Limits holds for all endpoints together, on all muxes together; nil: nothing is limited.
	Limits *Limits
	// Overload holds for all endpoints together; nil: the manager does nothing.
	Overload *Overload
	// Attachments are the virtual networks that have the VIP, each network once.
	Attachments []Attachment
	// Hardware says which switches serve the VIP; nil: muxes alone do.
	Hardware *Hardware
}

// Consistency says how the packets of a TCP connection find their backend again.
type Consistency string

// The ways. The empty string means ConsistencyAuto.
const (
	ConsistencyAuto      Consistency = "auto"       // by cookies in TCP timestamps where there are any
	ConsistencyFlowTable Consistency = "flow-table" // timestamps are left alone
)

// Ping says what the muxes do with ICMP echo requests to a VIP.
type Ping string

// The policies. The empty string means PingAnswer.
const (
	PingAnswer Ping = "answer"
	PingIgnore Ping = "ignore"
)

// AllPorts is the port of an endpoint that takes what no other endpoint of its VIP and protocol
// does. Its packets keep their port.
const AllPorts = 0

// Endpoint is one balanced (protocol, port) of a VIP.
type Endpoint struct {
	Protocol     Protocol
	Port         uint16    // or AllPorts
	Backends     []Backend // (address, port) unique
	HealthCheck  *HealthCheck
	AllUnhealthy AllUnhealthy
	Affinity     Affinity
	IdleTimeout  time.Duration // how long a silent flow is remembered; 0: the protocol's default
	SYNCookies   SYNCookies    // of TCP only
	Multipath    bool          // likewise: further subflows of Multipath TCP find their connection
	// Allow are the sources that may come, all if it is empty; of them those of Deny may not.
	Allow, Deny []netip.Prefix
	// AllowLists and DenyLists are the names of prefix lists, of which the same holds.
	AllowLists, DenyLists []string
}

// Affinity says what new connections of one client have in common.
type Affinity string

// The kinds. The empty string means AffinityNone.
const (
	AffinityNone   Affinity = "none"   // nothing
	AffinityClient Affinity = "client" // the backend, while its bucket does not move
)

// Defaults of Endpoint.IdleTimeout: RFC 5382 and RFC 4787.
const (
	DefaultIdleTCP = 2*time.Hour + 4*time.Minute
	DefaultIdleUDP = 2 * time.Minute
)

// Idle is the endpoint's IdleTimeout, or its default.
func (e Endpoint) Idle() time.Duration {
	switch {
	case e.IdleTimeout != 0:
		return e.IdleTimeout
	case e.Protocol == UDP:
		return DefaultIdleUDP
	}
	return DefaultIdleTCP
}

// AllUnhealthy says what an endpoint does when no backend of it is healthy.
type AllUnhealthy string

// The policies. The empty string means KeepAll.
const (
	KeepAll AllUnhealthy = "keep"   // send to all of them: the check may be what is broken
	Refuse  AllUnhealthy = "refuse" // drop
)

// Backend is one (address, port) that serves an endpoint.
type Backend struct {
	Address netip.Addr // the DIP, of the VIP's family
	Port    uint16
	Weight  uint32 // share of new connections; 0 drains
	Host    string // name of the node that the backend lives on, or an address of that node
	// Tunnel is where encapsulated packets go, when not Address: it routes to the host. Unique in the endpoint; of any family.
	Tunnel netip.Addr
	// FieldManager is the program that writes the backend by itself; empty: who writes the VIP does.
	FieldManager string
}

// AddrPort is the backend's identity within its endpoint.
func (b Backend) AddrPort() netip.AddrPort { return netip.AddrPortFrom(b.Address, b.Port) }

// TunnelAddress is Tunnel, or Address when no other was given.
func (b Backend) TunnelAddress() netip.Addr {
	if b.Tunnel.IsValid() {
		return b.Tunnel
	}
	return b.Address
}

// HealthCheck and its parts, which have a package of their own.
type (
	HealthCheck = healthcheck.HealthCheck
	CheckTLS    = healthcheck.TLS
	CheckType   = healthcheck.Type
)

// The kinds of health check, and who is meant by the authorities of the system.
const (
	CheckTCP   = healthcheck.TCP
	CheckHTTP  = healthcheck.HTTP
	CheckHTTPS = healthcheck.HTTPS
	CheckGRPC  = healthcheck.GRPC
	CheckUDP   = healthcheck.UDP
	SystemCA   = healthcheck.SystemCA
)

// Defaults of a health check's fields that were left out.
const (
	DefaultCheckInterval = 2 * time.Second
	DefaultCheckTimeout  = time.Second
	DefaultCheckRise     = 2
	DefaultCheckFall     = 3
)

// DefaultTenant owns the VIPs whose tenant was left out.
const DefaultTenant = "default"

// MaxWeight bounds Backend.Weight; MaxBackends the backends of an endpoint (slots 1 to 8191);
// MaxFlowLimit VIP.FlowLimit; MinIdle and MaxIdle Endpoint.IdleTimeout.
const (
	MaxWeight    = 1_000_000
	MaxBackends  = 8191
	MaxFlowLimit = 1 << 24
	MinIdle      = time.Second
	MaxIdle      = 24 * time.Hour
)
