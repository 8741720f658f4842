package publish

import (
	"context"
	"maps"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/nodesync/publish/progress"
)

// StreamProgress sends the progress of this manager's nodes to another one, until ctx ends, send fails or stops is
// closed: then it returns nil. Progress of hosts that muxes may wait for is sent at once, that of muxes to the leader
// alone; all else within progress.Lazy.
func (h *Hub) StreamProgress(
	ctx context.Context, manager string, stops <-chan struct{}, send func(*weirv1.FollowProgressResponse) error,
) error {
	defer h.recheck.Set()
	defer h.listen(manager)()
	var sent progress.Nodes
	for first := true; ; first = false {
		own, next := h.get()
		if first || own.Notes != sent.Notes || own.HostsReady != sent.HostsReady || !maps.Equal(own.Muxes, sent.Muxes) {
			if err := send(own.ToProto()); err != nil {
				return err
			}
			if sent = own; first {
				h.recheck.Set()
			}
			continue
		}
		if stopped, err := next.Await(ctx, h.store.State().Leader == manager, stops); stopped || err != nil {
			return err
		}
	}
}
