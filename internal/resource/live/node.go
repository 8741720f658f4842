package live

import (
	"context"
	"fmt"
	"iter"
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
	told := &toldNodes{send: send, role: role}
	last := time.Now() // that something was sent
	for first := true; ; first = false {
		_, changed := s.Store.Watch()
		n, err := told.update(s.nodes(ctx))
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

// nodes are all nodes as a watch tells of them, of what the caller may see.
func (s *Streams) nodes(ctx context.Context) *nodeList {
	list, _ := s.look.get(s, authz.CanView(ctx, trust.AllTenants))
	return list
}

// nodeList are nodes by name. It is not written again: what differs is another list.
type nodeList struct{ all []*weirv1.Node }

// toldNodes are what a watch was told of.
type toldNodes struct {
	send func(*weirv1.WatchNodesResponse) error
	role model.Role // of the nodes that are told of; empty: all
	sent *nodeList  // that all watches of callers with the same view share
}

// tells says whether the watch tells of a node.
func (t *toldNodes) tells(n *weirv1.Node) bool { return t.role == "" || string(t.role) == n.GetRole() }

// update tells what differs, and says of how many nodes. Once it failed the watch is over.
func (t *toldNodes) update(now *nodeList) (n int, err error) {
	if now == t.sent {
		return 0, nil
	}
	var sent []*weirv1.Node
	if t.sent != nil {
		sent = t.sent.all
	}
	t.sent = now
	tell := func(kind string, node *weirv1.Node) error {
		n++
		return t.send(&weirv1.WatchNodesResponse{Type: kind, Node: node})
	}
	for before, node := range pairs(sent, now.all) {
		there, was := node != nil && t.tells(node), before != nil && t.tells(before)
		switch {
		case there && !was:
			err = tell(Added, node)
		case there && before != node && !isSame(before, node):
			err = tell(Modified, node)
		case was && !there:
			err = tell(Deleted, &weirv1.Node{Name: before.GetName(), Role: before.GetRole()})
		}
		if err != nil {
			return n, err
		}
	}
	return n, nil
}

// pairs are the nodes of two lists in the order of their names, with nil where one list has none of the name.
func pairs(before, now []*weirv1.Node) iter.Seq2[*weirv1.Node, *weirv1.Node] {
	return func(yield func(before, now *weirv1.Node) bool) {
		for len(before)+len(now) > 0 {
			var a, b *weirv1.Node
			order := 0
			switch {
			case len(before) == 0:
				order = 1
			case len(now) == 0:
				order = -1
			default:
				order = strings.Compare(before[0].GetName(), now[0].GetName())
			}
			if order <= 0 {
				a, before = before[0], before[1:]
			}
			if order >= 0 {
				b, now = now[0], now[1:]
			}
			if !yield(a, b) {
				return
			}
		}
	}
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
	mu       sync.Mutex
	until    time.Time        // from when on the nodes are looked at again
	number   uint64           // of the look
	at       model.Generation // of the State that they are of
	all      []*weirv1.Node
	quiet    view // for callers who may see the whole cluster: without counters
	redacted view // for callers who are bound to tenants
}

// raw are all nodes as they are, and the generation of their State. They are not written again.
func (l *look) raw(s *Streams) ([]*weirv1.Node, model.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew(s)
	return l.all, l.at
}

// get are the nodes for callers who may see the whole cluster, or for others, and the generation of their State.
func (l *look) get(s *Streams, whole bool) (*nodeList, model.Generation) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.renew(s)
	if whole {
		return l.quiet.update(l, withoutCounters), l.at
	}
	return l.redacted.update(l, authz.RedactedNode), l.at
}

// renew looks at the nodes, unless that was done just now.
func (l *look) renew(s *Streams) {
	began := time.Now()
	if began.Before(l.until) {
		return
	}
	view := s.View()
	l.all, l.at = s.Nodes(view), view.Generation
	l.number++
	// A list that is made of them takes about as long again.
	ended := time.Now()
	l.until = ended.Add(Rest(2*ended.Sub(began), lookPause))
}

// view is how one kind of callers is told of nodes.
type view struct {
	of   uint64 // the look that the list was made of; 0: of none
	list *nodeList
}

// update is the list of the nodes of a look as callers are told of them. A node that is as it was is the same message as
// before, and so is the list if all are: a watch sees at once that it has nothing to tell.
func (v *view) update(l *look, as func(*weirv1.Node) *weirv1.Node) *nodeList {
	if v.list != nil && v.of == l.number {
		return v.list
	}
	var before []*weirv1.Node
	if v.list != nil {
		before = v.list.all
	}
	fresh, differs := make([]*weirv1.Node, 0, len(l.all)), v.list == nil
	for was, n := range pairs(before, l.all) {
		if n == nil {
			differs = true
			continue
		}
		next := as(n)
		if was != nil && isSame(was, next) {
			next = was
		} else {
			differs = true
		}
		fresh = append(fresh, next)
	}
	v.of = l.number
	if differs {
		v.list = &nodeList{fresh}
	}
	return v.list
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

// WithoutEndpoints is what a mux said, without its counters: there is one for each endpoint of all VIPs. What it said
// is shared with others, and stays as it is.
func WithoutEndpoints(mux *weirv1.MuxStatus) *weirv1.MuxStatus {
	if mux == nil {
		return nil
	}
	return &weirv1.MuxStatus{
		XdpMode: mux.GetXdpMode(), Interface: mux.GetInterface(), Peers: mux.GetPeers(), Verdicts: mux.GetVerdicts(),
		Warnings: mux.GetWarnings(), Snat: mux.GetSnat(), Pressures: mux.GetPressures(), Flows: mux.GetFlows(),
		NatSessions: mux.GetNatSessions(), GracefulRestart: mux.GetGracefulRestart(), LastPacket: mux.GetLastPacket(),
		Neighbors: mux.GetNeighbors(),
	}
}
