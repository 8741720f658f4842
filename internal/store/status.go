package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// statusPatience is how long what is no news may wait to be written.
const statusPatience = time.Second

// statuses are what nodes said and the store does not have yet. What comes while a transaction is
// under way goes into the next: however many nodes report, there is one transaction at a time.
type statuses struct {
	mu      sync.Mutex
	waiting map[string]StatusWrite // by node
	news    chan struct{}          // holds at most one
	rest    chan struct{}          // holds at most one
}

// StatusWrite is what shall be written of a node.
type StatusWrite struct {
	Status NodeStatus
	Detail func() ([]byte, error) // makes the Detail of Status, when it is written
	News   bool                   // it is written at once, else with others
	Failed func(error)            // is called if it could not be written
}

func newStatuses() statuses {
	return statuses{waiting: map[string]StatusWrite{}, news: make(chan struct{}, 1), rest: make(chan struct{}, 1)}
}

// PutStatus has what a node said written soon. A node that was deleted meanwhile stays so.
func (s *Store) PutStatus(node string, w StatusWrite) {
	s.statuses.mu.Lock()
	s.statuses.waiting[node] = w
	s.statuses.mu.Unlock()
	wake := s.statuses.rest
	if w.News {
		wake = s.statuses.news
	}
	select {
	case wake <- struct{}{}:
	default:
	}
}

// writeStatuses writes what nodes said until ctx ends.
func (s *Store) writeStatuses(ctx context.Context) error {
	var due <-chan time.Time
	for {
		select {
		case <-s.statuses.news:
		case <-due:
		case <-s.statuses.rest:
			if due == nil {
				due = time.After(statusPatience)
			}
			continue
		case <-ctx.Done():
			return nil
		}
		due = nil
		s.statuses.mu.Lock()
		waiting := s.statuses.waiting
		s.statuses.waiting = map[string]StatusWrite{}
		s.statuses.mu.Unlock()
		if err := s.putStatuses(ctx, waiting); err != nil && ctx.Err() == nil {
			err = explain("write what nodes said", err)
			s.log.Warn("the store does not take what nodes say, going on with the next", "nodes", len(waiting), "err", err)
			for _, w := range waiting {
				w.Failed(err)
			}
		}
	}
}

func (w StatusWrite) encode() (value string, err error) {
	if w.Status.Detail, err = w.Detail(); err != nil {
		return "", err
	}
	return encode(w.Status)
}

// putStatuses writes in as few transactions as an external etcd takes by default. What is too large for it is told of that node alone.
func (s *Store) putStatuses(ctx context.Context, waiting map[string]StatusWrite) error {
	var nodes []string
	var ops []clientv3.Op
	size := 0
	write := func() error {
		defer func() { nodes, ops, size = nil, nil, 0 }()
		return s.putSome(ctx, nodes, ops, waiting)
	}
	for node, w := range waiting {
		value, err := w.encode()
		if err != nil {
			w.Failed(fmt.Errorf("write the status of %s: %w", node, err))
			continue
		}
		if len(ops) == noteMost || len(ops) > 0 && size+len(value) > stageBytes {
			if err := write(); err != nil {
				return err
			}
		}
		size += len(value)
		nodes, ops = append(nodes, node), append(ops, clientv3.OpTxn(
			[]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(prefixNodes+node), ">", 0)},
			[]clientv3.Op{clientv3.OpPut(prefixStatus+node, value)}, nil))
	}
	if len(ops) == 0 {
		return nil
	}
	return write()
}

// putSome writes the statuses of nodes at once, or one by one if they are too large together.
func (s *Store) putSome(ctx context.Context, nodes []string, ops []clientv3.Op, waiting map[string]StatusWrite) error {
	one, cancel := context.WithTimeout(ctx, callTimeout)
	_, err := s.client.Txn(one).Then(ops...).Commit()
	cancel()
	if !tooLarge(err) {
		return err
	}
	if len(ops) == 1 {
		s.log.Warn("the store does not take what a node says", "node", nodes[0], "err", err)
		waiting[nodes[0]].Failed(err)
		return nil
	}
	for i := range ops {
		if err := s.putSome(ctx, nodes[i:i+1], ops[i:i+1], waiting); err != nil {
			return err
		}
	}
	return nil
}
