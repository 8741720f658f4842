package bgp

import (
	"context"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// GoBGP 4.8 in BFD state Init keeps to the first discriminator it saw. FRR makes a BFD session when
// it learns of a dynamic neighbour, deletes it, and makes another when the BGP session is up: a
// speaker that starts BFD before BGP binds to the first one, hears nothing more of it, and resets BGP.
// So BFD starts bfdDelay after the session is up, and ends when the session is lost.
const bfdDelay = 700 * time.Millisecond

// bfdAloneAfter is how long GoBGP dials, twice, before BFD starts without a session: FRR from 10.2 on closes the connections
// of a neighbour whose BFD is not up (FRRouting/frr issue 18408; Debian 13 has 10.3).
const bfdAloneAfter = 5 * time.Second

// bfdShort is how long a session must have lasted for BFD to be first at once when it is lost: FRR may have deleted the BFD
// session that was there first.
const bfdShort = 10 * time.Second

const bfdMultiplier = 3

// bfdHears is how many times longer we listen for the router than it listens for us. A speaker that stood still
// finds the router silent, and GoBGP resets BGP for it by a NOTIFICATION, which ends graceful restart: whether we were
// silent for too long is the router's to say.
const bfdHears = 3

// How long BFD may take before it is started anew.
const (
	// bfdPatience is for a peer that says nothing.
	bfdPatience = 5 * time.Second
	// bfdInitPatience is for a peer that was heard but does not hear us. GoBGP sends its first packet
	// after a second, so one is normal; three after the last packet it would reset BGP. In between the
	// router was slow, and BFD is bound to a session that is deleted.
	bfdInitPatience = 2 * time.Second
)

// planBFD plans BFD of a session that is up. BFD that was there first stays if it hears the router: to fall silent now would
// have the router reset the session.
func (s *Speaker) planBFD(ctx context.Context, gobgp *server.BgpServer, p *peer, up time.Time) {
	if p.BFD == 0 {
		return
	}
	state := api.BfdSessionState_BFD_SESSION_STATE_DOWN
	if p.bfdStarts > 0 {
		state = bfdStates(ctx, gobgp)[p.Address.String()]
	}
	p.bfdDue, p.bfdInit = time.Time{}, time.Time{}
	switch state {
	case api.BfdSessionState_BFD_SESSION_STATE_UP:
		p.bfdFirst = true
		return
	case api.BfdSessionState_BFD_SESSION_STATE_INIT:
		p.bfdFirst, p.bfdDue, p.bfdInit = true, up.Add(bfdInitPatience), up
		return
	}
	if p.bfdStarts > 0 {
		s.setBFD(ctx, gobgp, p, false)
	}
	p.bfdFirst, p.bfdDue, p.bfdStarts = false, up.Add(bfdDelay), 0
}

// planBFDFirst plans BFD of a peer that has no session, and which GoBGP dials.
func (p *peer) planBFDFirst(now time.Time) {
	switch {
	case p.BFD == 0 || p.dialled.IsZero() || !p.renewDue.IsZero():
	case p.bfdStarts > 0:
		p.bfdDue = now.Add(bfdPatience)
	case p.bfdFirst || now.Sub(p.dialled) >= bfdAloneAfter:
		p.bfdDue, p.bfdInit = now, time.Time{}
	}
}

// tendBFD starts BFD where it is due, and starts it anew where it does not come up, of one peer at a time.
func (s *Speaker) tendBFD(ctx context.Context, gobgp *server.BgpServer, now time.Time) {
	states := bfdStates(ctx, gobgp)
	for _, p := range s.peers {
		current, _ := p.current()
		up := states[p.Address.String()] == api.BfdSessionState_BFD_SESSION_STATE_UP
		if p.bfdAlone && !up && !current.Established() {
			p.lostBFD()
			s.forget(ctx, gobgp, p, now) // and the reset that GoBGP has ready for the next session
			continue
		}
		p.bfdAlone = up && !current.Established()
		switch {
		case up:
			p.bfdDue = time.Time{}
		case p.bfdDue.IsZero() && !current.Established():
			p.planBFDFirst(now)
		case states[p.Address.String()] == api.BfdSessionState_BFD_SESSION_STATE_INIT && !p.bfdDue.IsZero() && p.bfdInit.IsZero():
			p.bfdInit, p.bfdDue = now, now.Add(bfdInitPatience)
		}
		if p.bfdDue.IsZero() || now.Before(p.bfdDue) {
			continue
		}
		if p.bfdStarts == 1 && p.bfdInit.IsZero() && current.Established() {
			s.config.Log.Warn("bfd does not come up: is it enabled for us on the router?", "peer", p.Address.String())
		}
		s.setBFD(ctx, gobgp, p, false)
		s.setBFD(ctx, gobgp, p, true)
		p.bfdStarts++
		p.bfdDue, p.bfdInit = now.Add(bfdPatience), time.Time{}
		return
	}
}

// lostBFD notes that the peer has no BFD, and no session.
func (p *peer) lostBFD() { p.bfdAlone, p.bfdDue, p.bfdStarts = false, time.Time{}, 0 }

// bfdStates are the states of BFD by the peer's address; it is off at peers that are missing.
func bfdStates(ctx context.Context, gobgp *server.BgpServer) map[string]api.BfdSessionState {
	states := map[string]api.BfdSessionState{}
	gobgp.ListBfdPeer(ctx, func(address string, state *api.BfdPeerState) {
		states[address] = state.GetSessionState()
	})
	return states
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
			DesiredMinimumTxInterval: interval, RequiredMinimumReceive: bfdHears * interval,
		}
	}
	if _, err := gobgp.UpdatePeer(ctx, &api.UpdatePeerRequest{Peer: n}); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("switch bfd", "peer", p.Address.String(), "enabled", on, "err", err)
	}
}
