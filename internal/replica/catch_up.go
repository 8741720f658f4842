package replica

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/weirlb/weir/internal/model"
)

// catchUpWait bounds how long a node that has seen more than this replica waits for it.
const catchUpWait = 5 * time.Second

// errBehind refuses a node that has seen what this replica does not know.
var errBehind = errors.New("this manager is behind what the node has seen: go to another")

// Seen is the part of a node's request that says the newest that it has seen of any replica.
type Seen interface {
	GetCluster() uint64
	GetEpoch() uint64
	GetGeneration() uint64
}

// Stamp returns the number of the cluster and the newest epoch that this replica knows, which nodes remember. The number is
// derived from the pool's hash key, which a cluster keeps for life, restored or not.
func (r *Replica) Stamp() (cluster, epoch uint64) {
	state := r.store.State()
	sum := sha256.Sum256(state.HashKey[:])
	return binary.BigEndian.Uint64(sum[:]), uint64(state.Epoch)
}

// SeenGeneration is the generation of this cluster that a node has seen; of another cluster's it says nothing.
func (r *Replica) SeenGeneration(node Seen) model.Generation {
	if cluster, _ := r.Stamp(); node.GetCluster() != cluster {
		return 0
	}
	return model.Generation(node.GetGeneration())
}

// CatchUp returns when this replica knows what a node has seen, or why it refuses the node: one that was frozen or is
// partitioned must not take nodes back to an older state. A node that has seen a later epoch makes a leader verify that it
// still leads.
func (r *Replica) CatchUp(ctx context.Context, node Seen) error {
	if partitioned, _ := r.Partitioned(); partitioned {
		return ErrPartitioned
	}
	cluster, _ := r.Stamp()
	if node.GetCluster() != cluster {
		return nil
	}
	r.VerifyLeadership(ctx, node.GetEpoch())
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	for {
		state, changed := r.store.Watch()
		if uint64(state.Epoch) >= node.GetEpoch() && state.Generation >= model.Generation(node.GetGeneration()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errBehind
		}
	}
}

// VerifyLeadership asks the store who leads if a node has seen a later epoch than this replica knows.
func (r *Replica) VerifyLeadership(ctx context.Context, seen uint64) {
	if seen <= uint64(r.store.State().Epoch) {
		return
	}
	if err := r.store.VerifyLeadership(ctx); err != nil {
		r.log.Warn("can't find out who leads", "err", err)
	}
}
