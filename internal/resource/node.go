package resource

import (
	"context"
	"fmt"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/live"
	"github.com/weirlb/weir/internal/resource/query"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/wire"
)

// ListNodes lists muxes, then switches, then hosts, each by name.
func (m *Nodes) ListNodes(_ context.Context, r *weirv1.ListNodesRequest) (*weirv1.ListNodesResponse, error) {
	role := model.Role(r.GetRole())
	if role != "" && role != model.RoleMux && role != model.RoleHost && role != model.RoleSwitch {
		return nil, apierr.ToConnect(&model.FieldError{Field: "role", Reason: fmt.Sprintf("must be mux, host or switch, is %.64q", role)})
	}
	page, err := query.NewNodePage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	nodes, next := query.Nodes(m.view(), role, page, m.nodeWithStatus)
	return &weirv1.ListNodesResponse{Nodes: nodes, NextPageToken: next}, nil
}

// nodes writes all nodes.
func (m *Nodes) nodes(s *store.State) []*weirv1.Node {
	var nodes []*weirv1.Node
	for node := range s.Nodes.Values() {
		nodes = append(nodes, m.nodeWithStatus(s, node))
	}
	return nodes
}

// GetNode returns one node with its status.
func (m *Nodes) GetNode(_ context.Context, r *weirv1.GetNodeRequest) (*weirv1.GetNodeResponse, error) {
	state := m.view()
	node, there := state.Nodes.Get(r.GetName())
	if !there {
		return nil, apierr.NotFound("node", r.GetName(), state.Nodes, anyNode)
	}
	return &weirv1.GetNodeResponse{Node: m.nodeWithStatus(state, node)}, nil
}

// nodeWithStatus writes node with the newest that it said.
func (m *Nodes) nodeWithStatus(s *store.State, node model.Node) *weirv1.Node {
	said, detail := m.Reported(s, node)
	p := wire.NodeToProto(node)
	p.Status = &weirv1.NodeStatus{
		Connected: s.Streams.At(node.Name), Generation: uint64(said.Generation),
		Mux: detail.GetMux(), Host: detail.GetHost(), Switch: detail.GetSwitch(), Sync: m.sync(s, node),
	}
	if !said.Seen.IsZero() {
		p.Status.LastSeen = timestamppb.New(said.Seen)
	}
	if said.Rejected > said.Generation {
		p.Status.Rejection = &weirv1.Rejection{Generation: uint64(said.Rejected), Reason: said.Reason}
	}
	return p
}

// nodeWithSums is nodeWithStatus without the counters of endpoints.
func (m *Nodes) nodeWithSums(s *store.State, node model.Node) *weirv1.Node {
	n := m.nodeWithStatus(s, node)
	n.GetStatus().Mux = live.WithoutEndpoints(n.GetStatus().GetMux())
	return n
}

// DeleteNode forgets a node that is neither connected nor needed. Of one that was revoked the streams end, and no other
// is opened: it need not be waited for.
func (m *Nodes) DeleteNode(ctx context.Context, r *weirv1.DeleteNodeRequest) (*weirv1.DeleteNodeResponse, error) {
	name := r.GetName()
	_, err := m.Store.Update(ctx, func(s *store.State) (store.Change, error) {
		if _, there := s.Nodes.Get(name); !there {
			return store.Change{}, apierr.NotFound("node", name, s.Nodes, anyNode)
		}
		if s.Streams.At(name) && !m.revoked(s.Nodes.At(name)) {
			return store.Change{}, connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("node %s is connected: stop its program first, or weir revoke it", name))
		}
		for vip := range s.VIPsOn(name) {
			if n := livesOn(vip, name); n > 0 {
				return store.Change{}, connect.NewError(connect.CodeFailedPrecondition,
					fmt.Errorf("%d backends of VIP %s live on node %s: move or remove them first", n, vip.Name, name))
			}
		}
		for vip := range s.Placements.VIPsOf(name) {
			return store.Change{}, connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("switch %s may still send packets of %s: weir drain switch %s, and wait until weir placement has it no more", name, vip, name))
		}
		for port, network := range s.Networks.PortsOf(name) {
			return store.Change{}, connect.NewError(connect.CodeFailedPrecondition,
				fmt.Errorf("%s of node %s is in virtual network %s: move or remove the workloads first", port.Interface, name, network))
		}
		return store.Change{DeleteNodes: []string{name}}, nil
	})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	m.Forget(name)
	m.Log.Info("node deleted", "node", name)
	return &weirv1.DeleteNodeResponse{}, nil
}

// livesOn counts the backends of vip on host, and the workloads that leave as it.
func livesOn(vip model.VIP, host string) int {
	n := 0
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if b.Host == host {
				n++
			}
		}
	}
	if vip.SNAT != nil {
		for _, w := range vip.SNAT.Workloads {
			if w.Host == host {
				n++
			}
		}
	}
	return n
}

// GetStatus sums up what the caller may see, with a page of the nodes.
func (m *Nodes) GetStatus(ctx context.Context, r *weirv1.GetStatusRequest) (*weirv1.GetStatusResponse, error) {
	page, err := query.NewNodePage(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	stored := m.Store.State()
	s := m.Hub.WithProgress(stored)
	nodes, next := query.Nodes(s, "", page, m.nodeWithSums)
	names := map[string]bool{}
	for _, n := range nodes {
		names[n.GetName()] = true
	}
	response := m.status(ctx, stored, s, names)
	response.Nodes, response.NextPageToken = nodes, next
	return response, nil
}

// status sums up a State, which is shown to users as s, without nodes, and by host for those hosts alone.
func (m *Nodes) status(ctx context.Context, stored, s *store.State, hosts map[string]bool) *weirv1.GetStatusResponse {
	response := &weirv1.GetStatusResponse{
		Manager: m.Name, Version: m.Version, Generation: uint64(s.Generation), Store: m.StoreName(),
	}
	addSummary(response, m.summaries.get(m.Config, stored, s, time.Now), func(tenant string) bool { return authz.CanView(ctx, tenant) }, hosts)
	return response
}

// How a node stands.
const (
	syncCurrent = "current"
	syncBehind  = "behind"
	syncOut     = "out"
)

// sync says how a node stands, whoever holds its stream: of those of others, what they noted.
func (m *Nodes) sync(s *store.State, node model.Node) string {
	if !s.Streams.At(node.Name) {
		return ""
	}
	if s.Excluded.Has(node.Name) {
		return syncOut
	}
	if current, here := m.Hub.NodeIsCurrent(node.Name); here && current {
		return syncCurrent
	} else if here {
		return syncBehind
	}
	published, _ := m.Hub.PublishedGeneration()
	if said := s.Status.At(node.Name); node.Role == model.RoleMux && max(said.Generation, said.Rejected) < published {
		return syncBehind
	}
	return syncCurrent
}

// revoked says whether nobody has a credential of the node that is in force.
func (m *Nodes) revoked(node model.Node) bool {
	trusted, _ := m.Store.Trust.Watch()
	return trusted.HasRevoked(trust.Kind(node.Role), node.Name)
}
