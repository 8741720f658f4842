package wake

import (
	"context"
	"testing"
	"time"
)

// A signal that is set before, or several times, wakes once.
func TestSignalHoldsOne(t *testing.T) {
	s := New()
	s.Set()
	s.Set()
	<-s
	select {
	case <-s:
		t.Error("it wakes twice")
	default:
	}
}

func TestAfterEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	After(ctx, time.Hour)
	After(t.Context(), 0)
}
