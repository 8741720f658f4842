package bgp

import (
	"context"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// GoBGP 4.8 in BFD state Init keeps to the first discriminator it saw. FRR makes a BFD session when
// it learns of a dynamic neighbour, deletes it, and makes another when the BGP session is up: a
// speaker that starts BFD before BGP waits for the first one, times out and resets BGP, for ever.
// So BFD starts bfdDelay after the session is up, and ends when the session is lost.
const bfdDelay = 700 * time.Millisecond

const bfdMultiplier = 3

func (s *Speaker) planBFD(p *peer, up time.Time) {
	if p.BFD > 0 {
		p.bfdDue, p.bfdStarts = up.Add(bfdDelay), 0
	}
}

// bfdPatience is how long BFD may take to come up before it is started anew.
const bfdPatience = 5 * time.Second

// startDueBFD starts BFD where it is due, and starts it anew where it does not come up.
func (s *Speaker) startDueBFD(ctx context.Context, gobgp *server.BgpServer, now time.Time) {
	for _, p := range s.peers {
		if p.bfdDue.IsZero() || now.Before(p.bfdDue) {
			continue
		}
		if bfdUp(ctx, gobgp)[p.Address.String()] {
			p.bfdDue = time.Time{}
			continue
		}
		if p.bfdStarts == 1 {
			s.config.Log.Warn("bfd does not come up: is it enabled for us on the router?", "peer", p.Address.String())
		}
		s.setBFD(ctx, gobgp, p, false)
		s.setBFD(ctx, gobgp, p, true)
		p.bfdStarts++
		p.bfdDue = now.Add(bfdPatience)
	}
}

// bfdUp says for each peer's address whether BFD is up.
func bfdUp(ctx context.Context, gobgp *server.BgpServer) map[string]bool {
	up := map[string]bool{}
	gobgp.ListBfdPeer(ctx, func(address string, state *api.BfdPeerState) {
		up[address] = state.GetSessionState() == api.BfdSessionState_BFD_SESSION_STATE_UP
	})
	return up
}

func (s *Speaker) setBFD(ctx context.Context, gobgp *server.BgpServer, p *peer, on bool) {
	if p.BFD == 0 {
		return
	}
	n := s.neighbor(p)
	if on {
		interval := uint32(p.BFD / time.Microsecond)
		n.Bfd = &api.BfdPeerConfig{
			Enabled: true, DetectionMultiplier: bfdMultiplier,
			DesiredMinimumTxInterval: interval, RequiredMinimumReceive: interval,
		}
	}
	if _, err := gobgp.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: n}); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("switch bfd", "peer", p.Address.String(), "on", on, "err", err)
	}
}
