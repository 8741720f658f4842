package live

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// WatchNodes streams nodes as they change.
func (s *Streams) WatchNodes(ctx context.Context, r *weirv1.WatchNodesRequest, stream *connect.ServerStream[weirv1.WatchNodesResponse]) error {
	return apierr.ToConnect(s.EachNode(ctx, r, stream.Send))
}

// EachNode sends nodes as they change until ctx ends, the manager stops, or send fails.
func (s *Streams) EachNode(ctx context.Context, r *weirv1.WatchNodesRequest, send func(*weirv1.WatchNodesResponse) error) error {
	role := model.Role(r.GetRole())
	if role != "" && role != model.RoleMux && role != model.RoleHost && role != model.RoleSwitch {
		return &model.FieldError{Field: "role", Reason: fmt.Sprintf("must be mux, host or switch, is %q", role)}
	}
	end, err := s.Watches.Begin(trust.FromContext(ctx))
	if err != nil {
		return err
	}
	defer end()
	told := &toldNodes{send: send, sent: map[string]*weirv1.Node{}}
	last := time.Now() // that something was sent
	for first := true; ; first = false {
		_, changed := s.Store.Watch()
		n, err := told.update(s.nodes(ctx), role)
		if err != nil {
			return err
		}
		if n > 0 {
			last = time.Now()
		}
		if first || time.Since(last) >= BookmarkInterval {
			if err := send(&weirv1.WatchNodesResponse{Type: Bookmark}); err != nil {
				return err
			}
			last = time.Now()
		}
		pause := lookPause
		if n > much {
			pause = longPause
		}
		if err := s.next(ctx, changed, pause); err != nil {
			return ended(err)
		}
	}
}

// nodes are all nodes as a watch tells of them, by name, of what the caller may see. They are not written again.
func (s *Streams) nodes(ctx context.Context) []*weirv1.Node {
	now := s.look.get(s)
	if authz.CanView(ctx, trust.AllTenants) {
		return now.quiet
	}
	return now.redacted
}

// toldNodes are what a watch was told of.
type toldNodes struct {
	send func(*weirv1.WatchNodesResponse) error
	sent map[string]*weirv1.Node
}

// update tells what differs, and says of how many nodes.
func (t *toldNodes) update(nodes []*weirv1.Node, role model.Role) (n int, err error) {
	there := make(map[string]bool, len(nodes))
	for _, node := range nodes {
		if role != "" && string(role) != node.GetRole() {
			continue
		}
		there[node.GetName()] = true
		kind, before := Modified, t.sent[node.GetName()]
		switch {
		case before == nil:
			kind = Added
		case before == node || isSame(before, node):
			continue
		}
		if err := t.send(&weirv1.WatchNodesResponse{Type: kind, Node: node}); err != nil {
			return n, err
		}
		t.sent[node.GetName()] = node
		n++
	}
	for name, node := range t.sent {
		if there[name] {
			continue
		}
		if err := t.send(&weirv1.WatchNodesResponse{Type: Deleted, Node: &weirv1.Node{Name: name, Role: node.GetRole()}}); err != nil {
			return n, err
		}
		delete(t.sent, name)
		n++
	}
	return n, nil
}

// isSame says whether two versions of a node are the same but for when one that is connected was last heard.
func isSame(before, now *weirv1.Node) bool {
	if !before.GetStatus().GetConnected() || !now.GetStatus().GetConnected() {
		return proto.Equal(before, now)
	}
	return proto.Equal(unheard(before), unheard(now))
}

// unheard is a node without when it was last heard.
func unheard(n *weirv1.Node) *weirv1.Node {
	status := n.GetStatus()
	return &weirv1.Node{
		Name: n.GetName(), Role: n.GetRole(), Addresses: n.GetAddresses(), Version: n.GetVersion(), Drained: n.GetDrained(),
		NatPrefixes: n.GetNatPrefixes(), Aggregates: n.GetAggregates(), NeighborPrefixes: n.GetNeighborPrefixes(),
		Status: &weirv1.NodeStatus{
			Connected: true, Generation: status.GetGeneration(), Rejection: status.GetRejection(), Sync: status.GetSync(),
			Mux: status.GetMux(), Host: status.GetHost(), Switch: status.GetSwitch(),
		},
	}
}

// look is what all watches look at.
type look struct {
	mu  sync.Mutex
	at  time.Time
	now seen
}

// seen are all nodes by name, as each kind of caller is told of them. They are not written again, and one of quiet or
// redacted that is as it was is the same message as before.
type seen struct {
	all      []*weirv1.Node
	quiet    []*weirv1.Node // without counters
	redacted []*weirv1.Node // for callers who are bound to tenants
}

// get looks at the nodes, unless that was done just now.
func (l *look) get(s *Streams) seen {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now := time.Now(); now.Sub(l.at) < lookPause {
		return l.now
	}
	all := s.Nodes(s.View())
	l.now = seen{all: all, quiet: told(l.now.quiet, all, withoutCounters), redacted: told(l.now.redacted, all, authz.RedactedNode)}
	l.at = time.Now()
	return l.now
}

// told are all nodes as callers are told of them, by those of before where they are the same.
func told(before, all []*weirv1.Node, as func(*weirv1.Node) *weirv1.Node) []*weirv1.Node {
	fresh := make([]*weirv1.Node, 0, len(all))
	for _, n := range all {
		next := as(n)
		i, there := slices.BinarySearchFunc(before, next, func(a, b *weirv1.Node) int { return strings.Compare(a.GetName(), b.GetName()) })
		if there && isSame(before[i], next) {
			next = before[i]
		}
		fresh = append(fresh, next)
	}
	return fresh
}

// withoutCounters is a node as a watch tells of it. What the node said is shared with others, and stays as it is.
func withoutCounters(n *weirv1.Node) *weirv1.Node {
	quiet := unheard(n)
	quiet.Status.Connected, quiet.Status.LastSeen = n.GetStatus().GetConnected(), n.GetStatus().GetLastSeen()
	if m := n.GetStatus().GetMux(); m != nil {
		quiet.Status.Mux = &weirv1.MuxStatus{
			XdpMode: m.GetXdpMode(), Interface: m.GetInterface(), Peers: m.GetPeers(), Warnings: m.GetWarnings(),
			Pressures: m.GetPressures(), GracefulRestart: m.GetGracefulRestart(),
		}
	}
	if h := n.GetStatus().GetHost(); h != nil {
		quiet.Status.Host = &weirv1.HostStatus{
			Uplink: h.GetUplink(), Warnings: h.GetWarnings(), Backlogs: h.GetBacklogs(), Floods: h.GetFloods(),
			SteeringRefused: h.GetSteeringRefused(), SteeringRefusedMore: h.GetSteeringRefusedMore(),
		}
	}
	if w := n.GetStatus().GetSwitch(); w != nil {
		quiet.Status.Switch = &weirv1.SwitchStatus{
			Driver: w.GetDriver(), Hosts: w.GetHosts(), Ecmp: w.GetEcmp(), Tunnels: w.GetTunnels(), Programmed: w.GetProgrammed(),
			Announced: w.GetAnnounced(), Peers: w.GetPeers(), Warnings: w.GetWarnings(), Members: w.GetMembers(),
			Refused: w.GetRefused(), RefusedMore: w.GetRefusedMore(), Weights: w.GetWeights(), Tips: w.GetTips(),
		}
	}
	return quiet
}
