package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

const (
	// askTimeout bounds how long another manager is asked how it is.
	askTimeout = 2 * time.Second
	// joinTimeout bounds how long a manager that joins tries to be taken in.
	joinTimeout = time.Minute
)

// advertise is the address at which the other managers reach this one's API: as it was told, or where it
// listens, which may be all addresses; then it is the one where it listens for them.
func advertise(cfg Config, listens string) string {
	host, port, err := net.SplitHostPort(listens)
	if ip := net.ParseIP(host); err == nil && ip != nil && ip.IsUnspecified() {
		if peer, _, err := net.SplitHostPort(cfg.PeerListen); err == nil {
			listens = net.JoinHostPort(peer, port)
		}
	}
	return cmp.Or(cfg.Advertise, listens)
}

// reachable is the address to write into a configuration for one that is advertised.
func reachable(advertised string) string {
	host, port, err := net.SplitHostPort(advertised)
	if err != nil {
		return advertised
	}
	if a, err := netip.ParseAddr(host); err == nil && a.IsUnspecified() {
		host = "127.0.0.1"
	}
	return net.JoinHostPort(host, port)
}

// joining asks the managers to join for a place; nil if this one founds a cluster.
func joining(cfg Config, identity *pki.Identity, address string) func(context.Context, string) ([]store.Member, error) {
	if cfg.Join == "" {
		return nil
	}
	return func(ctx context.Context, peerURL string) ([]store.Member, error) {
		client, err := identity.ToJoin(cfg.Join).Client()
		if err != nil {
			return nil, err
		}
		defer client.Close()
		ctx, cancel := context.WithTimeout(ctx, joinTimeout)
		defer cancel()
		r, err := client.JoinManager(ctx, &weirv1.JoinManagerRequest{
			Name: cfg.Name, Address: address, PeerUrl: peerURL, Version: cfg.Version,
		})
		if err != nil {
			return nil, err
		}
		var members []store.Member
		for _, m := range r.GetMembers() {
			members = append(members, store.Member{Name: m.GetName(), PeerURL: m.GetPeerUrl()})
		}
		return members, nil
	}
}

// cluster serves ClusterService.
type cluster struct {
	weirv1connect.UnimplementedClusterServiceHandler

	*Manager
}

// JoinManager takes a manager into the cluster.
func (c cluster) JoinManager(ctx context.Context, r *weirv1.JoinManagerRequest) (*weirv1.JoinManagerResponse, error) {
	if _, err := url.Parse(r.GetPeerUrl()); err != nil || r.GetPeerUrl() == "" {
		return nil, apierr.ToConnect(&model.FieldError{Field: "peer_url", Reason: "must be a URL"})
	}
	members, err := c.store.AddManager(ctx, store.Manager{Name: r.GetName(), Address: r.GetAddress(), PeerURL: r.GetPeerUrl()})
	if err != nil {
		return nil, clusterRefusal(err)
	}
	response := &weirv1.JoinManagerResponse{}
	for _, m := range members {
		response.Members = append(response.Members, &weirv1.StoreMember{Name: m.Name, PeerUrl: m.PeerURL})
	}
	return response, nil
}

// clusterRefusal is refusal for changes of the cluster, some of which may be tried again.
func clusterRefusal(err error) error {
	if errors.Is(err, store.ErrRetry) {
		return rpc.RetryError(err)
	}
	return apierr.ToConnect(err)
}

// DeleteManager takes a manager out of the cluster.
func (c cluster) DeleteManager(ctx context.Context, r *weirv1.DeleteManagerRequest) (*weirv1.DeleteManagerResponse, error) {
	m, known := c.store.State().Managers[r.GetName()]
	if !known {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("there is no manager %.64q", r.GetName()))
	}
	if c.store.External() {
		// It is no member of etcd: nothing would end it.
		if _, err := c.ask(ctx, m); err == nil {
			return nil, connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("manager %s runs, and shares an external etcd: stop it first", m.Name))
		}
	}
	if err := c.store.RemoveManager(ctx, r.GetName()); err != nil {
		return nil, clusterRefusal(err)
	}
	return &weirv1.DeleteManagerResponse{}, nil
}

// ListManagers lists the managers, each with what it says of itself.
func (c cluster) ListManagers(ctx context.Context, _ *weirv1.ListManagersRequest) (*weirv1.ListManagersResponse, error) {
	state := c.store.State()
	response := &weirv1.ListManagersResponse{Store: c.store.String()}
	var asked sync.WaitGroup
	for _, m := range c.store.Managers() {
		p := &weirv1.Manager{Name: m.Name, Address: m.Address, Leader: m.Name == state.Leader, Learner: m.Learner, Schema: uint32(max(m.Schema, 1))}
		if peer, err := url.Parse(m.PeerURL); err == nil {
			p.PeerAddress = peer.Host
		}
		response.Managers = append(response.Managers, p)
		asked.Go(func() {
			replica, err := c.ask(ctx, m)
			if err != nil {
				p.Problem = err.Error()
			}
			p.Replica = replica
		})
	}
	asked.Wait()
	return response, nil
}

// ask asks a manager how it is.
func (c cluster) ask(ctx context.Context, m store.Manager) (*weirv1.Replica, error) {
	if m.Name == c.cfg.Name {
		return c.replica(ctx), nil
	}
	client, err := c.peers.At(m.Address)
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

// GetReplica says how this manager is.
func (c cluster) GetReplica(ctx context.Context, _ *weirv1.GetReplicaRequest) (*weirv1.GetReplicaResponse, error) {
	return &weirv1.GetReplicaResponse{Replica: c.replica(ctx)}, nil
}

func (c cluster) replica(ctx context.Context) *weirv1.Replica {
	state := c.store.State()
	r := &weirv1.Replica{
		Version: c.cfg.Version, Epoch: uint64(state.Epoch), Leader: state.Leader, Generation: uint64(state.Generation),
	}
	size, err := c.store.Size(ctx)
	if err != nil {
		r.Warnings = append(r.Warnings, err.Error())
	}
	r.StoreBytes, r.StoreBytesUsed = uint64(size.Disk), uint64(size.Used)
	r.Warnings = append(r.Warnings, size.Warnings...)
	return r
}

// RegisterNode registers a node whose stream another manager holds.
func (c cluster) RegisterNode(ctx context.Context, r *weirv1.RegisterNodeRequest) (*weirv1.RegisterNodeResponse, error) {
	node, err := wire.NodeFromRegistration(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	generation, err := c.nodes.Register(ctx, node)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.RegisterNodeResponse{Generation: uint64(generation)}, nil
}

// FollowProgress streams to another manager how far the nodes of this one are.
func (c cluster) FollowProgress(
	ctx context.Context, r *weirv1.FollowProgressRequest, stream *connect.ServerStream[weirv1.FollowProgressResponse],
) error {
	return c.nodes.FollowProgress(ctx, r, stream)
}

// backupChunk bounds a message of a backup, in bytes.
const backupChunk = 256 << 10

// Backup streams a consistent copy of the store.
func (c cluster) Backup(ctx context.Context, _ *weirv1.BackupRequest, stream *connect.ServerStream[weirv1.BackupResponse]) error {
	copied, err := c.store.Backup(ctx)
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

// restCluster is what REST serves of it: all unary calls.
type restCluster struct{ cluster }

// FollowProgress is a stream, which REST does not have.
func (restCluster) FollowProgress(r *weirv1.FollowProgressRequest, s weirv1.ClusterService_FollowProgressServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.FollowProgress(r, s)
}

// Backup is a stream, which REST does not have.
func (restCluster) Backup(r *weirv1.BackupRequest, s weirv1.ClusterService_BackupServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.Backup(r, s)
}
