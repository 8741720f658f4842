package store

import (
	"context"
	"errors"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// streamLease is how long after a manager's death its nodes count as connected, in seconds.
const streamLease = 10

// streams counts the open streams of nodes with this manager.
type streams struct {
	mu      sync.Mutex
	open    map[string]int
	changed chan struct{} // closed when open changes
}

func newStreams() streams {
	return streams{open: map[string]int{}, changed: make(chan struct{})}
}

func (s *streams) add(node string, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open[node] += n; s.open[node] == 0 {
		delete(s.open, node)
	}
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *streams) list() (map[string]bool, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	nodes := make(map[string]bool, len(s.open))
	for node := range s.open {
		nodes[node] = true
	}
	return nodes, s.changed
}

// OpenStream notes that node has a stream with this manager, until the function returned is called.
func (s *Store) OpenStream(node string) (closed func()) {
	s.streams.add(node, 1)
	return func() { s.streams.add(node, -1) }
}

// holdStreams keeps the notes of this manager's open streams in the store, on a lease, so that they
// go when it dies.
func (s *Store) holdStreams(ctx context.Context) error {
	for {
		err := s.holdLease(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("lost the lease of this manager's streams, taking another", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryWait):
		}
	}
}

func (s *Store) holdLease(ctx context.Context) error {
	lease, err := s.client.Grant(ctx, streamLease)
	if err != nil {
		return explain("take a lease", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := s.client.Revoke(ctx, lease.ID); err != nil {
			s.log.Debug("the lease of this manager's streams will expire by itself", "err", err)
		}
	}()
	alive, err := s.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return explain("keep the lease", err)
	}
	noted := map[string]bool{}
	for {
		open, changed := s.streams.list()
		if err := s.noteStreams(ctx, lease.ID, noted, open); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case _, ok := <-alive:
			if !ok {
				return errors.New("the lease expired")
			}
		}
	}
}

// noteStreams makes noted what open is.
func (s *Store) noteStreams(ctx context.Context, lease clientv3.LeaseID, noted, open map[string]bool) error {
	for node := range open {
		if noted[node] {
			continue
		}
		value, err := encode(struct{}{})
		if err != nil {
			return err
		}
		if _, err := s.client.Put(ctx, prefixStreams+node, value, clientv3.WithLease(lease)); err != nil {
			return explain("note the stream of "+node, err)
		}
		noted[node] = true
	}
	for node := range noted {
		if open[node] {
			continue
		}
		// A stream that moved to another manager is on that one's lease.
		key := prefixStreams + node
		_, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.LeaseValue(key), "=", lease)).
			Then(clientv3.OpDelete(key)).Commit()
		if err != nil {
			return explain("note the end of the stream of "+node, err)
		}
		delete(noted, node)
	}
	return nil
}
