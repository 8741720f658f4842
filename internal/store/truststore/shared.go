package truststore

import (
	"context"
	"sync"
)

// shared has one call under way at a time. Who comes meanwhile waits for the next one, with all others.
type shared struct {
	calling sync.Mutex // held by the one that calls

	mu   sync.Mutex
	next *sharedCall // that has not begun; nil: nobody waits
}

type sharedCall struct {
	done chan struct{} // closed when err is set
	err  error
}

// share returns what a call returns that began after share did: this one, or that of who came first. It waits for
// another's no longer than ctx; its own, which others wait for, must have a bound.
func (s *shared) share(ctx context.Context, call func() error) error {
	s.mu.Lock()
	mine := s.next
	if mine == nil {
		mine = &sharedCall{done: make(chan struct{})}
		s.next = mine
		s.mu.Unlock()
		s.make(mine, call)
		return mine.err
	}
	s.mu.Unlock()
	select {
	case <-mine.done:
		return mine.err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (s *shared) make(mine *sharedCall, call func() error) {
	s.calling.Lock()
	defer s.calling.Unlock()
	s.mu.Lock()
	s.next = nil
	s.mu.Unlock()
	mine.err = call()
	close(mine.done)
}
