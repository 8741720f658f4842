package publish

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
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
	answered model.Generation // what it runs, or refused since, or runs but for what waits for long prefix lists
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

// holder is the manager, if it is another one, that has told of a mux's stream.
func (p *progress) holder(mux string) (manager string, there bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, here := p.own.muxes[mux]; here {
		return "", false
	}
	for name, other := range p.others {
		if _, there := other.muxes[mux]; there {
			return name, true
		}
	}
	return "", false
}
