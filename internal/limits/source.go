package limits

import "net/netip"

// Source is the part of the network that a stranger's bounds are of: an address of IPv4, a /64 of IPv6.
func Source(a netip.Addr) netip.Prefix {
	a = a.Unmap().WithZone("")
	p, _ := a.Prefix(min(64, a.BitLen())) // an address has so many bits
	return p
}

// SourceOf is the Source of a host:port, in a word.
func SourceOf(from string) string {
	at, err := netip.ParseAddrPort(from)
	if err != nil {
		return "unknown"
	}
	p := Source(at.Addr())
	if p.IsSingleIP() {
		return p.Addr().String()
	}
	return p.String()
}
