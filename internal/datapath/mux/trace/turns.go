package trace

import (
	"context"
	"errors"
	"sync"
)

// turns lets one at a time have its turn.
type turns struct {
	mu      sync.Mutex
	current *turn // nil: nobody's
}

type turn struct {
	ctx   context.Context //nolint:containedctx // whether its owner still wants it
	ended chan struct{}
}

// begin begins a turn; the caller ends it. A turn whose ctx has ended is waited for, another one is an error.
func (t *turns) begin(ctx context.Context) (end func(), err error) {
	for {
		t.mu.Lock()
		before := t.current
		if before == nil {
			own := &turn{ctx: ctx, ended: make(chan struct{})}
			t.current = own
			t.mu.Unlock()
			return func() { t.end(own) }, nil
		}
		t.mu.Unlock()
		if before.ctx.Err() == nil {
			return nil, errors.New("another capture is under way")
		}
		select {
		case <-before.ended:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (t *turns) end(own *turn) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.current = nil
	close(own.ended)
}
