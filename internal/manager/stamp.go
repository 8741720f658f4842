package manager

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// catchUpWait bounds how long a node that has seen more than this manager waits for it.
const catchUpWait = 5 * time.Second

// stamped is a request that says the highest that its node has seen.
type stamped interface {
	GetCluster() uint64
	GetEpoch() uint64
	GetGeneration() uint64
}

// stamp is the number of the cluster, and the epoch that this manager knows. The number stands for the
// pool's secret, which a cluster has for life, restored or not.
func (m *Manager) stamp() (cluster, epoch uint64) {
	state := m.store.State()
	sum := sha256.Sum256(state.HashKey[:])
	return binary.BigEndian.Uint64(sum[:]), uint64(state.Epoch)
}

// seenBy is the generation of this cluster that a node has seen. What it remembers of another one says nothing here.
func (m *Manager) seenBy(r stamped) model.Generation {
	if cluster, _ := m.stamp(); r.GetCluster() != cluster {
		return 0
	}
	return model.Generation(r.GetGeneration())
}

// catchUp returns when this manager knows what a node has seen, or refuses it: of a manager that was frozen, or is
// cut off, no node hears anything. One that has seen a later epoch makes a leader look whether it still is one.
func (m *Manager) catchUp(ctx context.Context, role model.Role, r stamped) error {
	err := m.knows(ctx, r)
	if err == nil {
		return nil
	}
	m.meters.refused.WithLabelValues(string(role)).Inc()
	m.log.Debug("refuse the stream of a node", "role", role, "err", err)
	return rpc.RetryError(err)
}

func (m *Manager) knows(ctx context.Context, r stamped) error {
	if partitioned, _ := m.partitioned.watch(); partitioned {
		return errPartitioned
	}
	cluster, _ := m.stamp()
	if r.GetCluster() != cluster {
		return nil
	}
	m.verifyLeadership(ctx, r.GetEpoch())
	ctx, cancel := context.WithTimeout(ctx, catchUpWait)
	defer cancel()
	for {
		state, changed := m.store.Watch()
		if uint64(state.Epoch) >= r.GetEpoch() && state.Generation >= model.Generation(r.GetGeneration()) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return errBehind
		}
	}
}

// errBehind is what a node is told that has seen what this manager does not know.
var errBehind = errors.New("this manager is behind what the node has seen: go to another")

// doubt has this manager look whether it leads when a node has seen a later epoch than it knows.
func (m *Manager) verifyLeadership(ctx context.Context, seen uint64) {
	if seen <= uint64(m.store.State().Epoch) {
		return
	}
	if err := m.store.VerifyLeadership(ctx); err != nil {
		m.log.Warn("can't find out who leads", "err", err)
	}
}
