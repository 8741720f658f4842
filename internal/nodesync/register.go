package nodesync

import (
	"context"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"connectrpc.com/connect"

	"github.com/weirlb/weir/internal/desired/admission"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wire"
)

// openNode registers the node of a stream that opens, and returns a generation that holds it and what closes the stream.
func (n *Service) openNode(ctx context.Context, node model.Node) (model.Generation, func(), error) {
	generation, err := n.registerAtLeader(ctx, node)
	if err != nil {
		return 0, nil, err
	}
	n.Log.Debug("stream opened", "node", node.Name)
	closed := n.Store.Presence.Open(node.Name)
	open := n.metrics.streams.WithLabelValues(string(node.Role))
	open.Inc()
	return generation, func() {
		n.Log.Debug("stream closed", "node", node.Name)
		open.Dec()
		n.unacked.closed(node.Name)
		closed()
	}, nil
}

// registerAtLeader returns a generation that holds the node, which the leader writes if it is new or changed.
func (n *Service) registerAtLeader(ctx context.Context, node model.Node) (model.Generation, error) {
	if err := admission.NodeJoin(node, n.joinPrefixes(node)); err != nil {
		return 0, err
	}
	state := n.Store.State()
	if old, had := state.Nodes.Get(node.Name); had {
		if node.Drained = old.Drained; reflect.DeepEqual(old, node) {
			return state.Generation, nil
		}
	}
	leader, err := n.Replica.AwaitLeader(ctx)
	if err != nil {
		return 0, rpc.RetryError(err)
	}
	if leader == "" {
		return n.Register(ctx, node)
	}
	client, err := n.Peer(leader)
	if err != nil {
		return 0, err
	}
	r, err := client.RegisterNode(ctx, wire.RegistrationToProto(node))
	return model.Generation(r.GetGeneration()), err
}

// joinPrefixes are the prefixes that the join token of a node bounds its addresses to; none: any.
func (n *Service) joinPrefixes(node model.Node) []netip.Prefix {
	trusted, _ := n.Store.Trust.Watch()
	return trusted.Principals.At(trust.Principal{Kind: trust.Kind(node.Role), Name: node.Name}.Key()).Addresses
}

// Register writes the node if it is new or changed, and returns a generation that holds it. Only the leader does so.
func (n *Service) Register(ctx context.Context, node model.Node) (model.Generation, error) {
	changed := false
	generation, err := n.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		old, had := s.Nodes.Get(node.Name)
		node.Drained = old.Drained // operators' to say
		changed = !had || !reflect.DeepEqual(old, node)
		if !changed {
			return store.Change{}, nil
		}
		if n.hasRevoked(node) { // the manager that has its stream may not have heard
			return store.Change{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("%s/%s was revoked: join again with a new token", node.Role, node.Name))
		}
		if err := admission.Node(s.State, node, n.Tenants(), n.joinPrefixes(node)); err != nil {
			return store.Change{}, err
		}
		moved := !slices.Equal(old.Addresses, node.Addresses) || !slices.Equal(old.Prefixes, node.Prefixes)
		if moved && s.Streams.At(node.Name) {
			return store.Change{}, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf(
				"%s is connected already, from %v: give this one another --name", node.Name, old.Addresses))
		}
		return store.Change{Nodes: []model.Node{node}}, nil
	})
	if err != nil {
		return 0, err
	}
	if changed {
		n.Log.Info("node registered", "node", node.Name, "role", node.Role, "addresses", node.Addresses, "generation", generation)
	}
	return generation, nil
}

// hasRevoked says whether no credential of the node is in force.
func (n *Service) hasRevoked(node model.Node) bool {
	trusted, _ := n.Store.Trust.Watch()
	return trusted.HasRevoked(trust.Kind(node.Role), node.Name)
}
