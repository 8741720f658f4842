package bgp

import (
	"net/netip"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
)

const originIGP = 0

func (s *Speaker) nextHop(p netip.Prefix) netip.Addr {
	if p.Addr().Is4() {
		return s.config.NextHop4
	}
	return s.config.NextHop6
}

func (s *Speaker) paths(prefixes map[netip.Prefix]bool) []*apiutil.Path {
	paths := make([]*apiutil.Path, 0, len(prefixes))
	for p := range prefixes {
		if path, err := newPath(p, s.nextHop(p)); err == nil { // Announce checked what can fail
			paths = append(paths, path)
		}
	}
	return paths
}

func newPath(prefix netip.Prefix, nextHop netip.Addr) (*apiutil.Path, error) {
	nlri, err := bgp.NewIPAddrPrefix(prefix)
	if err != nil {
		return nil, err
	}
	var hop bgp.PathAttributeInterface
	family := bgp.RF_IPv4_UC
	if prefix.Addr().Is4() {
		hop, err = bgp.NewPathAttributeNextHop(nextHop)
	} else {
		family = bgp.RF_IPv6_UC
		hop, err = bgp.NewPathAttributeMpReachNLRI(family, []bgp.PathNLRI{{NLRI: nlri}}, nextHop)
	}
	if err != nil {
		return nil, err
	}
	attributes := []bgp.PathAttributeInterface{bgp.NewPathAttributeOrigin(originIGP), hop}
	return &apiutil.Path{Family: family, Nlri: nlri, Attrs: attributes}, nil
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
	family := func(afi api.Family_Afi) *api.AfiSafi {
		return &api.AfiSafi{
			Config: &api.AfiSafiConfig{
				Enabled: true, Family: &api.Family{Afi: afi, Safi: api.Family_SAFI_UNICAST},
			},
			MpGracefulRestart: &api.MpGracefulRestart{Config: &api.MpGracefulRestartConfig{Enabled: graceful}},
		}
	}
	n := &api.Peer{
		Conf: &api.PeerConf{NeighborAddress: p.Address.String(), PeerAsn: p.AS, AuthPassword: p.password},
		Timers: &api.Timers{Config: &api.TimersConfig{
			HoldTime: hold, KeepaliveInterval: max(1, hold/3),
			ConnectRetry: connectRetry, IdleHoldTimeAfterReset: idleAfterReset,
		}},
		AfiSafis: []*api.AfiSafi{family(api.Family_AFI_IP), family(api.Family_AFI_IP6)},
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
