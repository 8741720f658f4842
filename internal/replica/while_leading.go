package replica

import (
	"context"

	"golang.org/x/sync/errgroup"
)

// RunWhileLeading runs loops that write the desired state while this replica leads, until ctx ends. They start anew in each
// term and have ended before the next one, so that two terms never write side by side.
func (r *Replica) RunWhileLeading(ctx context.Context, loops ...func(context.Context) error) error {
	for {
		epoch, changed := r.store.Epoch()
		if epoch == 0 {
			select {
			case <-changed:
				continue
			case <-ctx.Done():
				return nil
			}
		}
		term, end := context.WithCancel(ctx)
		group, term := errgroup.WithContext(term)
		for _, loop := range loops {
			group.Go(func() error { return loop(term) })
		}
		select {
		case <-changed:
		case <-term.Done():
		}
		end()
		if err := group.Wait(); err != nil && ctx.Err() == nil {
			return err
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}
