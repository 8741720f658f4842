package replica

import (
	"context"

	"github.com/weirlb/weir/internal/store"
)

// FollowOthers runs follow for each other manager while there is one of that name and address, until ctx ends.
func FollowOthers(ctx context.Context, own string, watch func() (*store.State, <-chan struct{}), follow func(context.Context, store.Manager)) {
	open := map[store.Manager]*following{}
	defer func() {
		for _, f := range open {
			f.cancel()
		}
		for _, f := range open {
			<-f.ended
		}
	}()
	for {
		state, changed := watch()
		there := map[store.Manager]bool{}
		for _, other := range state.Managers {
			there[other] = other.Name != own
		}
		for other, f := range open {
			if !there[other] {
				f.cancel()
				<-f.ended // before one of the same name and another address begins: it says last that it follows nobody
				delete(open, other)
			}
		}
		for other, is := range there {
			if is && open[other] == nil {
				each, cancel := context.WithCancel(ctx)
				f := &following{cancel: cancel, ended: make(chan struct{})}
				open[other] = f
				go func() {
					defer close(f.ended)
					follow(each, other)
				}()
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// following is of one manager.
type following struct {
	cancel context.CancelFunc
	ended  chan struct{}
}
