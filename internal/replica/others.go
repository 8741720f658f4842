package replica

import (
	"context"
	"sync"

	"github.com/weirlb/weir/internal/store"
)

// FollowOthers runs follow for each other manager while there is one of that name and address, until ctx ends.
func FollowOthers(ctx context.Context, own string, watch func() (*store.State, <-chan struct{}), follow func(context.Context, store.Manager)) {
	var following sync.WaitGroup
	defer following.Wait()
	open := map[store.Manager]context.CancelFunc{}
	defer func() {
		for _, end := range open {
			end()
		}
	}()
	for {
		state, changed := watch()
		there := map[store.Manager]bool{}
		for _, other := range state.Managers {
			there[other] = true
			if open[other] != nil || other.Name == own {
				continue
			}
			each, end := context.WithCancel(ctx)
			open[other] = end
			following.Go(func() { follow(each, other) })
		}
		for other, end := range open {
			if !there[other] {
				end()
				delete(open, other)
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}
