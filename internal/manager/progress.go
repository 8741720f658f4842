package manager

import (
	"context"
	"maps"
	"sync"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// progress is how far nodes are, those of each manager: this one's, which it tells the others by a stream to each,
// and what the others tell. The store says the same, later: it is asked about a manager that has no stream here.
type progress struct {
	mu        sync.Mutex
	own       nodesProgress
	others    map[string]nodesProgress // by manager that has told on a stream that is open
	listeners map[string]int           // managers that are told
	news      news                     // of own
	floor     model.Generation         // that all healthy muxes have answered
	waiting   map[*floorWait]bool
}

// nodesProgress is how far the nodes are whose streams one manager holds. It is never written to.
type nodesProgress struct {
	notes      string           // what its notes in the store are under
	hostsReady model.Generation // 0: it has no hosts
	muxes      map[string]muxProgress
	floor      model.Generation // that those muxes have answered that are waited for; the others work it out
}

// moves says whether the leader may act on what muxes have said since before: the slowest has, or there are others.
func (n nodesProgress) moves(before nodesProgress) bool {
	if n.floor != before.floor || len(n.muxes) != len(before.muxes) {
		return true
	}
	for name, m := range n.muxes {
		if was, there := before.muxes[name]; !there || was.joins != m.joins {
			return true
		}
	}
	return false
}

// muxProgress is how far a mux is, by what it said on its stream.
type muxProgress struct {
	runs     model.Generation
	answered model.Generation // what it runs, or refused since
	joins    bool             // its program has just started, and announces nothing before it answers
}

// floorWait waits until all healthy muxes have answered a generation.
type floorWait struct {
	generation model.Generation
	reached    chan struct{}
}

func newProgress() *progress {
	return &progress{
		others: map[string]nodesProgress{}, listeners: map[string]int{}, waiting: map[*floorWait]bool{},
		news: newNews(),
	}
}

// news are channels that are closed when there is something to tell.
type news struct {
	hosts chan struct{} // muxes may wait for hosts that are farther
	muxes chan struct{} // all muxes are
	rest  chan struct{} // hosts or some muxes are, and nobody waits for them
}

func newNews() news { return news{make(chan struct{}), make(chan struct{}), make(chan struct{})} }

// tell closes a channel, and makes another one for who looks next.
func tell(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// lazy is how long other managers may wait to hear what they do not act on: of muxes the leader alone does.
const lazy = 50 * time.Millisecond

// set takes over how far the nodes of this manager are. awaited says whether muxes may wait for the hosts.
func (p *progress) set(own nodesProgress, awaited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hosts := own.notes != p.own.notes || own.hostsReady != p.own.hostsReady
	muxes := !maps.Equal(own.muxes, p.own.muxes)
	if !hosts && !muxes {
		return
	}
	before := p.own
	p.own = own
	switch {
	case hosts && awaited:
		tell(&p.news.hosts)
	case hosts:
		tell(&p.news.rest)
	}
	switch {
	case muxes && own.moves(before):
		tell(&p.news.muxes)
	case muxes:
		tell(&p.news.rest)
	}
}

// get returns how far the nodes of this manager are, and the channels of what comes next.
func (p *progress) get() (own nodesProgress, next news) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own, p.news
}

// told takes over what another manager says; nil: it says nothing any more. It tells whether that is news of its hosts.
func (p *progress) told(manager string, said *nodesProgress) (hosts bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.others[manager]
	if said == nil {
		delete(p.others, manager)
		return known
	}
	p.others[manager] = *said
	return !known || before.notes != said.notes || before.hostsReady != said.hostsReady
}

// listen notes that a manager is told how far the nodes of this one are, until the function returned is called.
func (p *progress) listen(manager string) (closed func()) {
	add := func(n int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		if p.listeners[manager] += n; p.listeners[manager] == 0 {
			delete(p.listeners, manager)
		}
	}
	add(1)
	return func() { add(-1) }
}

// allListen says whether every other manager is told.
func (p *progress) allListen(s *store.State, self string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range s.Managers {
		if name != self && p.listeners[name] == 0 {
			return false
		}
	}
	return true
}

// hostsReady is, by their notes, how far the other managers say that their hosts are: they themselves, or else
// the store.
func (p *progress) hostsReady(s *store.State) map[string]model.Generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	ready := map[string]model.Generation{}
	for notes, generation := range s.Ready.All() {
		ready[notes] = generation
	}
	for _, other := range p.others {
		switch stored, noted := ready[other.notes]; {
		case other.hostsReady == 0:
			delete(ready, other.notes)
		case !noted || other.hostsReady > stored:
			ready[other.notes] = other.hostsReady
		}
	}
	delete(ready, p.own.notes)
	return ready
}

// mux is how far a mux is: by what it said to whoever holds its stream, or else by what the store has. said is
// false for one that joins.
func (p *progress) mux(s *store.State, name string) (at muxProgress, said bool) {
	connected := false
	look := func(of nodesProgress) {
		if m, there := of.muxes[name]; there {
			if connected, said = true, said || !m.joins; m.answered >= at.answered {
				at = m
			}
		}
	}
	look(p.own)
	for _, other := range p.others {
		look(other)
	}
	if connected {
		return at, said
	}
	stored := s.Status.At(name)
	return muxProgress{runs: stored.Generation, answered: max(stored.Generation, stored.Rejected)}, true
}

// show is s with what muxes said since the store was told.
func (p *progress) show(s *store.State) *store.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := s
	for node := range s.MuxNodes() {
		at, _ := p.mux(s, node.Name)
		stored := s.Status.At(node.Name)
		if at.answered == 0 || at.runs == stored.Generation {
			continue
		}
		if shown == s {
			shown = s.Clone()
		}
		stored.Generation = at.runs
		shown.Status.Set(node.Name, stored)
	}
	return shown
}

// view is the State that users are shown.
func (m *Manager) view() *store.State { return m.progress.show(m.store.State()) }

// settle works out and returns what all muxes of the pool have answered, and wakes those who waited for it.
func (p *progress) settle(s *store.State, pool []model.PoolMember) (floor model.Generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.floor = s.Generation
	for _, m := range pool {
		if at, said := p.mux(s, m.Name); said {
			p.floor = min(p.floor, at.answered)
		}
	}
	for w := range p.waiting {
		if w.generation <= p.floor {
			close(w.reached)
			delete(p.waiting, w)
		}
	}
	return p.floor
}

// await returns when all healthy muxes have answered a generation: those whose stream is open, with any manager,
// but for those that do not answer and those that announce nothing yet. Without any mux it is when this
// manager's State holds the generation.
func (p *progress) await(ctx context.Context, generation model.Generation) error {
	w := &floorWait{generation, make(chan struct{})}
	p.mu.Lock()
	if generation <= p.floor {
		p.mu.Unlock()
		return nil
	}
	p.waiting[w] = true
	p.mu.Unlock()
	select {
	case <-w.reached:
		return nil
	case <-ctx.Done():
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.waiting, w)
		return ctx.Err()
	}
}

// reached is what all healthy muxes have answered.
func (p *progress) reached() model.Generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.floor
}

// lacking are, of the healthy muxes, those that do not run a generation: they have refused it, or have not
// answered yet.
func (p *progress) lacking(s *store.State, generation model.Generation) []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lack []string
	for _, m := range members(s) {
		if at, said := p.mux(s, m.Name); said && at.runs < generation {
			lack = append(lack, m.Name)
		}
	}
	return lack
}

// FollowProgress tells another manager how far the nodes of this one are, at once if its hosts are farther and muxes
// may wait for them. How far muxes are is told at once to the leader alone.
func (c cluster) FollowProgress(
	ctx context.Context, r *weirv1.FollowProgressRequest, stream *connect.ServerStream[weirv1.FollowProgressResponse],
) error {
	defer c.hub.look()
	defer c.progress.listen(r.GetName())()
	var sent nodesProgress
	for first := true; ; first = false {
		own, next := c.progress.get()
		if first || own.notes != sent.notes || own.hostsReady != sent.hostsReady || !maps.Equal(own.muxes, sent.muxes) {
			if err := stream.Send(progressToProto(own)); err != nil {
				return err
			}
			if sent = own; first {
				c.hub.look()
			}
			continue
		}
		if err := c.awaitProgress(ctx, next, c.store.State().Leader == r.GetName()); err != nil {
			return err
		}
	}
}

// awaitProgress returns when there is something to tell: at once, or soon if it can wait.
func (c cluster) awaitProgress(ctx context.Context, next news, leader bool) error {
	muxes, rest := next.muxes, next.rest
	var soon <-chan time.Time
	for {
		select {
		case <-next.hosts:
			return nil
		case <-muxes:
			if leader {
				return nil
			}
			muxes = nil
		case <-rest:
			rest = nil
		case <-soon:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-c.stopping:
			return errStops
		}
		if soon == nil {
			soon = time.After(lazy)
		}
	}
}

func progressToProto(n nodesProgress) *weirv1.FollowProgressResponse {
	p := &weirv1.FollowProgressResponse{Notes: n.notes, HostsReady: uint64(n.hostsReady)}
	for name, m := range n.muxes {
		p.Muxes = append(p.Muxes, &weirv1.MuxProgress{
			Name: name, Generation: uint64(m.runs), Answered: uint64(m.answered), Joins: m.joins,
		})
	}
	return p
}

func progressFromProto(p *weirv1.FollowProgressResponse) nodesProgress {
	n := nodesProgress{
		notes: p.GetNotes(), hostsReady: model.Generation(p.GetHostsReady()), muxes: make(map[string]muxProgress, len(p.GetMuxes())),
	}
	for _, m := range p.GetMuxes() {
		n.muxes[m.GetName()] = muxProgress{
			runs: model.Generation(m.GetGeneration()), answered: model.Generation(m.GetAnswered()), joins: m.GetJoins(),
		}
	}
	return n
}

// followManagers keeps a stream of progress open to each other manager, until ctx ends.
func (m *Manager) followManagers(ctx context.Context) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	open := map[store.Manager]context.CancelFunc{}
	defer func() {
		for _, end := range open {
			end()
		}
	}()
	for {
		state, changed := m.store.Watch()
		there := map[store.Manager]bool{}
		for _, other := range state.Managers {
			there[other] = true
			if open[other] != nil || other.Name == m.cfg.Name {
				continue
			}
			following, end := context.WithCancel(ctx)
			open[other] = end
			streams.Go(func() { m.followManager(following, other) })
		}
		for other, end := range open {
			if !there[other] {
				end()
				delete(open, other)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil
		}
	}
}

// followManager takes over what one manager says of its nodes, until ctx ends.
func (m *Manager) followManager(ctx context.Context, other store.Manager) {
	client, err := m.peers.at(other.Address)
	if err != nil {
		m.log.Warn("can't follow another manager", "manager", other.Name, "err", err)
		return
	}
	rpc.Follow(ctx, m.log, "progress of "+other.Name, //nolint:errcheck // it ends with ctx
		func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.FollowProgressResponse], error) {
			m.hub.heard(other.Name, nil)
			return client.FollowProgress(ctx, &weirv1.FollowProgressRequest{Name: m.cfg.Name})
		}, func(p *weirv1.FollowProgressResponse) error {
			said := progressFromProto(p)
			m.hub.heard(other.Name, &said)
			return nil
		})
	m.hub.heard(other.Name, nil)
}
