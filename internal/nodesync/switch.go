package nodesync

import (
	"context"
	"net/netip"
	"strings"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/hardware"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/wire"
)

// SyncSwitch registers a switch and streams to it the entries that it holds: its own, and nothing else of the cluster.
func (n *Service) SyncSwitch(
	ctx context.Context, r *weirv1.SyncSwitchRequest, stream *connect.ServerStream[weirv1.SyncSwitchResponse],
) error {
	node, err := wire.SwitchFromProto(r)
	if err != nil {
		return apierr.ToConnect(err)
	}
	if err := n.admitNode(ctx, model.RoleSwitch, r); err != nil {
		return err
	}
	registered, closed, err := n.openNode(ctx, node)
	if err != nil {
		return apierr.ToConnect(err)
	}
	defer closed()
	feed, ended := n.Switches.Open(node.Name)
	defer ended()
	return n.stream(ctx, feed.Wake(), nil, nil, func() (bool, error) { // nobody asks a switch for anything
		update, due := feed.Next(max(registered, n.Replica.SeenGeneration(r)))
		if !due {
			return false, nil
		}
		message := update.Message()
		message.TraceParents = n.traceSending(node, update.Generation-1, update.Generation)
		message.Cluster, message.Epoch = n.Replica.Stamp()
		return true, stream.Send(message)
	})
}

// ReportSwitch takes the report of a switch: the generation that it runs, its tables, and what it refused.
func (n *Service) ReportSwitch(ctx context.Context, r *weirv1.ReportSwitchRequest) (*weirv1.ReportSwitchResponse, error) {
	n.Replica.VerifyLeadership(ctx, r.GetEpoch())
	status := r.GetStatus()
	if status == nil {
		return nil, apierr.ToConnect(&model.FieldError{Field: "status", Reason: "is required"})
	}
	status.Refused = r.GetRefused()[:min(len(r.GetRefused()), maxRefused)]
	status.RefusedMore = len(r.GetRefused()) > maxRefused
	status.UnroutedMore = status.GetUnroutedMore() || len(status.GetUnrouted()) > hardware.MaxUnrouted
	status.Unrouted = keptAddresses(status.GetUnrouted())
	status.Ports = keptPorts(status.GetPorts())
	err := n.takeReport(model.RoleSwitch, r.GetName(), r.GetGeneration(), nil, &weirv1.NodeStatus{Switch: status}, nodestatus.SessionCount{})
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return &weirv1.ReportSwitchResponse{}, nil
}

// keptAddresses are those of a list that are addresses.
func keptAddresses(texts []string) (kept []string) {
	for _, text := range texts[:min(len(texts), hardware.MaxUnrouted)] {
		if a, err := netip.ParseAddr(text); err == nil && a.Zone() == "" {
			kept = append(kept, a.String())
		}
	}
	return kept
}

// Bounds of a switch's ports that are kept: texts may be long, and all are stored.
const (
	maxPorts    = 512
	maxPortName = 32       // bytes
	maxPortText = 64 << 10 // bytes of all
)

// keptPorts are the ports that are kept, without what a terminal obeys: neighbours of a switch choose what is said there.
// Each neighbour has the same room, so that no other one is forgotten for it.
func keptPorts(ports []*weirv1.SwitchPort) []*weirv1.SwitchPort {
	ports = ports[:min(len(ports), maxPorts)]
	room := (maxPortText/max(len(ports), 1) - maxPortName) / 2
	for _, p := range ports {
		p.Name = portText(p.GetName(), maxPortName)
		p.Neighbour, p.NeighbourPort = portText(p.GetNeighbour(), room), portText(p.GetNeighbourPort(), room)
	}
	return ports
}

func portText(s string, most int) string {
	s = events.CutMessage(s)
	return strings.ToValidUTF8(s[:min(len(s), most)], "")
}

// maxRefused bounds the refusals of a switch that are kept. While there are more, nothing is known of VIPs that are not among
// them.
const maxRefused = 64
