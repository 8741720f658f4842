package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// SyncMux registers a mux and streams the pool's tables to it.
func (m *Manager) SyncMux(
	ctx context.Context, r *weirv1.SyncMuxRequest, stream *connect.ServerStream[weirv1.SyncMuxResponse],
) error {
	node, err := rpc.MuxFromProto(r)
	if err != nil {
		return refusal(err)
	}
	registered, closed, err := m.register(ctx, node)
	if err != nil {
		return refusal(err)
	}
	defer closed()
	asked, endTasks := m.tasks.open(node.Name)
	defer endTasks()
	var sent *view
	ask := func(generation model.Generation, task *weirv1.MuxTask) error {
		return stream.Send(&weirv1.SyncMuxResponse{Generation: uint64(generation), Tasks: []*weirv1.MuxTask{task}})
	}
	return m.stream(ctx, m.hub.muxes, registered, asked, ask, func(next *view) error {
		update := muxUpdate(sent, next)
		sent = next
		m.acks.sent(node.Name, node.Role, next.Generation, func(error) {})
		return stream.Send(rpc.MuxUpdateToProto(update))
	})
}

// SyncHost registers a host and streams what its workloads need to it.
func (m *Manager) SyncHost(
	ctx context.Context, r *weirv1.SyncHostRequest, stream *connect.ServerStream[weirv1.SyncHostResponse],
) error {
	node, err := rpc.HostFromProto(r)
	if err != nil {
		return refusal(err)
	}
	registered, closed, err := m.register(ctx, node)
	if err != nil {
		return refusal(err)
	}
	defer closed()
	var sent *view
	return m.stream(ctx, m.hub.hosts, registered, nil, nil, func(next *view) error {
		update := hostUpdate(node.Name, sent, next)
		sent = next
		m.acks.sent(node.Name, node.Role, next.Generation, func(error) {})
		return stream.Send(rpc.HostUpdateToProto(update))
	})
}

// stream sends every view from generation first on, skipping those that are outdated by the time
// that the one before is sent. One of the same generation has another pool. Between views it hands on
// what is asked of a mux.
func (m *Manager) stream(
	ctx context.Context, newest func() (*view, <-chan struct{}), first model.Generation,
	asked <-chan *weirv1.MuxTask, ask func(model.Generation, *weirv1.MuxTask) error, send func(*view) error,
) error {
	sent := &view{State: &store.State{}}
	for {
		next, changed := newest()
		if next != nil && next != sent && next.Generation >= max(first, sent.Generation) {
			if err := send(next); err != nil {
				return err
			}
			sent = next
			continue
		}
		select {
		case <-changed:
		case task := <-asked:
			if err := ask(sent.Generation, task); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		case <-m.stopping:
			return connect.NewError(connect.CodeUnavailable, errors.New("the manager stops"))
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
	r, err := client.RegisterNode(ctx, rpc.RegistrationToProto(node))
	return model.Generation(r.GetGeneration()), err
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
		if err := s.AdmitNode(node); err != nil {
			return store.Change{}, err
		}
		moved := !slices.Equal(old.Addresses, node.Addresses) || !slices.Equal(old.Prefixes, node.Prefixes)
		if moved && s.Streams.At(node.Name) {
			return store.Change{}, connect.NewError(connect.CodeAlreadyExists, fmt.Errorf(
				"%s is connected already, from %v: give this one another --name", node.Name, old.Addresses))
		}
		return store.Change{Nodes: []model.Node{node}, Hosts: moved && node.Role == model.RoleMux}, nil
	})
	if err != nil {
		return 0, err
	}
	if news {
		m.log.Info("node registered", "node", node.Name, "role", node.Role, "addresses", node.Addresses, "generation", generation)
	}
	return generation, nil
}

// muxUpdate is what leads a mux from sent, nil if nothing was, to next.
func muxUpdate(sent, next *view) rpc.MuxUpdate {
	update := rpc.MuxUpdate{Generation: next.Generation, Snapshot: sent == nil, Pool: next.pool}
	if sent == nil {
		sent, update.HashKey = &view{State: &store.State{}}, next.HashKey
	}
	for key, endpoint := range next.endpoints {
		if sent.endpoints[key] != endpoint {
			update.Endpoints = append(update.Endpoints, *endpoint)
		}
	}
	for key := range sent.endpoints {
		if _, kept := next.endpoints[key]; !kept {
			update.Removed = append(update.Removed, key)
		}
	}
	slices.SortFunc(update.Endpoints, func(a, b model.MuxEndpoint) int { return a.Key.Compare(b.Key) })
	slices.SortFunc(update.Removed, model.EndpointKey.Compare)
	return update
}

// hostUpdate is what leads a host from sent, nil if nothing was, to next.
func hostUpdate(host string, sent, next *view) rpc.HostUpdate {
	update := rpc.HostUpdate{Generation: next.Generation, Snapshot: sent == nil, Muxes: next.muxes}
	if sent == nil {
		sent, update.HashKey = &view{}, next.HashKey
	}
	for key, backend := range next.hosts[host] {
		if was, had := sent.hosts[host][key]; !had || !reflect.DeepEqual(was, backend) {
			update.Backends = append(update.Backends, backend)
		}
	}
	for key := range sent.hosts[host] {
		if _, kept := next.hosts[host][key]; !kept {
			update.Removed = append(update.Removed, key)
		}
	}
	compare := func(a, b model.HostBackendKey) int {
		return cmp.Or(a.Endpoint.Compare(b.Endpoint), a.Tunnel.Compare(b.Tunnel))
	}
	slices.SortFunc(update.Backends, func(a, b model.HostBackend) int { return compare(a.Key(), b.Key()) })
	slices.SortFunc(update.Removed, compare)
	return update
}
