package nodesync

import (
	"context"
	"sync"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// FollowProgress streams to another manager how far the nodes of this one are.
func (n *Service) FollowProgress(
	ctx context.Context, r *weirv1.FollowProgressRequest, stream *connect.ServerStream[weirv1.FollowProgressResponse],
) error {
	if err := n.Hub.StreamProgress(ctx, r.GetName(), n.Stopping, stream.Send); err != nil {
		return err
	}
	return errStops
}

// FollowManagers keeps streams of progress and of reports open to each other manager, until ctx ends.
func (n *Service) FollowManagers(ctx context.Context) error {
	replica.FollowOthers(ctx, n.Name, n.Store.Watch, func(ctx context.Context, other store.Manager) {
		var reports sync.WaitGroup
		defer reports.Wait()
		reports.Go(func() { followReports(ctx, n, other) })
		followProgress(ctx, n, other)
	})
	return nil
}

// followProgress follows how far the nodes of one manager are, until ctx ends.
func followProgress(ctx context.Context, n *Service, other store.Manager) {
	client, err := n.Peer(other.Address)
	if err != nil {
		n.Log.Warn("can't follow another manager", "manager", other.Name, "err", err)
		return
	}
	rpc.Follow(ctx, n.Log, "progress of "+other.Name, //nolint:errcheck // it ends with ctx
		func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.FollowProgressResponse], error) {
			n.Hub.SetPeerProgress(other.Name, nil)
			return client.FollowProgress(ctx, &weirv1.FollowProgressRequest{Name: n.Name})
		}, func(p *weirv1.FollowProgressResponse) error {
			n.Hub.SetPeerProgress(other.Name, p)
			return nil
		})
	n.Hub.SetPeerProgress(other.Name, nil)
}
