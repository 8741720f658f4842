// Package wake has goroutines wait for a signal, or for a time.
package wake

import (
	"context"
	"time"
)

// Signal holds at most one wake-up for the goroutine that receives from it.
type Signal chan struct{}

// New returns a signal that is not set.
func New() Signal { return make(Signal, 1) }

// Set wakes the receiver, now or when it next receives.
func (s Signal) Set() {
	select {
	case s <- struct{}{}:
	default:
	}
}

// After returns after d, or as soon as ctx is done.
func After(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}
