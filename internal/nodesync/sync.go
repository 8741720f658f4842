package nodesync

import (
	"context"
	"errors"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/replica"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/wire"
)

// SyncMux registers a mux and streams the pool's tables to it.
func (n *Service) SyncMux(
	ctx context.Context, r *weirv1.SyncMuxRequest, stream *connect.ServerStream[weirv1.SyncMuxResponse],
) error {
	node, err := wire.MuxFromProto(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	if err := n.admitNode(ctx, model.RoleMux, r); err != nil {
		return err
	}
	registered, closed, err := n.openNode(ctx, node)
	if err != nil {
		return apierr.ToConnect(err)
	}
	defer closed()
	asked, endTasks := n.OpenTasks(node.Name)
	defer endTasks()
	feed, ended := n.Hub.OpenMux(node.Name, r.GetJoins(), r.GetPrefixChunks(), r.GetSnatDeltas())
	defer ended()
	ask := func(task *weirv1.NodeTask) error {
		return stream.Send(&weirv1.SyncMuxResponse{Generation: uint64(feed.Sent()), Tasks: []*weirv1.NodeTask{task}})
	}
	return n.stream(ctx, feed.Wake(), asked, ask, func() (bool, error) {
		before := feed.Sent()
		if chunks := feed.NextChunks(max(registered, n.Replica.SeenGeneration(r))); len(chunks) > 0 {
			return true, stream.Send(&weirv1.SyncMuxResponse{Generation: uint64(before), PrefixChunks: wire.ChunksToProto(chunks)})
		}
		message, err := feed.Next(max(registered, n.Replica.SeenGeneration(r)))
		if message == nil || err != nil {
			return false, err
		}
		message.TraceParents = n.traceSending(node, before, feed.Sent())
		message.Cluster, message.Epoch = n.Replica.Stamp()
		return true, stream.Send(message)
	})
}

// SyncHost registers a host and streams what its workloads need to it.
func (n *Service) SyncHost(
	ctx context.Context, r *weirv1.SyncHostRequest, stream *connect.ServerStream[weirv1.SyncHostResponse],
) error {
	node, err := wire.HostFromProto(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	if err := n.admitNode(ctx, model.RoleHost, r); err != nil {
		return err
	}
	registered, closed, err := n.openNode(ctx, node)
	if err != nil {
		return apierr.ToConnect(err)
	}
	defer closed()
	asked, endTasks := n.OpenTasks(node.Name)
	defer endTasks()
	feed, ended := n.Hub.OpenHost(node.Name, r.GetSnatDeltas())
	defer ended()
	ask := func(task *weirv1.NodeTask) error {
		return stream.Send(&weirv1.SyncHostResponse{Tasks: []*weirv1.NodeTask{task}})
	}
	return n.stream(ctx, feed.Wake(), asked, ask, func() (bool, error) {
		update, due := feed.Next(max(registered, n.Replica.SeenGeneration(r)))
		if !due {
			return false, nil
		}
		message := wire.HostUpdateToProto(update)
		message.TraceParents = n.traceSending(node, update.Generation-1, update.Generation)
		message.Cluster, message.Epoch = n.Replica.Stamp()
		return true, stream.Send(message)
	})
}

// admitNode returns when this replica knows what a node has seen, or refuses its stream.
func (n *Service) admitNode(ctx context.Context, role model.Role, r replica.Seen) error {
	err := n.Replica.CatchUp(ctx, r)
	if err == nil {
		return nil
	}
	n.metrics.refused.WithLabelValues(string(role)).Inc()
	n.Log.Debug("refuse the stream of a node", "role", role, "err", err)
	return rpc.RetryError(err)
}

var errStops = connect.NewError(connect.CodeUnavailable, errors.New("the manager stops"))

// stream sends what is due until ctx ends: changes coalesce while an earlier update is being sent. In between it sends the
// tasks of operators.
func (n *Service) stream(
	ctx context.Context, due <-chan struct{}, asked <-chan *weirv1.NodeTask, ask func(*weirv1.NodeTask) error,
	send func() (sent bool, err error),
) error {
	_, parted := n.Replica.Partitioned()
	for {
		sent, err := send()
		if err != nil {
			return err
		}
		if sent {
			continue
		}
		select {
		case <-due:
		case task := <-asked:
			if err := ask(task); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-parted:
			return rpc.RetryError(replica.ErrPartitioned)
		case <-n.Stopping:
			return errStops
		}
	}
}
