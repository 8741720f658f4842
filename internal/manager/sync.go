package manager

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"slices"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wire"
)

// SyncMux registers a mux and streams the pool's tables to it.
func (m *Manager) SyncMux(
	ctx context.Context, r *weirv1.SyncMuxRequest, stream *connect.ServerStream[weirv1.SyncMuxResponse],
) error {
	node, err := wire.MuxFromProto(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	if err := m.catchUp(ctx, model.RoleMux, r); err != nil {
		return err
	}
	registered, closed, err := m.register(ctx, node)
	if err != nil {
		return apierr.ToConnect(err)
	}
	defer closed()
	asked, endTasks := m.diagnosis.OpenTasks(node.Name)
	defer endTasks()
	feed, ended := m.hub.OpenMux(node.Name, r.GetJoins(), r.GetPrefixChunks())
	defer ended()
	ask := func(task *weirv1.MuxTask) error {
		return stream.Send(&weirv1.SyncMuxResponse{Generation: uint64(feed.Sent()), Tasks: []*weirv1.MuxTask{task}})
	}
	return m.stream(ctx, feed.Wake(), asked, ask, func() (bool, error) {
		before := feed.Sent()
		if chunks := feed.NextChunks(max(registered, m.seenBy(r))); len(chunks) > 0 {
			return true, stream.Send(&weirv1.SyncMuxResponse{Generation: uint64(before), PrefixChunks: wire.ChunksToProto(chunks)})
		}
		message, err := feed.Next(max(registered, m.seenBy(r)))
		if message == nil || err != nil {
			return false, err
		}
		message.TraceParents = m.sending(node, before, feed.Sent())
		message.Cluster, message.Epoch = m.stamp()
		return true, stream.Send(message)
	})
}

// SyncHost registers a host and streams what its workloads need to it.
func (m *Manager) SyncHost(
	ctx context.Context, r *weirv1.SyncHostRequest, stream *connect.ServerStream[weirv1.SyncHostResponse],
) error {
	node, err := wire.HostFromProto(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	if err := m.catchUp(ctx, model.RoleHost, r); err != nil {
		return err
	}
	registered, closed, err := m.register(ctx, node)
	if err != nil {
		return apierr.ToConnect(err)
	}
	defer closed()
	feed, ended := m.hub.OpenHost(node.Name)
	defer ended()
	return m.stream(ctx, feed.Wake(), nil, nil, func() (bool, error) {
		update, due := feed.Next(max(registered, m.seenBy(r)))
		if !due {
			return false, nil
		}
		message := wire.HostUpdateToProto(update)
		message.TraceParents = m.sending(node, update.Generation-1, update.Generation)
		message.Cluster, message.Epoch = m.stamp()
		return true, stream.Send(message)
	})
}

var errStops = connect.NewError(connect.CodeUnavailable, errors.New("the manager stops"))

// stream sends what is due until ctx ends: what is to be sent falls together while the one before is
// sent. In between it hands on what is asked of a mux.
func (m *Manager) stream(
	ctx context.Context, due <-chan struct{}, asked <-chan *weirv1.MuxTask, ask func(*weirv1.MuxTask) error,
	send func() (sent bool, err error),
) error {
	_, parted := m.partitioned.watch()
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
			return rpc.RetryError(errPartitioned)
		case <-m.stopping:
			return errStops
		}
	}
}

// register writes the node, if it is new or changed, and returns a generation that holds it.
func (m *Manager) register(ctx context.Context, node model.Node) (model.Generation, func(), error) {
	generation, err := m.registered(ctx, node)
	if err != nil {
		return 0, nil, err
	}
	m.log.Debug("stream opened", "node", node.Name)
	closed := m.store.OpenStream(node.Name)
	open := m.meters.streams.WithLabelValues(string(node.Role))
	open.Inc()
	return generation, func() {
		m.log.Debug("stream closed", "node", node.Name)
		open.Dec()
		m.acks.closed(node.Name)
		closed()
	}, nil
}

// registered returns a generation that holds the node. If there is none yet, the leader writes it.
func (m *Manager) registered(ctx context.Context, node model.Node) (model.Generation, error) {
	if err := desired.AdmitJoined(node, m.joinedFor(node)); err != nil {
		return 0, err
	}
	state := m.store.State()
	if old, had := state.Nodes.Get(node.Name); had && reflect.DeepEqual(old, node) {
		return state.Generation, nil
	}
	leader, err := m.awaitLeader(ctx)
	if err != nil {
		return 0, rpc.RetryError(err)
	}
	if leader == "" {
		return m.write(ctx, node)
	}
	client, err := m.peers.at(leader)
	if err != nil {
		return 0, err
	}
	r, err := client.RegisterNode(ctx, wire.RegistrationToProto(node))
	return model.Generation(r.GetGeneration()), err
}

// joinedFor are the prefixes that a node's addresses lie in, by the token that it joined with; none: any.
func (m *Manager) joinedFor(node model.Node) []netip.Prefix {
	trusted, _ := m.store.Trust()
	return trusted.Principals[trust.Principal{Kind: trust.Kind(node.Role), Name: node.Name}.Key()].Addresses
}

// write writes the node, if it is new or changed, and returns a generation that holds it.
func (m *Manager) write(ctx context.Context, node model.Node) (model.Generation, error) {
	news := false
	generation, err := m.store.Update(ctx, func(s *store.State) (store.Change, error) {
		old, had := s.Nodes.Get(node.Name)
		news = !had || !reflect.DeepEqual(old, node)
		if !news {
			return store.Change{}, nil
		}
		if m.hasRevoked(node) { // the manager that has its stream may not have heard
			return store.Change{}, connect.NewError(connect.CodeUnauthenticated, fmt.Errorf("%s/%s was revoked: join again with a new token", node.Role, node.Name))
		}
		if err := s.AdmitNode(node, m.resources.VIPs.Tenants(), m.joinedFor(node)); err != nil {
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
	if news {
		m.log.Info("node registered", "node", node.Name, "role", node.Role, "addresses", node.Addresses, "generation", generation)
	}
	return generation, nil
}

// hasRevoked says whether nobody has a credential of the node that is in force.
func (m *Manager) hasRevoked(node model.Node) bool {
	trusted, _ := m.store.Trust()
	return trusted.HasRevoked(trust.Kind(node.Role), node.Name)
}
