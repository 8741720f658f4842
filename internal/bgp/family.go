package bgp

import (
	"net/netip"
	"slices"

	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Family is what becomes of the routes of a family of addresses at one peer.
type Family struct {
	Name       string // "ipv4", "ipv6" or "evpn"
	Negotiated bool   // both sides offered it; routes of another are not sent
	Routes     int    // that the speaker has for the peer
}

// Names of families.
const (
	familyIPv4 = "ipv4"
	familyIPv6 = "ipv6"
	familyEVPN = "evpn"
)

// offer is what a peer's OPEN says.
type offer struct {
	families        []bgp.Family
	gracefulRestart bool // it keeps routes of a speaker that restarts
}

// readOffer reads the capabilities of an OPEN. One that names no family offers IPv4 (RFC 4760, section 8). A peer
// that only helps others to restart names no family for graceful restart (RFC 4724, section 3).
func readOffer(capabilities []bgp.ParameterCapabilityInterface) (o offer) {
	for _, c := range capabilities {
		switch c := c.(type) {
		case *bgp.CapMultiProtocol:
			o.families = append(o.families, c.CapValue)
		case *bgp.CapGracefulRestart:
			o.gracefulRestart = true
		}
	}
	if len(o.families) == 0 {
		o.families = []bgp.Family{bgp.RF_IPv4_UC}
	}
	return o
}

// familiesOf says what becomes of routes at a peer that has a session.
func familiesOf(p *peer, o offer, routes map[netip.Prefix]Route, macs int) []Family {
	ipv4, ipv6 := countFamilies(routes)
	all := []Family{
		{familyIPv4, slices.Contains(o.families, bgp.RF_IPv4_UC), ipv4},
		{familyIPv6, slices.Contains(o.families, bgp.RF_IPv6_UC), ipv6},
	}
	if p.EVPN {
		all = append(all, Family{familyEVPN, slices.Contains(o.families, bgp.RF_EVPN), macs})
	}
	return all
}

func countFamilies(routes map[netip.Prefix]Route) (ipv4, ipv6 int) {
	for prefix := range routes {
		if prefix.Addr().Is4() {
			ipv4++
		} else {
			ipv6++
		}
	}
	return ipv4, ipv6
}

// ToProto is the state as nodes report it.
func (p PeerState) ToProto() *weirv1.BGPPeer {
	reported := &weirv1.BGPPeer{
		Address: p.Address.String(), As: p.AS, State: p.State, Bfd: p.BFD, Since: timestamppb.New(p.Since), Routes: uint32(p.Routes),
		LastError: p.LastError, KeepsRoutes: p.KeepsRoutes,
	}
	for _, f := range p.Families {
		reported.Families = append(reported.Families, &weirv1.BGPFamily{Name: f.Name, Negotiated: f.Negotiated, Routes: uint32(f.Routes)})
	}
	return reported
}
