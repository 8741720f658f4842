package limits

import "net/netip"

// SourceOf is the part of the network that a stranger's bounds are of: an address of IPv4, a /64 of IPv6.
func SourceOf(from string) string {
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return "unknown"
	}
	a := at.Addr().Unmap()
	if a.Is4() {
		return a.String()
	}
	p, _ := a.WithZone("").Prefix(64) // an IPv6 address has so many bits
	return p.String()
}
