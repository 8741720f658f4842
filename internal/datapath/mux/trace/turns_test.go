package trace

import (
	"context"
	"errors"
	"testing"
)

// A capture that was cancelled may still be at its end when the next one comes: that waits for it, and is not refused.
func TestTurnsOfCancelledCaptures(t *testing.T) {
	var all turns
	ctx, cancel := context.WithCancel(t.Context())
	end, err := all.begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := all.begin(t.Context()); err == nil || err.Error() != "another capture is under way" {
		t.Errorf("beside one that goes on: %v", err)
	}
	cancel()
	next := make(chan error, 1)
	go func() {
		end, err := all.begin(t.Context())
		if err == nil {
			end()
		}
		next <- err
	}()
	impatient, stop := context.WithCancel(t.Context())
	stop()
	if _, err := all.begin(impatient); !errors.Is(err, context.Canceled) {
		t.Errorf("one that does not wait for it: %v", err)
	}
	end()
	if err := <-next; err != nil {
		t.Errorf("after one that was cancelled: %v", err)
	}
}
