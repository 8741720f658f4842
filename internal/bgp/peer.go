package bgp

import (
	"context"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/packet/bgp"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// PeerState is what is known of a peer.
type PeerState struct {
	Address   netip.Addr
	AS        uint32
	State     string // of the BGP state machine: "idle", "active", "established", ...
	BFD       string // "up", "down" or "off"
	Since     time.Time
	Routes    int    // sent to the peer; 0 unless established
	LastError string // why there is no session; empty while there is one

	Families    []Family // none unless established
	KeepsRoutes bool     // while the speaker restarts: the peer offers graceful restart; false unless established
}

// Established says whether the peer has the routes.
func (p PeerState) Established() bool { return p.State == established }

const established = "established"

// peer is a Peer and what happened to it.
type peer struct {
	Peer
	password string

	// Used by follow only.
	bfdDue    time.Time // when BFD is to be started, or started anew; zero: not soon
	bfdInit   time.Time // since when BFD hears the peer and is not heard; zero: does not
	bfdStarts int       // of this session, or since the last one was lost
	bfdFirst  bool      // it was there before the last session
	bfdAlone  bool      // it is up without a session
	dialled   time.Time // since when GoBGP dials the peer
	renewDue  time.Time // when GoBGP is to dial the peer anew; zero: it knows it
	up        time.Time // when its last session began; zero: it has had none

	mu    sync.Mutex
	state string
	since time.Time // of the last change between established and not
	error string
	told  bool  // that there is no session
	offer offer // of the peer's last OPEN that a session came of
}

func newPeer(config Peer, password string, now time.Time) *peer {
	return &peer{Peer: config, password: password, state: "idle", since: now}
}

// event is a change of a peer's state.
type event struct {
	address netip.Addr
	state   string
	reason  string
	offer   offer
}

// watch sends every change of a peer's state to events until ctx is done.
func watch(ctx context.Context, gobgp *server.BgpServer, events chan<- event) error {
	return gobgp.WatchEvent(ctx, server.WatchEventMessageCallbacks{
		OnPeerUpdate: func(e *apiutil.WatchEventMessage_PeerEvent, _ time.Time) {
			if e.Type != apiutil.PEER_EVENT_STATE {
				return
			}
			change := event{
				address: e.Peer.State.NeighborAddress,
				state:   stateName(e.Peer.State.SessionState),
				reason:  e.Peer.State.DisconnectMessage,
				offer:   readOffer(e.Peer.State.RemoteCap),
			}
			select {
			case events <- change:
			case <-ctx.Done():
			}
		},
	}, server.WatchPeer())
}

// stateName turns BGP_FSM_OPENSENT into "opensent".
func stateName(s bgp.FSMState) string {
	return strings.ToLower(strings.TrimPrefix(s.String(), "BGP_FSM_"))
}

// lookEvery is how often follow looks at what is due.
const lookEvery = 250 * time.Millisecond

// follow keeps the peers' states and their BFD until ctx is done.
func (s *Speaker) follow(ctx context.Context, gobgp *server.BgpServer, events <-chan event) {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case e := <-events:
			s.changed(ctx, gobgp, e)
		case now := <-tick.C:
			s.renew(ctx, gobgp, now)
			s.tendBFD(ctx, gobgp, now)
			s.diagnose(ctx, gobgp)
		}
	}
}

func (s *Speaker) changed(ctx context.Context, gobgp *server.BgpServer, e event) {
	for _, p := range s.peers {
		if p.Address != e.address {
			continue
		}
		switch p.change(e, time.Now()) {
		case cameUp:
			s.config.Log.Info("bgp session is up", "peer", p.Address.String(), "as", p.AS)
			p.up = time.Now()
			s.planBFD(ctx, gobgp, p, time.Now())
		case wentDown:
			p.bfdFirst = p.bfdFirst && time.Since(p.up) >= bfdShort
			s.config.Log.Warn("bgp session is down", "peer", p.Address.String(), "err", e.reason)
			p.lostBFD()
			s.forget(ctx, gobgp, p, time.Now())
		case unchanged:
		}
	}
}

// forgetTime is how long GoBGP does without a peer that it is to forget, and the peer's BFD with it: a reset that BFD has asked
// for only just must not find the next one of the address.
const forgetTime = lookEvery

// forget has GoBGP forget a peer whose session has ended, until renew has it dial anew. GoBGP 4.8 waits for five seconds before
// it dials a peer that ended the session; and a reset that BFD asks for when the session has ended already waits for the
// next one, and ends it as soon as it is up (osrg/gobgp issue 3561).
func (s *Speaker) forget(ctx context.Context, gobgp *server.BgpServer, p *peer, now time.Time) {
	ended := false
	err := gobgp.ListPeer(ctx, &api.ListPeerRequest{Address: p.Address.String()}, func(n *api.Peer) {
		state := n.GetState().GetSessionState()
		ended = state == api.PeerState_SESSION_STATE_IDLE || state == api.PeerState_SESSION_STATE_ACTIVE
	})
	if err == nil && !ended { // the next one is there already: we are late
		s.setBFD(ctx, gobgp, p, false)
		return
	}
	if err == nil {
		err = gobgp.DeletePeer(ctx, &api.DeletePeerRequest{Address: p.Address.String()})
	}
	if err != nil {
		s.config.Log.Error("forget the session", "peer", p.Address.String(), "err", err)
		return
	}
	p.renewDue = now.Add(forgetTime)
}

// renew has GoBGP dial the peers that it was to forget, without BFD.
func (s *Speaker) renew(ctx context.Context, gobgp *server.BgpServer, now time.Time) {
	for _, p := range s.peers {
		if p.renewDue.IsZero() || now.Before(p.renewDue) {
			continue
		}
		n := s.neighbor(p)
		if n.GracefulRestart != nil && !p.up.IsZero() {
			n.GracefulRestart.LocalRestarting = false // that was the first session
		}
		if err := gobgp.AddPeer(ctx, &api.AddPeerRequest{Peer: n}); err != nil {
			s.config.Log.Error("dial anew", "peer", p.Address.String(), "err", err)
		}
		p.renewDue, p.dialled = time.Time{}, now
	}
}

type transition int

const (
	unchanged transition = iota
	cameUp
	wentDown
)

func (p *peer) change(e event, now time.Time) transition {
	p.mu.Lock()
	defer p.mu.Unlock()
	was := p.state == established
	p.state = e.state
	is := p.state == established
	switch {
	case is && !was:
		p.since, p.error, p.told, p.offer = now, "", false, e.offer
		return cameUp
	case was && !is:
		p.since, p.error, p.told = now, "session lost: "+e.reason, false
		return wentDown
	}
	return unchanged
}

// patience is how long a peer may be without a session before it is told why.
const patience = 10 * time.Second

// diagnose finds out why peers have no session, and logs it once for each loss. GoBGP reports no
// reason for a session that never opens, so the messages that went to and fro must tell.
func (s *Speaker) diagnose(ctx context.Context, gobgp *server.BgpServer) {
	for _, p := range s.peers {
		p.mu.Lock()
		due := p.state != established && !p.told && time.Since(p.since) >= patience
		p.mu.Unlock()
		if !due {
			continue
		}
		why := "has no session"
		err := gobgp.ListPeer(ctx, &api.ListPeerRequest{Address: p.Address.String()}, func(n *api.Peer) {
			why = s.reason(p, n.GetState().GetMessages(), bfdStates(ctx, gobgp)[p.Address.String()])
		})
		if err != nil {
			continue
		}
		p.mu.Lock()
		p.error, p.told = why, true
		p.mu.Unlock()
		s.config.Log.Warn("bgp session does not open", "peer", p.Address.String(), "err", why)
	}
}

func (s *Speaker) reason(p *peer, m *api.Messages, bfd api.BfdSessionState) string {
	sent, received := m.GetSent(), m.GetReceived()
	switch {
	case sent.GetOpen() == 0:
		password := ""
		if p.password != "" {
			password = " and the password the same on both sides"
		} else {
			password = " and does it want a password"
		}
		return fmt.Sprintf("peer %s: no answer for %s: is the address reachable, does it listen for AS %d%s?",
			p.Address, patience, s.config.AS, password)
	case received.GetNotification() > 0:
		return fmt.Sprintf("peer %s refuses us by a NOTIFICATION: does it expect AS %d and router id %s?",
			p.Address, s.config.AS, s.config.RouterID)
	case received.GetOpen() > 0 && sent.GetNotification() > 0:
		return fmt.Sprintf("peer %s was refused by a NOTIFICATION: is its AS %d?", p.Address, p.AS)
	case p.BFD > 0 && bfd != api.BfdSessionState_BFD_SESSION_STATE_UP:
		return fmt.Sprintf("peer %s closes the connection: does it expect us, in AS %d? Its BFD is not up, which FRR from 10.2 on wants first",
			p.Address, s.config.AS)
	default:
		return fmt.Sprintf("peer %s closes the connection: does it expect us, in AS %d?", p.Address, s.config.AS)
	}
}

// Peers returns the state of every peer, in the order of the configuration.
func (s *Speaker) Peers() []PeerState {
	s.mu.Lock()
	defer s.mu.Unlock()
	var bfd map[string]api.BfdSessionState
	if s.server != nil {
		bfd = bfdStates(context.Background(), s.server)
	}
	states := make([]PeerState, 0, len(s.peers))
	for _, p := range s.peers {
		state, offer := p.current()
		if state.Established() {
			state.KeepsRoutes = offer.gracefulRestart
			state.Families = familiesOf(p, offer, s.announced, len(s.macs))
			for _, f := range state.Families {
				if f.Negotiated {
					state.Routes += f.Routes
				}
			}
		}
		if p.BFD > 0 {
			state.BFD = "down"
			if bfd[p.Address.String()] == api.BfdSessionState_BFD_SESSION_STATE_UP {
				state.BFD = "up"
			}
		}
		states = append(states, state)
	}
	return states
}

func (p *peer) current() (PeerState, offer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return PeerState{Address: p.Address, AS: p.AS, State: p.state, BFD: "off", Since: p.since, LastError: p.error}, p.offer
}
