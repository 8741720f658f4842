package manager

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// FollowProgress tells another manager how far the nodes of this one are.
func (c cluster) FollowProgress(
	ctx context.Context, r *weirv1.FollowProgressRequest, stream *connect.ServerStream[weirv1.FollowProgressResponse],
) error {
	if err := c.hub.StreamProgress(ctx, r.GetName(), c.stopping, stream.Send); err != nil {
		return err
	}
	return errStops
}

// followManagers keeps a stream of progress open to each other manager, until ctx ends.
func (m *Manager) followManagers(ctx context.Context) error {
	var streams sync.WaitGroup
	defer streams.Wait()
	open := map[store.Manager]context.CancelFunc{}
	defer func() {
		for _, end := range open {
			end()
		}
	}()
	for {
		state, changed := m.store.Watch()
		there := map[store.Manager]bool{}
		for _, other := range state.Managers {
			there[other] = true
			if open[other] != nil || other.Name == m.cfg.Name {
				continue
			}
			following, end := context.WithCancel(ctx)
			open[other] = end
			streams.Go(func() { m.followManager(following, other) })
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
			return nil
		}
	}
}

// followManager takes over what one manager says of its nodes, until ctx ends.
func (m *Manager) followManager(ctx context.Context, other store.Manager) {
	client, err := m.peers.at(other.Address)
	if err != nil {
		m.log.Warn("can't follow another manager", "manager", other.Name, "err", err)
		return
	}
	rpc.Follow(ctx, m.log, "progress of "+other.Name, //nolint:errcheck // it ends with ctx
		func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.FollowProgressResponse], error) {
			m.hub.SetPeerProgress(other.Name, nil)
			return client.FollowProgress(ctx, &weirv1.FollowProgressRequest{Name: m.cfg.Name})
		}, func(p *weirv1.FollowProgressResponse) error {
			m.hub.SetPeerProgress(other.Name, p)
			return nil
		})
	m.hub.SetPeerProgress(other.Name, nil)
}
