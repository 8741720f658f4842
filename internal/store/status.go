package store

import (
	"context"
	"fmt"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// statuses are what nodes said and the store does not have yet. What comes while a transaction is
// under way goes into the next: however many nodes report, there is one transaction at a time.
type statuses struct {
	mu      sync.Mutex
	waiting map[string]string // values by key
	batch   *statusBatch      // that takes what comes now
	wake    chan struct{}     // holds at most one
}

// statusBatch is one transaction's worth.
type statusBatch struct {
	done chan struct{}
	err  error
}

func newStatuses() statuses {
	return statuses{waiting: map[string]string{}, batch: &statusBatch{done: make(chan struct{})}, wake: make(chan struct{}, 1)}
}

// PutStatus writes what a node said. A node that was deleted meanwhile stays so.
func (s *Store) PutStatus(ctx context.Context, node string, status NodeStatus) error {
	value, err := encode(status)
	if err != nil {
		return fmt.Errorf("write the status of %s: %w", node, err)
	}
	s.statuses.mu.Lock()
	s.statuses.waiting[node] = value
	batch := s.statuses.batch
	s.statuses.mu.Unlock()
	select {
	case s.statuses.wake <- struct{}{}:
	default:
	}
	select {
	case <-batch.done:
		return explain("write the status of "+node, batch.err)
	case <-ctx.Done():
		return fmt.Errorf("write the status of %s: %w", node, ctx.Err())
	}
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
		waiting, batch := s.statuses.waiting, s.statuses.batch
		s.statuses.waiting, s.statuses.batch = map[string]string{}, &statusBatch{done: make(chan struct{})}
		s.statuses.mu.Unlock()
		batch.err = s.putStatuses(ctx, waiting)
		close(batch.done)
	}
}

func (s *Store) putStatuses(ctx context.Context, values map[string]string) error {
	var ops []clientv3.Op
	var revision int64
	commit := func() error {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		response, err := s.client.Txn(ctx).Then(ops...).Commit()
		if err != nil {
			return err
		}
		ops = nil
		for _, each := range response.Responses {
			if each.GetResponseTxn().Succeeded {
				revision = response.Header.Revision
			}
		}
		return nil
	}
	for node, value := range values {
		ops = append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(prefixNodes+node), ">", 0)},
			[]clientv3.Op{clientv3.OpPut(prefixStatus+node, value)}, nil))
		if len(ops) == noteMost {
			if err := commit(); err != nil {
				return err
			}
		}
	}
	if len(ops) > 0 {
		if err := commit(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return s.await(ctx, func(s *State) bool { return s.revision >= revision })
}
