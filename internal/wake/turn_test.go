package wake

import (
	"context"
	"testing"
)

// A call has its turn when the one before leaves, or gives up when it ends.
func TestATurnIsWaitedForAsLongAsACallLasts(t *testing.T) {
	var turn Turn
	if err := turn.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- turn.Take(ctx) }()
	cancel()
	if err := <-ended; err == nil {
		t.Fatal("two have the turn")
	}
	turn.Leave()
	if err := turn.Take(ctx); err == nil {
		t.Fatal("a call that has ended has the turn")
	}
	if err := turn.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	go func() { ended <- turn.Take(t.Context()) }()
	turn.Leave()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	turn.Leave()
}
