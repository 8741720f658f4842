package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Protocol is an IP protocol number of a transport that Weir balances.
type Protocol uint8

// The balanced transports.
const (
	TCP Protocol = 6
	UDP Protocol = 17
)

// ParseProtocol reads "TCP" or "UDP", in any case.
func ParseProtocol(s string) (Protocol, error) {
	switch strings.ToUpper(s) {
	case "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	}
	return 0, fmt.Errorf("must be TCP or UDP, is %q", s)
}

func (p Protocol) String() string {
	switch p {
	case TCP:
		return "TCP"
	case UDP:
		return "UDP"
	}
	return fmt.Sprintf("protocol %d", uint8(p))
}

// MarshalText writes the protocol's name.
func (p Protocol) MarshalText() ([]byte, error) { return []byte(p.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (p *Protocol) UnmarshalText(text []byte) error {
	parsed, err := ParseProtocol(string(text))
	*p = parsed
	return err
}

// EndpointKey names an endpoint: what is balanced.
type EndpointKey struct {
	VIP      netip.Addr
	Protocol Protocol
	Port     uint16
}

// String is "TCP 203.0.113.10:80", or "TCP 203.0.113.10, all ports".
func (k EndpointKey) String() string {
	if k.Port == AllPorts {
		return fmt.Sprintf("%s %s, all ports", k.Protocol, k.VIP)
	}
	return fmt.Sprintf("%s %s", k.Protocol, netip.AddrPortFrom(k.VIP, k.Port))
}

// Compare orders by VIP, port, protocol.
func (k EndpointKey) Compare(other EndpointKey) int {
	return cmp.Or(netip.AddrPortFrom(k.VIP, k.Port).Compare(netip.AddrPortFrom(other.VIP, other.Port)), int(k.Protocol)-int(other.Protocol))
}

// Flow is a five-tuple, in the direction from the client to the VIP.
type Flow struct {
	VNI         uint32 // of the virtual network that it is in; 0: in none
	Protocol    Protocol
	Source      netip.AddrPort
	Destination netip.AddrPort
}

// Endpoint is the key of the endpoint that the flow goes to.
func (f Flow) Endpoint() EndpointKey {
	return EndpointKey{VIP: f.Destination.Addr(), Protocol: f.Protocol, Port: f.Destination.Port()}
}

// String is "TCP 198.51.100.7:40000 → 203.0.113.10:80", and " in network 100" of one in a virtual network.
func (f Flow) String() string {
	if f.VNI != 0 {
		return fmt.Sprintf("%s %s → %s in network %d", f.Protocol, f.Source, f.Destination, f.VNI)
	}
	return fmt.Sprintf("%s %s → %s", f.Protocol, f.Source, f.Destination)
}
