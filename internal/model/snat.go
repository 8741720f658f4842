package model

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SNAT says who leaves as a VIP.
type SNAT struct {
	Workloads   []SNATWorkload // at least one; addresses unique
	Preallocate uint32         // ports that each workload has from the beginning, a multiple of RangePorts
	MaxPorts    uint32         // that a workload may hold, a multiple of RangePorts
	RequestRate uint32         // port requests a second that are taken of each workload
	Reserved    []PortRange    // never given out
	Except      []netip.Prefix // destinations that workloads reach as themselves
	Filtering   Filtering
	Exhausted   Exhausted
	IdleTimeout time.Duration // after which a range that nobody uses is given back
}

// SNATWorkload is an address that leaves as a VIP.
type SNATWorkload struct {
	Address netip.Addr // the DIP, of the VIP's family
	Host    string     // name of the node that the workload lives on, or an address of that node
	Tunnel  netip.Addr // as of a Backend
}

// TunnelAddress is Tunnel, or Address when no other was given.
func (w SNATWorkload) TunnelAddress() netip.Addr {
	if w.Tunnel.IsValid() {
		return w.Tunnel
	}
	return w.Address
}

// PortRange is some ports, the first and the last included.
type PortRange struct {
	First uint16
	Last  uint16
}

// String is "1-1023", or "80".
func (r PortRange) String() string {
	if r.First == r.Last {
		return fmt.Sprint(r.First)
	}
	return fmt.Sprintf("%d-%d", r.First, r.Last)
}

// Filtering says what may come in through a mapping, in the words of RFC 4787, section 5.
type Filtering string

// The behaviours. With the first, mappings are address-and-port-dependent, with the others
// endpoint-independent.
const (
	FilterAddressAndPort Filtering = "address-and-port-dependent"
	FilterAddress        Filtering = "address-dependent"
	FilterNone           Filtering = "endpoint-independent"
)

// Exhausted says what becomes of packets that find no port.
type Exhausted string

// The policies.
const (
	ExhaustedReject Exhausted = "reject" // a RST, or ICMP administratively prohibited
	ExhaustedDrop   Exhausted = "drop"
)

// RangePorts is the size of a Range.
const RangePorts = 8

// Range is the number of RangePorts ports of a VIP that are given out together: the first of them, divided
// by RangePorts.
type Range uint16

// RangeOf is the range that holds a port.
func RangeOf(port uint16) Range { return Range(port / RangePorts) }

// First is the range's first port.
func (r Range) First() uint16 { return uint16(r) * RangePorts }

// Defaults and bounds of SNAT.
const (
	DefaultPreallocate = 8
	DefaultMaxPorts    = 1024
	DefaultRequestRate = 10
	DefaultSNATIdle    = 2 * time.Minute
	MaxMaxPorts        = 64512 // 1024 to 65535
	MaxRequestRate     = 10_000
)

// SNATKey names a workload that leaves as a VIP, or what a host has for its workloads: BlockKey.
type SNATKey struct {
	VIP     netip.Addr
	Address netip.Addr
}

// blockPrefix holds the addresses that name port blocks: the discard prefix of RFC 6666, where no workload lives.
var blockPrefix = netip.MustParsePrefix("100::/64")

// BlockKey names the port block that a host has of a VIP. Its address is made from the host's name, so that stores,
// muxes and hosts treat a block as they do what a workload has.
func BlockKey(vip netip.Addr, host string) SNATKey {
	address, sum := blockPrefix.Addr().As16(), sha256.Sum256([]byte(host))
	copy(address[8:], sum[:])
	return SNATKey{VIP: vip, Address: netip.AddrFrom16(address)}
}

// IsBlock says whether k names a host's port block, and no workload.
func (k SNATKey) IsBlock() bool { return blockPrefix.Contains(k.Address) }

// String is "10.1.0.2 as 203.0.113.20".
func (k SNATKey) String() string { return fmt.Sprintf("%s as %s", k.Address, k.VIP) }

// Compare orders by VIP, then by address.
func (k SNATKey) Compare(other SNATKey) int {
	return cmp.Or(k.VIP.Compare(other.VIP), k.Address.Compare(other.Address))
}

// MuxSNAT is the ports that a workload has of a VIP, as a mux runs it.
type MuxSNAT struct {
	Key    SNATKey
	Tunnel netip.Addr // destination of the outer header
	Ranges []Range    // in order; there may be none
	Tenant string
	Ping   bool // of the VIP: answer echo requests
	// Written is the generation at which Ranges last changed, for deltas; 0: never, or a manager does not say.
	Written Generation
}

// Equal says whether both are the same to packets.
func (s MuxSNAT) Equal(other MuxSNAT) bool {
	return s.Key == other.Key && s.Tunnel == other.Tunnel && s.Tenant == other.Tenant && s.Ping == other.Ping &&
		slices.Equal(s.Ranges, other.Ranges)
}

// HostSNAT is the ports that a workload has of a VIP, as its host's agent runs it.
type HostSNAT struct {
	Key         SNATKey
	Tunnel      netip.Addr // outer destination that its answers arrive with
	Ranges      []Range    // in order; there may be none
	Reclaim     []Range    // of Ranges, those that take no new flow and are to be released
	Except      []netip.Prefix
	Filtering   Filtering
	Exhausted   Exhausted
	IdleTimeout time.Duration
	MaxPorts    uint32     // that it may hold
	KeepPorts   uint32     // that it keeps although nobody uses them
	Written     Generation // at which Ranges or Reclaim last changed; a host takes no older ones than it has
	Cluster     uint64     // that counts Written; 0: not known
	Tenant      string     // whose VIP it is; empty: a manager or a table does not say
}

// Equal says whether both are the same.
func (s HostSNAT) Equal(other HostSNAT) bool {
	return s.Key == other.Key && s.Tunnel == other.Tunnel && s.Filtering == other.Filtering && s.Exhausted == other.Exhausted &&
		s.IdleTimeout == other.IdleTimeout && s.MaxPorts == other.MaxPorts && s.KeepPorts == other.KeepPorts && s.Written == other.Written && s.Cluster == other.Cluster && s.Tenant == other.Tenant &&
		slices.Equal(s.Ranges, other.Ranges) && slices.Equal(s.Reclaim, other.Reclaim) && slices.Equal(s.Except, other.Except)
}

// WithDefaults returns s with what was left out put in.
func (s SNAT) WithDefaults() SNAT {
	s.MaxPorts = cmp.Or(s.MaxPorts, DefaultMaxPorts)
	s.RequestRate = cmp.Or(s.RequestRate, DefaultRequestRate)
	s.Filtering = cmp.Or(s.Filtering, FilterAddressAndPort)
	s.Exhausted = cmp.Or(s.Exhausted, ExhaustedReject)
	s.IdleTimeout = cmp.Or(s.IdleTimeout, DefaultSNATIdle)
	return s
}

// DefaultReserved are the ports that are reserved when nothing is said: those of services.
func DefaultReserved() []PortRange { return []PortRange{{First: 1, Last: 1023}} }

// DefaultExcept are the destinations that are left alone when nothing is said: private ones, by RFC 1918,
// RFC 6598 and RFC 4193.
func DefaultExcept() []netip.Prefix {
	return []netip.Prefix{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"), netip.MustParsePrefix("192.168.0.0/16"),
		netip.MustParsePrefix("100.64.0.0/10"), netip.MustParsePrefix("fc00::/7"),
	}
}

// None says, alone in a list that has a default, that there is nothing in it.
const None = "none"

// ParsePortRange reads what PortRange.String wrote.
func ParsePortRange(s string) (PortRange, error) {
	first, last, two := strings.Cut(s, "-")
	if !two {
		last = first
	}
	low, err1 := strconv.ParseUint(first, 10, 16)
	high, err2 := strconv.ParseUint(last, 10, 16)
	if err1 != nil || err2 != nil || low == 0 || low > high {
		return PortRange{}, fmt.Errorf("must be a port or a range of ports, such as 1-1023, is %.40q", s)
	}
	return PortRange{First: uint16(low), Last: uint16(high)}, nil
}
