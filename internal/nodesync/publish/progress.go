package publish

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
	"github.com/weirlb/weir/internal/store"
)

// Progress holds the generations that nodes have acknowledged, by manager: this one's, which it streams to the others,
// and theirs. The store has the same, later: it is read for a manager without a stream to here.
type Progress struct {
	mu        sync.Mutex
	own       progress.Nodes            // Muxes are written by setMux
	others    map[string]progress.Nodes // by manager with an open stream to here
	listeners map[string]int            // managers with a stream from here
	signals   progress.Signals          // of own
	pool      progress.Slowest          // of the muxes of the pool, but for those that join
	floor     model.Generation          // generation that all healthy muxes have processed
	waiting   map[*floorWait]bool
}

// floorWait is a caller that waits until all healthy muxes have processed a generation.
type floorWait struct {
	generation model.Generation
	reached    chan struct{}
}

func newProgress() *Progress {
	return &Progress{
		own: progress.Nodes{Muxes: map[string]progress.Mux{}}, others: map[string]progress.Nodes{}, listeners: map[string]int{}, waiting: map[*floorWait]bool{},
		signals: progress.NewSignals(),
	}
}

// set records the progress of this manager's nodes. awaited says whether muxes may wait for its hosts.
func (p *Progress) set(own progress.Nodes, awaited bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	hosts := own.Notes != p.own.Notes || own.HostsReady != p.own.HostsReady
	muxes := !maps.Equal(own.Muxes, p.own.Muxes)
	if !hosts && !muxes {
		return
	}
	before := p.own
	p.own = own
	if hosts {
		p.signals.Hosts(awaited)
	}
	if muxes {
		p.signals.Muxes(own.Advances(before))
	}
}

// setMux records the progress of one mux of this manager, and that of the slowest of those that are waited for.
func (p *Progress) setMux(name string, at progress.Mux, floor model.Generation) {
	p.mu.Lock()
	defer p.mu.Unlock()
	was, there := p.own.Muxes[name]
	if there && was == at && p.own.Floor == floor {
		return
	}
	advances := !there || was.Joins != at.Joins || p.own.Floor != floor
	p.own.Muxes[name], p.own.Floor = at, floor
	p.signals.Muxes(advances)
}

// get returns the progress of this manager's nodes, and the channels that signal the next change.
func (p *Progress) get() (own progress.Nodes, next progress.Signals) {
	p.mu.Lock()
	defer p.mu.Unlock()
	own = p.own
	own.Muxes = maps.Clone(own.Muxes) // setMux writes to it
	return own, p.signals
}

// setOther records the progress of another manager's nodes; nil: its stream has ended. It says whether that of its
// hosts changed, and of which muxes.
func (p *Progress) setOther(manager string, said *progress.Nodes) (hosts bool, muxes []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	before, known := p.others[manager]
	if said == nil {
		delete(p.others, manager)
		return known, slices.Collect(maps.Keys(before.Muxes))
	}
	p.others[manager] = *said
	return !known || before.Notes != said.Notes || before.HostsReady != said.HostsReady, before.Differing(*said)
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
		switch stored, noted := ready[other.Notes]; {
		case other.HostsReady == 0:
			delete(ready, other.Notes)
		case !noted || other.HostsReady > stored:
			ready[other.Notes] = other.HostsReady
		}
	}
	delete(ready, p.own.Notes)
	return ready
}

// mux is the progress of a mux: from the manager that holds its stream, or else from the store. said is false for one
// that joins.
func (p *Progress) mux(s *store.State, name string) (at progress.Mux, said bool) {
	connected := false
	look := func(of progress.Nodes) {
		if m, there := of.Muxes[name]; there {
			if connected, said = true, said || !m.Joins; m.Answered >= at.Answered {
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
	return progress.Mux{Runs: stored.Generation, Answered: max(stored.Generation, stored.Rejected)}, true
}

// WithProgress is s with the generations that muxes have acknowledged since, which the store learns later.
func (p *Progress) WithProgress(s *store.State) *store.State {
	p.mu.Lock()
	defer p.mu.Unlock()
	shown := s
	for node := range s.MuxNodes() {
		at, _ := p.mux(s, node.Name)
		stored := s.Status.At(node.Name)
		if at.Answered == 0 || at.Runs == stored.Generation {
			continue
		}
		if shown == s {
			shown = s.Clone()
		}
		stored.Generation = at.Runs
		shown.Status.Set(node.Name, stored)
	}
	return shown
}

// findFloor computes the generation that all muxes of the pool have processed, and wakes callers that wait for it.
func (p *Progress) findFloor(s *store.State, pool []model.PoolMember) model.Generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	processed := make(map[string]model.Generation, len(pool))
	for _, m := range pool {
		if at, said := p.mux(s, m.Name); said {
			processed[m.Name] = at.Answered
		}
	}
	p.pool = progress.NewSlowest(processed)
	return p.setFloor(s)
}

// updateFloor is findFloor when nothing but the progress of these muxes changed since.
func (p *Progress) updateFloor(s *store.State, pool []model.PoolMember, muxes ...string) model.Generation {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, name := range muxes {
		if !isMember(pool, name) {
			continue
		}
		if at, said := p.mux(s, name); said {
			p.pool.Set(name, at.Answered)
		} else {
			p.pool.Remove(name)
		}
	}
	return p.setFloor(s)
}

// setFloor takes over the progress of the slowest mux of the pool.
func (p *Progress) setFloor(s *store.State) model.Generation {
	before := p.floor
	p.floor = s.Generation
	if least, there := p.pool.Least(); there {
		p.floor = min(p.floor, least)
	}
	if p.floor <= before {
		return p.floor // whoever waits does so for more
	}
	for w := range p.waiting {
		if w.generation <= p.floor {
			close(w.reached)
			delete(p.waiting, w)
		}
	}
	return p.floor
}

// isMember says whether a mux is of the pool, which is in order.
func isMember(pool []model.PoolMember, name string) bool {
	_, is := slices.BinarySearchFunc(pool, name, func(m model.PoolMember, name string) int { return strings.Compare(m.Name, name) })
	return is
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
	if _, here := p.own.Muxes[mux]; here {
		return "", false
	}
	for name, other := range p.others {
		if _, there := other.Muxes[mux]; there {
			return name, true
		}
	}
	return "", false
}
