package bgp

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"

	"github.com/weirlb/weir/internal/model"
)

const originIGP = 0

// Route is a prefix and how it is announced.
type Route struct {
	Prefix      netip.Prefix
	NextHop     netip.Addr // not valid: the speaker's own
	Communities []model.Community
}

// Plain is the usual route of a prefix.
func Plain(p netip.Prefix) Route { return Route{Prefix: p} }

// Equal says whether both are the same route.
func (r Route) Equal(other Route) bool {
	return r.Prefix == other.Prefix && r.NextHop == other.NextHop && slices.Equal(r.Communities, other.Communities)
}

// String is the prefix of a usual route, or "203.0.113.10/32 via 10.0.9.2 with [65535:666]".
func (r Route) String() string {
	text := r.Prefix.String()
	if r.NextHop.IsValid() {
		text += " via " + r.NextHop.String()
	}
	if len(r.Communities) > 0 {
		text += fmt.Sprintf(" with %v", r.Communities)
	}
	return text
}

func (s *Speaker) nextHop(r Route) netip.Addr {
	switch {
	case r.NextHop.IsValid():
		return r.NextHop
	case r.Prefix.Addr().Is4():
		return s.config.NextHop4
	}
	return s.config.NextHop6
}

func (s *Speaker) paths(routes map[netip.Prefix]Route) []*apiutil.Path {
	paths := make([]*apiutil.Path, 0, len(routes))
	for _, r := range routes {
		if path, err := newPath(r, s.nextHop(r)); err == nil { // Announce checked what can fail
			paths = append(paths, path)
		}
	}
	return paths
}

func newPath(r Route, nextHop netip.Addr) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(r.Prefix)
	if err != nil {
		return nil, err
	}
	var hop bgp.PathAttributeInterface
	family := bgp.RF_IPv4_UC
	if r.Prefix.Addr().Is4() {
		hop, err = bgp.NewPathAttributeNextHop(nextHop)
	} else {
		family = bgp.RF_IPv6_UC
		hop, err = bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, nextHop)
	}
	if err != nil {
		return nil, err
	}
	attributes := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(originIGP), hop}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: append(attributes, communities(r.Communities)...)}, nil
}

// communities are the attributes that hold list: one for communities, one for large ones.
func communities(list []model.Community) (attributes []bgp.PathAttributeInterface) {
	var plain []uint32
	var large []*bgp.LargeCommunity
	for _, c := range list {
		if c.Large {
			large = append(large, bgp.NewLargeCommunity(c.Admin, c.Value, c.Rest))
		} else {
			plain = append(plain, c.Admin<<16|c.Value)
		}
	}
	if len(plain) > 0 {
		attributes = append(attributes, bgp.NewPathAttributeCommunities(plain))
	}
	if len(large) > 0 {
		attributes = append(attributes, bgp.NewPathAttributeLargeCommunities(large))
	}
	return attributes
}

// GoBGP dials again after this long, in seconds; it makes less than two of it two.
const (
	connectRetry   = 2
	idleAfterReset = 1
)

// deferral bounds how long a restarting speaker waits for the End-of-RIB of peers that are not up
// before it sends its own routes to those that are. GoBGP's default is six minutes.
const deferral = 3 * time.Second

// neighbor is p as GoBGP wants it, without BFD.
func (s *Speaker) neighbor(p *peer) *api.Peer {
	hold := uint64(s.config.HoldTime / time.Second)
	graceful := s.config.GracefulRestart > 0
	family := func(afi api.Family_Afi, safi api.Family_Safi) *api.AfiSafi {
		return &api.AfiSafi{
			Config:            &api.AfiSafiConfig{Enabled: true, Family: &api.Family{Afi: afi, Safi: safi}},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: graceful}},
		}
	}
	n := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.AS, AuthPassword: p.password},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: hold, KeepaliveInterval: max(1, hold/3),
			ConnectRetry: connectRetry, IdleHoldTimeAfterReset: idleAfterReset,
		}},
		AfiSafis: []*api.AfiSafi{
			family(api.Family_AFI_IP, api.Family_SAFI_UNICAST), family(api.Family_AFI_IP6, api.Family_SAFI_UNICAST),
		},
	}
	if p.EVPN {
		n.AfiSafis = append(n.AfiSafis, family(api.Family_AFI_L2VPN, api.Family_SAFI_EVPN))
	}
	if graceful {
		n.GracefulRestart = &api.GracefulRestart{
			Enabled:         true,
			RestartTime:     uint32(s.config.GracefulRestart / time.Second),
			DeferralTime:    uint32(deferral / time.Second),
			LocalRestarting: s.comesBack,
		}
	}
	return n
}
