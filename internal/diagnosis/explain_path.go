package diagnosis

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// maxHosts bounds the hosts of a path: one that steers, a home of tokens, the one that has the connection before, and one more.
const maxHosts = 4

// ExplainPath runs a packet through the programs of a mux, and what leaves through those of the hosts that it comes to.
func (m *Service) ExplainPath(ctx context.Context, r *weirv1.ExplainPathRequest) (*weirv1.ExplainPathResponse, error) {
	state := m.Store.State()
	frame, err := frameOf(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	mux := r.GetMux()
	if mux == "" {
		if mux, err = anyMux(state); err != nil {
			return nil, err
		}
	}
	first, err := m.explainAt(ctx, state, mux, frame)
	if err != nil {
		return nil, err
	}
	path := &weirv1.ExplainPathResponse{Hops: []*weirv1.PathHop{{Node: mux, Role: string(model.RoleMux), Explanation: first}}}
	passed := map[string]bool{}
	for at := first; at.GetAction() == "transmit" && len(path.Hops) <= maxHosts; {
		host := hostBehind(state, first.GetEndpoint(), at.GetFrame())
		if host == "" || passed[host] {
			break
		}
		passed[host] = true
		hop := &weirv1.PathHop{Node: host, Role: string(model.RoleHost)}
		path.Hops = append(path.Hops, hop)
		if hop.Explanation, err = m.explainAt(ctx, state, host, at.GetFrame()); err != nil {
			hop.Error = reasonOf(err)
			break
		}
		at = hop.Explanation
	}
	return path, nil
}

// frameOf is the frame of a request, or the first packet of its flow.
func frameOf(r *weirv1.ExplainPathRequest) ([]byte, error) {
	of := r.GetFlow()
	switch {
	case of == nil:
		return r.GetFrame(), nil
	case len(r.GetFrame()) > 0:
		return nil, &model.FieldError{Field: "flow", Reason: "is there beside a frame: leave one of them out"}
	case of.GetNetwork() != "" || of.GetMultipathToken() != 0:
		return nil, &model.FieldError{Field: "flow", Reason: "must be in no network, and no subflow: Explain tells of such flows"}
	}
	flow, err := wire.FlowFromProto(of)
	if err != nil {
		return nil, compile.Below("flow", err)
	}
	if flow.Protocol == model.UDP {
		return pkt.UDP(flow.Source.String(), flow.Destination.String(), pkt.Payload(nil)).Frame(), nil
	}
	return pkt.TCP(flow.Source.String(), flow.Destination.String(), pkt.SYN, pkt.Payload(nil)).Frame(), nil
}

// anyMux is a mux that is connected: all have the same tables.
func anyMux(s *store.State) (string, error) {
	for mux := range s.MuxNodes() {
		if s.Streams.At(mux.Name) {
			return mux.Name, nil
		}
	}
	return "", connect.NewError(connect.CodeFailedPrecondition, errors.New("no mux is connected: start one, or name one that is"))
}

// explainAt asks a node, by the manager that holds its stream.
func (m *Service) explainAt(ctx context.Context, s *store.State, node string, frame []byte) (*weirv1.PacketExplanation, error) {
	r := &weirv1.ExplainPacketRequest{Mux: node, Frame: frame}
	if s.Nodes.At(node).Role == model.RoleHost && !m.tasks.has(node) && !isForwarded(ctx) {
		return m.explainElsewhere(ctx, s, r)
	}
	client, onBehalf, err := m.ofHolder(ctx, s, node)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	if client == nil {
		return m.explainHere(ctx, s, r)
	}
	explained, err := client.ExplainPacket(onBehalf, r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	return explained.GetExplanation(), nil
}

// explainElsewhere asks the other managers: which one has a host's stream they do not tell each other.
func (m *Service) explainElsewhere(ctx context.Context, s *store.State, r *weirv1.ExplainPacketRequest) (*weirv1.PacketExplanation, error) {
	failed := connect.NewError(connect.CodeFailedPrecondition, fmt.Errorf("host %s is not connected", r.GetMux()))
	for _, name := range slices.Sorted(maps.Keys(s.Managers)) {
		if name == m.Name || s.Managers[name].Address == "" {
			continue
		}
		client, onBehalf, err := m.onBehalf(ctx, s.Managers[name].Address)
		if err != nil {
			return nil, apierr.ToConnect(err)
		}
		explained, err := client.ExplainPacket(onBehalf, r)
		if err == nil {
			return explained.GetExplanation(), nil
		}
		var refused *connect.Error
		if errors.As(apierr.ToConnect(err), &refused) && refused.Code() != connect.CodeFailedPrecondition { // it is the one, or it is away
			failed = refused
		}
	}
	return nil, failed
}

// explainHere asks a node whose stream ends at this manager.
func (m *Service) explainHere(ctx context.Context, s *store.State, r *weirv1.ExplainPacketRequest) (*weirv1.PacketExplanation, error) {
	if err := wire.CheckExplainFrame(r.GetFrame()); err != nil {
		return nil, apierr.ToConnect(err)
	}
	role := model.RoleMux
	if node, there := s.Nodes.Get(r.GetMux()); there && node.Role == model.RoleHost {
		role = model.RoleHost
	}
	asked, done, err := m.tasks.ask(s, r.GetMux(), role, &weirv1.NodeTask{
		Task: &weirv1.NodeTask_Explain{Explain: &weirv1.ExplainPacketTask{Frame: r.GetFrame()}},
	})
	if err != nil {
		return nil, err
	}
	defer done()
	answer, err := asked.next(ctx, time.After(taskTime))
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	p := answer.GetExplanation()
	if p == nil {
		return nil, apierr.ToConnect(fmt.Errorf("%s %s answered nothing", role, r.GetMux()))
	}
	if role == model.RoleHost {
		p.Steps = hostSteps(r.GetMux(), p)
		return p, nil
	}
	nameParts(m.Store.State(), p)
	p.Steps = packetSteps(r.GetMux(), p)
	return p, nil
}

// hostSteps tells what a host makes of a packet, a line for each step.
func hostSteps(host string, p *weirv1.PacketExplanation) (steps []string) {
	step := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	if p.GetAction() != look.ActionDeliver {
		step("verdict %s: the program of %s would %s the packet", p.GetVerdict(), host, p.GetAction())
		return steps
	}
	behind := "its own stack"
	if name := p.GetInterface(); name != "" {
		behind = "interface " + name
	}
	step("verdict %s: %s takes off the outer header, and the workload %s gets the packet by %s", p.GetVerdict(), host, p.GetWorkload(), behind)
	switch reply := p.GetReply(); {
	case reply == nil:
		step("the workload owes no answer")
	case reply.GetAction() == "transmit":
		step("verdict %s: its answer leaves as the VIP's, straight to the client", reply.GetVerdict())
	default:
		step("verdict %s: the program would %s its answer", reply.GetVerdict(), reply.GetAction())
	}
	return steps
}

// hostBehind is the host that an encapsulated frame goes to, of those that have a part of the endpoint's VIP; empty: none.
func hostBehind(s *store.State, endpoint *weirv1.EndpointKey, frame []byte) string {
	tunnel, ok := outerDestination(frame)
	key, err := wire.EndpointKeyFromProto(endpoint)
	if !ok || endpoint == nil || err != nil {
		return ""
	}
	vip, there := s.VIPAt(key.VIP)
	if !there {
		return ""
	}
	for _, e := range vip.Endpoints {
		for _, b := range e.Backends {
			if b.TunnelAddress() == tunnel {
				return b.Host
			}
		}
	}
	if vip.SNAT != nil {
		for _, w := range vip.SNAT.Workloads {
			if w.TunnelAddress() == tunnel {
				return w.Host
			}
		}
	}
	return ""
}

// outerDestination is where an untagged frame's IP header says that it goes.
func outerDestination(frame []byte) (netip.Addr, bool) {
	const ethernet, v4, v6 = 14, 20, 40
	switch {
	case len(frame) >= ethernet+v4 && binary.BigEndian.Uint16(frame[12:]) == 0x0800:
		return netip.AddrFrom4([4]byte(frame[ethernet+16:])), true
	case len(frame) >= ethernet+v6 && binary.BigEndian.Uint16(frame[12:]) == 0x86dd:
		return netip.AddrFrom16([16]byte(frame[ethernet+24:])), true
	}
	return netip.Addr{}, false
}
