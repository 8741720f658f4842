package publish

import (
	"context"
	"maps"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// Progress holds the generations that nodes have acknowledged, by manager: this one's, which it streams to the others,
// and theirs. The store has the same, later: it is read for a manager without a stream to here.
type Progress struct {
	mu              sync.Mutex
	own             nodesProgress
	others          map[string]nodesProgress // by manager with an open stream to here
	listeners       map[string]int           // managers with a stream from here
	progressSignals progressSignals          // of own
	floor           model.Generation         // generation that all healthy muxes have processed
	waiting         map[*floorWait]bool
}

// nodesProgress is the progress of the nodes whose streams one manager holds. It is immutable.
type nodesProgress struct {
	notes      string           // key of the manager's notes in the store
	hostsReady model.Generation // 0: it has no hosts
	muxes      map[string]muxProgress
	floor      model.Generation // that its muxes have processed, but for excluded ones; other managers compute it
}

// advances says whether the leader may act on the change since before: the slowest mux got on, or muxes came or went.
func (n nodesProgress) advances(before nodesProgress) bool {
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

// muxProgress is the progress of a mux, as it acknowledged on its stream.
type muxProgress struct {
	runs     model.Generation
	answered model.Generation // processed: it runs it, rejected it, or runs it except for pending prefix lists
	joins    bool             // it has just started, and announces nothing before it acknowledges
}

// floorWait is a caller that waits until all healthy muxes have processed a generation.
type floorWait struct {
	generation model.Generation
	reached    chan struct{}
}

func newProgress() *Progress {
	return &Progress{
		others: map[string]nodesProgress{}, listeners: map[string]int{}, waiting: map[*floorWait]bool{},
		progressSignals: newProgressSignals(),
	}
}

// progressSignals are channels that are closed when there is progress to send.
type progressSignals struct {
	hosts chan struct{} // of hosts that muxes may wait for
	muxes chan struct{} // of the slowest mux
	rest  chan struct{} // of hosts or muxes that nobody waits for
}

func newProgressSignals() progressSignals {
	return progressSignals{make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

// broadcast closes a channel, and replaces it.
func broadcast(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// lazy bounds the delay of progress that the other manager does not act on: only the leader acts on muxes'.
const lazy = 50 * time.Millisecond

// set records the progress of this manager's nodes. awaited says whether muxes may wait for its hosts.
func (p *Progress) set(own nodesProgress, awaited bool) {
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
		broadcast(&p.progressSignals.hosts)
	case hosts:
		broadcast(&p.progressSignals.rest)
	}
	switch {
	case muxes && own.advances(before):
		broadcast(&p.progressSignals.muxes)
	case muxes:
		broadcast(&p.progressSignals.rest)
	}
}

// get returns the progress of this manager's nodes, and the channels that signal the next change.
func (p *Progress) get() (own nodesProgress, next progressSignals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.own, p.progressSignals
}

// setOther records the progress of another manager's nodes; nil: its stream has ended. It says whether that of its
// hosts changed.
func (p *Progress) setOther(manager string, said *nodesProgress) (hosts bool) {
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

// listen records that a manager gets the progress of this one's nodes, until the function returned is called.
func (p *Progress) listen(manager string) (closed func()) {
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

// allManagersListen says whether every other manager gets it.
func (p *Progress) allManagersListen(s *store.State, self string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for name := range s.Managers {
		if name != self && p.listeners[name] == 0 {
			return false
		}
	}
	return true
}

// hostsReady is the generation that the hosts of each other manager are ready for, by its notes: by its stream, or else
// by the store.
func (p *Progress) hostsReady(s *store.State) map[string]model.Generation {
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

// mux is the progress of a mux: from the manager that holds its stream, or else from the store. said is false for one
// that joins.
func (p *Progress) mux(s *store.State, name string) (at muxProgress, said bool) {
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

// WithProgress is s with the generations that muxes have acknowledged since, which the store learns later.
func (p *Progress) WithProgress(s *store.State) *store.State {
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

// updateFloor computes the generation that all muxes of the pool have processed, and wakes callers that wait for it.
func (p *Progress) updateFloor(s *store.State, pool []model.PoolMember) (floor model.Generation) {
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

// Await returns when all healthy muxes have processed a generation: those with an open stream, with any manager, except
// excluded ones and those that announce nothing yet. Without any mux it returns when this manager's State holds it.
func (p *Progress) Await(ctx context.Context, generation model.Generation) error {
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

// AcknowledgedByMuxes is the newest generation that all healthy muxes have acknowledged or rejected.
func (p *Progress) AcknowledgedByMuxes() model.Generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.floor
}

// StreamOwner is the other manager that a mux has its stream with; there is false if none has reported it.
func (p *Progress) StreamOwner(mux string) (manager string, there bool) {
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
