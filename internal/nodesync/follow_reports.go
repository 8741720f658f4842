package nodesync

import (
	"context"
	"maps"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
)

const (
	// DefaultTellInterval bounds the age of a node's counters that the other managers know.
	DefaultTellInterval = 10 * time.Second
	// gatherTime is how long reports gather before they are sent to another manager.
	gatherTime = 100 * time.Millisecond
	// A message to another manager has as many reports, and as many bytes of them, at most. One report may be larger.
	maxTold      = 256
	maxToldBytes = 256 << 10
	maxToldOne   = 8 << 20 // agents may send half as much
	// leftAfter is for how long a node may report nothing here before another manager is told nothing of it.
	leftAfter = 2 * DefaultTellInterval
	// longestAge bounds what another manager says of the age of a report.
	longestAge = time.Hour
)

// FollowReports streams to another manager what the nodes of this one report.
func (n *Service) FollowReports(
	ctx context.Context, r *weirv1.FollowReportsRequest, stream *connect.ServerStream[weirv1.FollowReportsResponse],
) error {
	defer n.Reports.follow(r.GetName())()
	place, first := uint64(0), true
	for {
		due, last, more := n.Reports.after(place)
		place = last
		for first || len(due) > 0 {
			var message *weirv1.FollowReportsResponse
			message, due = tell(due, n.Now())
			if first || len(message.GetReports()) > 0 {
				if err := stream.Send(message); err != nil {
					return err
				}
			}
			first = false
		}
		if err := await(ctx, more, n.Stopping); err != nil {
			return err
		}
	}
}

// await returns a moment after there is more to tell, so that what comes meanwhile goes with it.
func await(ctx context.Context, more, stops <-chan struct{}) error {
	var gathered <-chan time.Time
	for {
		select {
		case <-more:
			more, gathered = nil, time.After(gatherTime)
		case <-gathered:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-stops:
			return errStops
		}
	}
}

// named is the report of a node.
type named struct {
	node string
	report
}

// follow notes that another manager follows the reports, until the function returned is called.
func (r *Reports) follow(manager string) (ended func()) {
	add := func(n int) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if r.feed.followers[manager] += n; r.feed.followers[manager] == 0 {
			delete(r.feed.followers, manager)
		}
	}
	add(1)
	return func() { add(-1) }
}

// AllFollow says whether every other manager follows the reports. One that is down does not.
func (r *Reports) AllFollow(s *store.State, self string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range s.Managers {
		if name != self && r.feed.followers[name] == 0 {
			return false
		}
	}
	return true
}

// after returns the reports that became due after a place, the place of the last one, and what is closed when there are more.
func (r *Reports) after(place uint64) (due []named, last uint64, more <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, node := range r.feed.after(place) {
		due = append(due, named{node, r.newest[node]})
	}
	return due, r.feed.last, r.feed.more
}

// tell makes a message of the first reports, as many as it may have, and returns those that are left. A node that has
// left is left out: it reports to another manager, which tells of it.
func tell(due []named, now time.Time) (message *weirv1.FollowReportsResponse, left []named) {
	message = &weirv1.FollowReportsResponse{}
	size := 0
	for i, r := range due {
		if now.Sub(r.at) > leftAfter {
			continue
		}
		told := r.toProto(now)
		n := proto.Size(told)
		if n > maxToldOne {
			continue
		}
		if len(message.Reports) == maxTold || size > 0 && size+n > maxToldBytes {
			return message, due[i:]
		}
		size += n
		message.Reports = append(message.Reports, told)
	}
	return message, nil
}

func (r named) toProto(now time.Time) *weirv1.NodeReport {
	detail := r.detail
	if proto.Size(detail) > maxDetail {
		detail = r.withoutMost()
	}
	return &weirv1.NodeReport{
		Node: r.node, AgeMs: uint64(max(now.Sub(r.at), 0).Milliseconds()),
		Status: &weirv1.NodeStatus{
			LastSeen: timestamppb.New(r.Seen), Generation: uint64(r.Generation),
			Rejection: &weirv1.Rejection{Generation: uint64(r.Rejected), Reason: r.Reason},
			Mux:       detail.GetMux(), Host: detail.GetHost(), Switch: detail.GetSwitch(),
		},
	}
}

// followReports keeps what the nodes of another manager report, until ctx ends. What was told stays until something newer is
// known of the node, as in the store: who decides looks at how old it is.
func followReports(ctx context.Context, n *Service, other store.Manager) {
	client, err := n.Peer(other.Address)
	if err != nil {
		n.Log.Warn("can't follow the reports of another manager", "manager", other.Name, "err", err)
		return
	}
	rpc.Follow(ctx, n.Log, "reports of "+other.Name, //nolint:errcheck // it ends with ctx
		func(ctx context.Context) (*connect.ServerStreamForClient[weirv1.FollowReportsResponse], error) {
			return client.FollowReports(ctx, &weirv1.FollowReportsRequest{Name: n.Name})
		}, func(p *weirv1.FollowReportsResponse) error {
			n.Reports.take(n.Store.State(), p.GetReports(), n.Now())
			return nil
		})
}

// take keeps what another manager tells of nodes that are registered.
func (r *Reports) take(s *store.State, told []*weirv1.NodeReport, now time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range told[:min(len(told), maxTold)] {
		node, there := s.Nodes.Get(p.GetNode())
		if !there || !isOf(p.GetStatus(), node.Role) || proto.Size(p) > maxToldOne {
			continue
		}
		next, before := fromProto(p, now), r.others[node.Name]
		next.basis = s.Status.At(node.Name).Seen
		if before.at.After(next.at) {
			continue
		}
		if node.Role == model.RoleSwitch && next.Generation != before.Generation {
			r.Switches.Set()
		}
		r.others[node.Name] = next
	}
	if len(r.others)+len(r.newest) > 4*s.Nodes.Len() { // most are gone
		for _, of := range []map[string]report{r.others, r.newest} {
			maps.DeleteFunc(of, func(node string, _ report) bool { return !s.Nodes.Has(node) })
		}
		for node := range r.feed.at {
			if !s.Nodes.Has(node) {
				r.feed.remove(node)
			}
		}
	}
}

// isOf says whether a status is of a node of a role.
func isOf(p *weirv1.NodeStatus, role model.Role) bool {
	switch role {
	case model.RoleMux:
		return p.GetMux() != nil
	case model.RoleHost:
		return p.GetHost() != nil
	case model.RoleSwitch:
		return p.GetSwitch() != nil
	}
	return false
}

func fromProto(p *weirv1.NodeReport, now time.Time) report {
	status := p.GetStatus()
	age := time.Duration(min(p.GetAgeMs(), uint64(longestAge.Milliseconds()))) * time.Millisecond
	return report{
		at: now.Add(-age),
		Status: nodestatus.Status{
			Seen: status.GetLastSeen().AsTime(), Generation: model.Generation(status.GetGeneration()),
			Rejected: model.Generation(status.GetRejection().GetGeneration()), Reason: status.GetRejection().GetReason(),
		},
		detail: &weirv1.NodeStatus{Mux: status.GetMux(), Host: status.GetHost(), Switch: status.GetSwitch()},
	}
}
