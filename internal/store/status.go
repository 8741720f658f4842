package store

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// statuses are what nodes said and the store does not have yet. What comes while a transaction is
// under way goes into the next: however many nodes report, there is one transaction at a time.
type statuses struct {
	mu      sync.Mutex
	waiting map[string]statusWrite // by node
	wake    chan struct{}          // holds at most one
}

// statusWrite is what shall be written of a node.
type statusWrite struct {
	value  string
	failed func(error)
}

func newStatuses() statuses {
	return statuses{waiting: map[string]statusWrite{}, wake: make(chan struct{}, 1)}
}

// PutStatus has what a node said written soon; failed is called if that fails. A node that was deleted
// meanwhile stays so.
func (s *Store) PutStatus(node string, status NodeStatus, failed func(error)) error {
	value, err := encode(status)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", node, err)
	}
	s.statuses.mu.Lock()
	s.statuses.waiting[node] = statusWrite{value, failed}
	s.statuses.mu.Unlock()
	select {
	case s.statuses.wake <- struct{}{}:
	default:
	}
	return nil
}

// writeStatuses writes what nodes said until ctx ends.
func (s *Store) writeStatuses(ctx context.Context) error {
	for {
		select {
		case <-s.statuses.wake:
		case <-ctx.Done():
			return nil
		}
		s.statuses.mu.Lock()
		waiting := s.statuses.waiting
		s.statuses.waiting = map[string]statusWrite{}
		s.statuses.mu.Unlock()
		if err := s.putStatuses(ctx, waiting); err != nil && ctx.Err() == nil {
			err = explain("write what nodes said", err)
			for _, w := range waiting {
				w.failed(err)
			}
		}
	}
}

// putStatuses writes in as few transactions as an external etcd takes by default.
func (s *Store) putStatuses(ctx context.Context, waiting map[string]statusWrite) error {
	for some := range slices.Chunk(slices.Collect(maps.Keys(waiting)), noteMost) {
		var ops []clientv3.Op
		for _, node := range some {
			ops = append(ops, clientv3.OpTxn(
				[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(prefixNodes+node), ">", 0)},
				[]clientv3.Op{clientv3.OpPut(prefixStatus+node, waiting[node].value)}, nil))
		}
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.client.Txn(ctx).Then(ops...).Commit()
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}
