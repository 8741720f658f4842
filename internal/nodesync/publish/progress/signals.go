package progress

import (
	"context"
	"time"
)

// Lazy bounds the delay of progress that the other manager does not act on: only the leader acts on muxes'.
const Lazy = 50 * time.Millisecond

// Signals are channels that are closed when there is progress to send.
type Signals struct {
	hosts chan struct{} // of hosts that muxes may wait for
	muxes chan struct{} // of the slowest mux
	rest  chan struct{} // of hosts or muxes that nobody waits for
}

// NewSignals makes them.
func NewSignals() Signals {
	return Signals{make(chan struct{}), make(chan struct{}), make(chan struct{})}
}

// Hosts signals progress of hosts. Muxes may be waiting for it, or not.
func (s *Signals) Hosts(awaited bool) {
	if awaited {
		broadcast(&s.hosts)
	} else {
		broadcast(&s.rest)
	}
}

// Muxes signals progress of muxes. It advances the slowest of them, or not.
func (s *Signals) Muxes(advances bool) {
	if advances {
		broadcast(&s.muxes)
	} else {
		broadcast(&s.rest)
	}
}

// broadcast closes a channel, and replaces it.
func broadcast(c *chan struct{}) {
	close(*c)
	*c = make(chan struct{})
}

// Await returns when there is something to send: at once, or after Lazy if it can wait.
func (s *Signals) Await(ctx context.Context, leader bool, stops <-chan struct{}) (stopped bool, err error) {
	muxes, rest := s.muxes, s.rest
	var soon <-chan time.Time
	for {
		select {
		case <-s.hosts:
			return false, nil
		case <-muxes:
			if leader {
				return false, nil
			}
			muxes = nil
		case <-rest:
			rest = nil
		case <-soon:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-stops:
			return true, nil
		}
		if soon == nil {
			soon = time.After(Lazy)
		}
	}
}
