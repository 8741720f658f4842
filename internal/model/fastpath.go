package model

import (
	"fmt"
	"net/netip"
	"time"
)

// Fastpath lets connections leave the muxes once they are established: the hosts at both ends then send to
// each other (Ananta, section 3.2.4).
type Fastpath struct {
	// Sources are the addresses of VIPs that clients' connections come from by source NAT: at least one
	// prefix, of the VIP's family.
	Sources []netip.Prefix
	// UDPPackets of a client is what a flow of UDP takes before it counts as established; 0: UDP stays
	// with the muxes.
	UDPPackets uint32
}

// Takes says whether a client of the address may leave the muxes. It may be asked of nil.
func (f *Fastpath) Takes(client netip.Addr) bool {
	if f == nil {
		return false
	}
	for _, prefix := range f.Sources {
		if prefix.Contains(client) {
			return true
		}
	}
	return false
}

// MayLeave says whether a client's connections may leave the muxes.
func (b HostBackend) MayLeave(client netip.Addr) bool {
	return b.Fastpath && takes(b.Leave, nil, b.Stay, nil, client, nil)
}

// Bounds of Fastpath.
const (
	MaxFastpathSources = 64
	MaxUDPPackets      = 1 << 20
)

// FastpathKey signs what muxes and hosts tell each other of connections that go direct.
type FastpathKey struct {
	ID     uint32 // grows with each key; 0 is invalid
	Made   time.Time
	Secret [32]byte
}

// String does not tell the secret.
func (k FastpathKey) String() string { return fmt.Sprintf("fastpath key %d", k.ID) }

// validateFastpath holds that the sources are prefixes of the VIP's family, each once.
func (vip VIP) validateFastpath(v *validator) {
	f := vip.Fastpath
	if f == nil {
		return
	}
	if n := len(f.Sources); n == 0 || n > MaxFastpathSources {
		v.refuse("fastpath.sources", "must be 1 to %d, are %d", MaxFastpathSources, n)
	}
	if f.UDPPackets > MaxUDPPackets {
		v.refuse("fastpath.udpPackets", "must be at most %d, is %d", MaxUDPPackets, f.UDPPackets)
	}
	if len(vip.Endpoints) == 0 {
		v.refuse("fastpath", "is for connections to endpoints, of which there is none")
	}
	first := make(map[netip.Prefix]int, len(f.Sources))
	for i, p := range f.Sources {
		field := fmt.Sprintf("fastpath.sources[%d]", i)
		switch {
		case !p.IsValid():
			v.refuse(field, "must be an address or a prefix such as 203.0.113.0/28")
			continue
		case p != p.Masked():
			v.refuse(field, "must have no bits set behind its length, is %s", p)
		case vip.Address.IsValid() && p.Addr().Is4() != vip.Address.Is4():
			v.refuse(field, "must be of the VIP's family (%s), is %s", family(vip.Address), p)
		}
		if j, taken := first[p]; taken {
			v.refuse(field, "is %s again, as sources[%d]", p, j)
			continue
		}
		first[p] = i
	}
}
