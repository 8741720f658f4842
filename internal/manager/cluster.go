package manager

import (
	"context"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/rpc"
)

// cluster serves ClusterService.
type cluster struct {
	weirv1connect.UnimplementedClusterServiceHandler

	*Manager
}

// RegisterNode registers a node whose stream another manager holds.
func (c cluster) RegisterNode(ctx context.Context, r *weirv1.RegisterNodeRequest) (*weirv1.RegisterNodeResponse, error) {
	node, err := rpc.NodeFromRegistration(r)
	if err != nil {
		return nil, refusal(err)
	}
	generation, err := c.write(ctx, node)
	if err != nil {
		return nil, refusal(err)
	}
	return &weirv1.RegisterNodeResponse{Generation: uint64(generation)}, nil
}

// GetReplica says how this manager is.
func (c cluster) GetReplica(context.Context, *weirv1.GetReplicaRequest) (*weirv1.GetReplicaResponse, error) {
	state := c.store.State()
	return &weirv1.GetReplicaResponse{Replica: &weirv1.Replica{
		Version: c.cfg.Version, Epoch: uint64(state.Epoch), Leader: state.Leader, Generation: uint64(state.Generation),
	}}, nil
}

// restCluster is what REST serves of it: all unary calls.
type restCluster struct{ cluster }

// Backup is a stream, which REST does not have.
func (restCluster) Backup(r *weirv1.BackupRequest, s weirv1.ClusterService_BackupServer) error {
	return weirv1.UnimplementedClusterServiceServer{}.Backup(r, s)
}
