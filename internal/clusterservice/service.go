package clusterservice

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"sync"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// askTimeout bounds how long another manager may take to report its status.
const askTimeout = 2 * time.Second

// Nodes are the nodes of this manager.
type Nodes interface {
	Register(context.Context, model.Node) (model.Generation, error)
	FollowProgress(context.Context, *weirv1.FollowProgressRequest, *connect.ServerStream[weirv1.FollowProgressResponse]) error
	FollowReports(context.Context, *weirv1.FollowReportsRequest, *connect.ServerStream[weirv1.FollowReportsResponse]) error
}

// Service serves ClusterService.
type Service struct {
	Name    string // of this manager
	Version string
	Cluster *cluster.Cluster
	Peer    func(address string) (*rpc.Client, error) // of another manager
	Nodes   Nodes
	Traffic interface {
		Read(context.Context, *weirv1.ReadTrafficRequest, func(*weirv1.ReadTrafficResponse) error) error
	}
}

// JoinManager adds a manager to the cluster.
func (c *Service) JoinManager(ctx context.Context, r *weirv1.JoinManagerRequest) (*weirv1.JoinManagerResponse, error) {
	if _, err := url.Parse(r.GetPeerUrl()); err != nil || r.GetPeerUrl() == "" {
		return nil, apierr.ToConnect(&model.FieldError{Field: "peer_url", Reason: "must be a URL"})
	}
	members, err := c.Cluster.AddManager(ctx, store.Manager{Name: r.GetName(), Address: r.GetAddress(), PeerURL: r.GetPeerUrl()})
	if err != nil {
		return nil, refusal(err)
	}
	response := &weirv1.JoinManagerResponse{}
	for _, m := range members {
		response.Members = append(response.Members, &weirv1.StoreMember{Name: m.Name, PeerUrl: m.PeerURL})
	}
	return response, nil
}

// refusal is the error of a change of the cluster that failed: some may be tried again.
func refusal(err error) error {
	if errors.Is(err, etcd.ErrRetry) {
		return rpc.RetryError(err)
	}
	return apierr.ToConnect(err)
}

// DeleteManager removes a manager from the cluster.
func (c *Service) DeleteManager(ctx context.Context, r *weirv1.DeleteManagerRequest) (*weirv1.DeleteManagerResponse, error) {
	m, known := c.Cluster.Store.State().Managers[r.GetName()]
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no manager %.64q", r.GetName()))
	}
	if c.Cluster.External() {
		// It is no member of etcd: nothing would end it.
		if _, err := c.askReplica(ctx, m); err == nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("manager %s runs, and shares an external etcd: stop it first", m.Name))
		}
	}
	if err := c.Cluster.RemoveManager(ctx, r.GetName()); err != nil {
		return nil, refusal(err)
	}
	return &weirv1.DeleteManagerResponse{}, nil
}

// ListManagers lists the managers, each with the status that it reports itself.
func (c *Service) ListManagers(ctx context.Context, _ *weirv1.ListManagersRequest) (*weirv1.ListManagersResponse, error) {
	state := c.Cluster.Store.State()
	response := &weirv1.ListManagersResponse{Store: c.Cluster.String()}
	var asked sync.WaitGroup
	for _, m := range c.Cluster.Managers() {
		p := &weirv1.Manager{Name: m.Name, Address: m.Address, Leader: m.Name == state.Leader, Learner: m.Learner, Schema: uint32(max(m.Schema, 1))}
		if peer, err := url.Parse(m.PeerURL); err == nil {
			p.PeerAddress = peer.Host
		}
		response.Managers = append(response.Managers, p)
		asked.Go(func() {
			replica, err := c.askReplica(ctx, m)
			if err != nil {
				p.Problem = err.Error()
			}
			p.Replica = replica
		})
	}
	asked.Wait()
	return response, nil
}

// askReplica asks a manager for its status as a replica.
func (c *Service) askReplica(ctx context.Context, m store.Manager) (*weirv1.Replica, error) {
	if m.Name == c.Name {
		return c.replica(ctx), nil
	}
	client, err := c.Peer(m.Address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	r, err := client.GetReplica(ctx, &weirv1.GetReplicaRequest{})
	if errors.Is(err, context.DeadlineExceeded) {
		return nil, fmt.Errorf("no answer within %s", askTimeout)
	}
	return r.GetReplica(), err
}

// GetReplica is the status of this manager as a replica.
func (c *Service) GetReplica(ctx context.Context, _ *weirv1.GetReplicaRequest) (*weirv1.GetReplicaResponse, error) {
	return &weirv1.GetReplicaResponse{Replica: c.replica(ctx)}, nil
}

func (c *Service) replica(ctx context.Context) *weirv1.Replica {
	state := c.Cluster.Store.State()
	r := &weirv1.Replica{
		Version: c.Version, Epoch: uint64(state.Epoch), Leader: state.Leader, Generation: uint64(state.Generation),
	}
	size, err := c.Cluster.Size(ctx)
	if err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	r.StoreBytes, r.StoreBytesUsed = uint64(size.Disk), uint64(size.Used)
	r.Warnings = append(r.Warnings, size.Warnings...)
	return r
}

// RegisterNode registers a node whose stream another manager holds.
func (c *Service) RegisterNode(ctx context.Context, r *weirv1.RegisterNodeRequest) (*weirv1.RegisterNodeResponse, error) {
	node, err := wire.NodeFromRegistration(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	generation, err := c.Nodes.Register(ctx, node)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.RegisterNodeResponse{Generation: uint64(generation)}, nil
}

// FollowProgress streams to another manager how far the nodes of this one are.
func (c *Service) FollowProgress(
	ctx context.Context, r *weirv1.FollowProgressRequest, stream *connect.ServerStream[weirv1.FollowProgressResponse],
) error {
	return c.Nodes.FollowProgress(ctx, r, stream)
}

// FollowReports streams to another manager what the nodes of this one report.
func (c *Service) FollowReports(
	ctx context.Context, r *weirv1.FollowReportsRequest, stream *connect.ServerStream[weirv1.FollowReportsResponse],
) error {
	return c.Nodes.FollowReports(ctx, r, stream)
}

// ReadTraffic streams what agents counted that clients sent to VIPs.
func (c *Service) ReadTraffic(ctx context.Context, r *weirv1.ReadTrafficRequest, stream *connect.ServerStream[weirv1.ReadTrafficResponse]) error {
	return c.Traffic.Read(ctx, r, stream.Send)
}

// backupChunk bounds a message of a backup, in bytes.
const backupChunk = 256 << 10

// Backup streams a consistent copy of the store.
func (c *Service) Backup(ctx context.Context, _ *weirv1.BackupRequest, stream *connect.ServerStream[weirv1.BackupResponse]) error {
	copied, err := c.Cluster.Backup(ctx)
	if err != nil {
		return apierr.ToConnect(err)
	}
	defer copied.Close()
	if err := stream.Send(&weirv1.BackupResponse{Revision: uint64(copied.Revision)}); err != nil {
		return err
	}
	buffer := make([]byte, backupChunk)
	for {
		n, err := copied.Read(buffer)
		if n > 0 {
			if err := stream.Send(&weirv1.BackupResponse{Chunk: buffer[:n]}); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return apierr.ToConnect(fmt.Errorf("copy the store: %w", err))
		}
	}
}
