package publish

import (
	"context"
	"maps"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// StreamProgress sends the progress of this manager's nodes to another one, until ctx ends, send fails or stops is
// closed: then it returns nil. Progress of hosts that muxes may wait for is sent at once, that of muxes to the leader
// alone; all else within lazy.
func (h *Hub) StreamProgress(
	ctx context.Context, manager string, stops <-chan struct{}, send func(*weirv1.FollowProgressResponse) error,
) error {
	defer h.recheck.Set()
	defer h.listen(manager)()
	var sent nodesProgress
	for first := true; ; first = false {
		own, next := h.get()
		if first || own.notes != sent.notes || own.hostsReady != sent.hostsReady || !maps.Equal(own.muxes, sent.muxes) {
			if err := send(progressToProto(own)); err != nil {
				return err
			}
			if sent = own; first {
				h.recheck.Set()
			}
			continue
		}
		if stopped, err := next.await(ctx, h.store.State().Leader == manager, stops); stopped || err != nil {
			return err
		}
	}
}

// await returns when there is something to send: at once, or after lazy if it can wait.
func (n progressSignals) await(ctx context.Context, leader bool, stops <-chan struct{}) (stopped bool, err error) {
	muxes, rest := n.muxes, n.rest
	var soon <-chan time.Time
	for {
		select {
		case <-n.hosts:
			return false, nil
		case <-muxes:
			if leader {
				return false, nil
			}
			muxes = nil
		case <-rest:
			rest = nil
		case <-soon:
			return false, nil
		case <-ctx.Done():
			return false, ctx.Err()
		case <-stops:
			return true, nil
		}
		if soon == nil {
			soon = time.After(lazy)
		}
	}
}

func progressToProto(n nodesProgress) *weirv1.FollowProgressResponse {
	p := &weirv1.FollowProgressResponse{Notes: n.notes, HostsReady: uint64(n.hostsReady)}
	for name, m := range n.muxes {
		p.Muxes = append(p.Muxes, &weirv1.MuxProgress{
			Name: name, Generation: uint64(m.runs), Answered: uint64(m.answered), Joins: m.joins,
		})
	}
	return p
}

func progressFromProto(p *weirv1.FollowProgressResponse) nodesProgress {
	n := nodesProgress{
		notes: p.GetNotes(), hostsReady: model.Generation(p.GetHostsReady()),
		muxes: make(map[string]muxProgress, len(p.GetMuxes())),
	}
	for _, m := range p.GetMuxes() {
		n.muxes[m.GetName()] = muxProgress{
			runs: model.Generation(m.GetGeneration()), answered: model.Generation(m.GetAnswered()), joins: m.GetJoins(),
		}
	}
	return n
}
