package replica

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

const (
	// DefaultPartitionedAfter is how long the store may be silent before a replica sends its nodes to another one: less
	// than the time after which the others count these nodes as gone.
	DefaultPartitionedAfter = 8 * time.Second
	// checkInterval is how often the store is asked, and checkTimeout how long it may take to answer.
	checkInterval = time.Second
	checkTimeout  = 2 * time.Second
)

// ErrPartitioned refuses nodes, which then go to another replica, and callers that ask for what a partitioned one can't know.
var ErrPartitioned = errors.New("this manager is cut off from the others: go to another")

// errBehindAcknowledged refuses reads of a replica that does not show a write which it has acknowledged.
var errBehindAcknowledged = errors.New("this manager is behind what it acknowledged: go to another")

// partition says whether the replica is partitioned from the store, which it then reads from memory alone, and what it has
// acknowledged without showing it.
type partition struct {
	mu          sync.Mutex
	partitioned bool
	began       chan struct{} // closed while partitioned

	storeErr error // of the last check

	generation model.Generation // acknowledged, of the desired state
	version    int64            // acknowledged, of trust
}

// set changes whether the replica is partitioned, and says whether that is a change.
func (p *partition) set(partitioned bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.partitioned == partitioned {
		return false
	}
	if p.partitioned = partitioned; partitioned {
		close(p.began)
	} else {
		p.began = make(chan struct{})
	}
	return true
}

func (p *partition) setStoreErr(err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.storeErr = err
}

// Partitioned returns whether the replica is partitioned from the store, and a channel that is closed when it becomes so.
func (r *Replica) Partitioned() (partitioned bool, began <-chan struct{}) {
	r.partition.mu.Lock()
	defer r.partition.mu.Unlock()
	return r.partition.partitioned, r.partition.began
}

// StoreError is the error of the last check of the store, at most a few seconds old; nil before the first.
func (r *Replica) StoreError() error {
	r.partition.mu.Lock()
	defer r.partition.mu.Unlock()
	return r.partition.storeErr
}

// RunPartitionCheck asks the store whether it answers, until ctx ends: after PartitionedAfter of silence the replica is
// partitioned. Time in which this process itself did not run does not count, and a view that moves is an answer too: under
// load a replica may be behind for long, and its nodes would only load the next one.
func (r *Replica) RunPartitionCheck(ctx context.Context) error {
	var silentSince, checked time.Time
	var shown model.Generation
	tick := time.NewTicker(min(checkInterval, r.PartitionedAfter/4))
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		begun := r.now()
		check, cancel := context.WithTimeout(ctx, checkTimeout)
		_, err := r.store.Current(check)
		cancel()
		r.partition.setStoreErr(err)
		paused := !checked.IsZero() && r.now().Sub(checked) > 2*(checkInterval+checkTimeout)
		checked = r.now()
		state, _ := r.store.Watch()
		moved := state.Generation > shown
		shown = state.Generation
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			silentSince = time.Time{}
			if r.partition.set(false) {
				r.log.Info("this manager is no longer cut off from the others")
			}
			continue
		case paused, moved:
			silentSince = checked
		case silentSince.IsZero():
			silentSince = begun
		}
		if r.now().Sub(silentSince) >= r.PartitionedAfter && r.partition.set(true) {
			r.log.Warn("this manager is cut off from the others: its nodes go to another", "err", err)
		}
	}
}

// Acknowledged notes that a caller was told of a write which this replica does not show yet.
func (r *Replica) Acknowledged(generation model.Generation, version int64) {
	r.partition.mu.Lock()
	defer r.partition.mu.Unlock()
	r.partition.generation, r.partition.version = max(r.partition.generation, generation), max(r.partition.version, version)
}

// AwaitAcknowledged returns when this replica shows every write that it acknowledged, or an error that sends the caller to
// another one.
func (r *Replica) AwaitAcknowledged(ctx context.Context) error {
	r.partition.mu.Lock()
	generation, version := r.partition.generation, r.partition.version
	r.partition.mu.Unlock()
	if err := r.AwaitShown(ctx, generation, version); err != nil {
		return rpc.RetryError(errBehindAcknowledged)
	}
	return nil
}

// AwaitShown returns when this replica shows a generation of the desired state and a version of trust.
func (r *Replica) AwaitShown(ctx context.Context, generation model.Generation, version int64) error {
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	for {
		state, changed := r.store.Watch()
		trusted, trustChanged := r.store.Trust()
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
