package manager

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	// partitionedAfter is how long a manager may be behind the store, or without it, before it sends its nodes to another
	// one: less than after what time the others count them as gone.
	partitionedAfter = 8 * time.Second
	// askEvery is how often it looks, and how long the store may take to answer.
	askEvery = time.Second
	askTime  = 2 * time.Second
)

// errPartitioned is what nodes are told, who then go to another manager, and others who ask for what it can't know.
var errPartitioned = errors.New("this manager is cut off from the others: go to another")

// partition says whether this manager is cut off from the store: it then goes on answering reads, of what it
// knows, and no node follows it.
type partition struct {
	mu          sync.Mutex
	partitioned bool
	parted      chan struct{} // closed while it is partitioned

	last error // of the last look at the store; it has answered before there was one

	// What this manager handed on and the leader did, and it does not show yet.
	generation model.Generation
	version    int64
}

func newPartition() partition { return partition{parted: make(chan struct{})} }

// watch returns whether the manager is partitioned, and a channel that is closed when it becomes so.
func (a *partition) watch() (partitioned bool, parted <-chan struct{}) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.partitioned, a.parted
}

// answered notes how the store answered.
func (a *partition) answered(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = err
}

// answer is how the store answered last, at most a few seconds ago.
func (a *partition) answer() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.last
}

// set says whether that is news.
func (a *partition) set(partitioned bool) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.partitioned == partitioned {
		return false
	}
	if a.partitioned = partitioned; partitioned {
		close(a.parted)
	} else {
		a.parted = make(chan struct{})
	}
	return true
}

// owe notes that a caller knows of a write that this manager does not show yet.
func (a *partition) owe(generation model.Generation, version int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.generation, a.version = max(a.generation, generation), max(a.version, version)
}

func (a *partition) owed() (model.Generation, int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.generation, a.version
}

// watchStore has the nodes of this manager go to another one while it is partitioned, until ctx ends. What it slept
// itself does not count: only the store's silence does.
func (m *Manager) watchStore(ctx context.Context) error {
	var since, looked time.Time // when the store was asked first that has not answered since; and last
	tick := time.NewTicker(min(askEvery, m.partitionedAfter/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		begun := m.now()
		asked, cancel := context.WithTimeout(ctx, askTime)
		_, err := m.store.Current(asked)
		cancel()
		m.partitioned.answered(err)
		slept := !looked.IsZero() && m.now().Sub(looked) > 2*(askEvery+askTime)
		looked = m.now()
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			since = time.Time{}
			if m.partitioned.set(false) {
				m.log.Info("this manager is no longer cut off from the others")
			}
			continue
		case slept:
			since = looked
		case since.IsZero():
			since = begun
		}
		if m.now().Sub(since) >= m.partitionedAfter && m.partitioned.set(true) {
			m.log.Warn("this manager is cut off from the others: its nodes go to another", "err", err)
		}
	}
}

// settled returns when this manager shows all that it told anybody to be written, or refuses.
func (m *Manager) settled(ctx context.Context) error {
	generation, version := m.partitioned.owed()
	if err := m.show(ctx, generation, version); err != nil {
		return rpc.RetryError(errors.New("this manager is behind what it acknowledged: go to another"))
	}
	return nil
}

// show returns when this manager shows a generation, and a version of what decides who may do what.
func (m *Manager) show(ctx context.Context, generation model.Generation, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	for {
		state, changed := m.store.Watch()
		trusted, trustChanged := m.store.Trust()
		if state.Generation >= generation && trusted.Version() >= version {
			return nil
		}
		select {
		case <-changed:
		case <-trustChanged:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
