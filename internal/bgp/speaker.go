package bgp

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/osrg/gobgp/v4/api"
	"github.com/osrg/gobgp/v4/pkg/apiutil"
	"github.com/osrg/gobgp/v4/pkg/server"
)

// Speaker announces prefixes to its peers.
type Speaker struct {
	config Config
	peers  []*peer // in the order of the configuration

	mu        sync.Mutex
	server    *server.BgpServer // nil unless Run runs
	announced map[netip.Prefix]Route
	macs      map[MACRoute]bool
	evis      evis
	comesBack bool
	handOver  bool
}

// New checks the configuration and reads the passwords. Nothing is sent before Run.
func New(config Config) (*Speaker, error) {
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("configure bgp: %w", oneLine(err))
	}
	if config.HoldTime == 0 {
		config.HoldTime = DefaultHoldTime
	}
	s := &Speaker{config: config, announced: map[netip.Prefix]Route{}, macs: map[MACRoute]bool{}, evis: newEVIs()}
	now := time.Now()
	for _, p := range config.Peers {
		password, err := readPassword(config.Log, p)
		if err != nil {
			return nil, err
		}
		s.peers = append(s.peers, newPeer(p, password, now))
	}
	return s, nil
}

// Run speaks until ctx is done. It announces what Announce was told before, in the first update.
func (s *Speaker) Run(ctx context.Context) error {
	if len(s.peers) == 0 {
		<-ctx.Done()
		return nil
	}
	log := quiet(s.config.Log)
	gobgp := server.NewBgpServer(server.LoggerOption(log.logger, log.level))
	var served sync.WaitGroup
	served.Go(gobgp.Serve)
	defer served.Wait()
	defer gobgp.Stop()

	// Its own context: what is left to do after ctx must not fail because of it.
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.start(running, gobgp); err != nil {
		return fmt.Errorf("start bgp: %w", err)
	}
	events := make(chan event)
	if err := watch(running, gobgp, events); err != nil {
		return fmt.Errorf("start bgp: %w", err)
	}
	for _, p := range s.peers {
		if err := gobgp.AddPeer(running, &api.AddPeerRequest{Peer: s.neighbor(p)}); err != nil {
			return fmt.Errorf("add peer %s: %w", p.Address, err)
		}
		p.dialled = time.Now()
	}
	s.follow(ctx, gobgp, events)
	return s.close(running, gobgp)
}

// start brings up a server that listens to nobody, imports nothing and has all paths.
func (s *Speaker) start(ctx context.Context, gobgp *server.BgpServer) error {
	err := gobgp.StartBgp(ctx, &api.StartBgpRequest{Global: &api.Global{
		Asn: s.config.AS, RouterId: s.config.RouterID.String(), ListenPort: -1,
	}})
	if err != nil {
		return err
	}
	if err := importNothing(ctx, gobgp); err != nil {
		return fmt.Errorf("set the import policy: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = gobgp
	if paths := s.paths(s.announced); len(paths) > 0 {
		if _, err := gobgp.AddPath(apiutil.AddPathRequest{Paths: paths}); err != nil {
			return fmt.Errorf("announce %d prefixes: %w", len(paths), err)
		}
	}
	return s.changeMACs(notIn(s.macs, nil), nil)
}

// importNothing refuses all that peers send. The global policy judges our own paths too, so those
// must be accepted by name before the default refuses.
func importNothing(ctx context.Context, gobgp *server.BgpServer) error {
	own := &api.Policy{Name: "own", Statements: []*api.Statement{{
		Name:       "own",
		Conditions: &api.Conditions{RouteType: api.Conditions_ROUTE_TYPE_LOCAL},
		Actions:    &api.Actions{RouteAction: api.RouteAction_ROUTE_ACTION_ACCEPT},
	}}}
	if err := gobgp.AddPolicy(ctx, &api.AddPolicyRequest{Policy: own}); err != nil {
		return err
	}
	return gobgp.SetPolicyAssignment(ctx, &api.SetPolicyAssignmentRequest{Assignment: &api.PolicyAssignment{
		Name: "global", Direction: api.PolicyDirection_POLICY_DIRECTION_IMPORT,
		Policies: []*api.Policy{{Name: "own"}}, DefaultAction: api.RouteAction_ROUTE_ACTION_REJECT,
	}})
}

// SetRestarting says, before Run, that the data plane forwarded all the while that no speaker ran: the
// peers may still have the routes of the one before, and are to keep them.
func (s *Speaker) SetRestarting() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.comesBack = true
}

// HandOver makes the end of Run leave the routes with the peers, for a successor to take over
// within the graceful restart time.
func (s *Speaker) HandOver() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.handOver = true
}

func (s *Speaker) close(ctx context.Context, gobgp *server.BgpServer) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.server = nil
	if !s.handOver && len(s.announced)+len(s.macs) > 0 {
		if err := gobgp.DeletePath(apiutil.DeletePathRequest{DeleteAll: true}); err != nil {
			return fmt.Errorf("withdraw all routes: %w", err)
		}
	}
	if err := gobgp.StopBgp(ctx, &api.StopBgpRequest{AllowGracefulRestart: s.handOver}); err != nil {
		return fmt.Errorf("close the sessions: %w", err)
	}
	return nil
}

// Announce makes routes the full set of what is announced. Those whose family has no next hop, or another one's,
// are left out and named in the error; the others are announced.
func (s *Speaker) Announce(routes []Route) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	var errs []error
	wanted := make(map[netip.Prefix]Route, len(routes))
	for _, r := range routes {
		if !r.Prefix.IsValid() {
			errs = append(errs, fmt.Errorf("announce %s: not a prefix", r.Prefix))
			continue
		}
		hop := s.nextHop(r)
		if !hop.IsValid() {
			errs = append(errs, fmt.Errorf("announce %s: there is no address of its family to be the next hop", r.Prefix))
			continue
		}
		if hop.Is4() != r.Prefix.Addr().Is4() {
			errs = append(errs, fmt.Errorf("announce %s: next hop %s is of another family", r.Prefix, hop))
			continue
		}
		r.Prefix = r.Prefix.Masked()
		wanted[r.Prefix] = r
	}
	added, removed := without(wanted, s.announced, Route.Equal), without(s.announced, wanted, samePrefix)
	errs = append(errs, s.change(added, removed))
	s.announced = wanted
	return errors.Join(errs...)
}

// change tells the server, if it runs. The new comes before the old goes: an aggregate that
// replaces a route leaves no gap, and neither does a route that replaces one of its prefix.
func (s *Speaker) change(added, removed map[netip.Prefix]Route) error {
	if s.server == nil {
		return nil
	}
	if paths := s.paths(added); len(paths) > 0 {
		if _, err := s.server.AddPath(apiutil.AddPathRequest{Paths: paths}); err != nil {
			return fmt.Errorf("announce %d prefixes: %w", len(paths), err)
		}
	}
	if paths := s.paths(removed); len(paths) > 0 {
		if err := s.server.DeletePath(apiutil.DeletePathRequest{Paths: paths}); err != nil {
			return fmt.Errorf("withdraw %d prefixes: %w", len(paths), err)
		}
	}
	return nil
}

// without are the routes of set that other has no same one of.
func without(set, other map[netip.Prefix]Route, same func(a, b Route) bool) map[netip.Prefix]Route {
	rest := map[netip.Prefix]Route{}
	for p, r := range set {
		if there, has := other[p]; !has || !same(r, there) {
			rest[p] = r
		}
	}
	return rest
}

func samePrefix(a, b Route) bool { return a.Prefix == b.Prefix }
