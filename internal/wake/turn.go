package wake

import (
	"context"
	"sync"
)

// Turn is a lock that a call waits for no longer than its context lasts. Those that wait have it in the order that they came.
// The zero value is free.
type Turn struct {
	made  sync.Once
	taken chan struct{}
}

// Take waits until nobody else has the turn. After an error the caller does not have it.
func (t *Turn) Take(ctx context.Context) error {
	t.made.Do(func() { t.taken = make(chan struct{}, 1) })
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	select {
	case t.taken <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Leave gives the turn to the next one.
func (t *Turn) Leave() { <-t.taken }
