package diagnosis

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/desired/switchconfig"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// Explain says which backend a new flow gets, from the tables.
func (m *Service) Explain(ctx context.Context, r *weirv1.ExplainRequest) (*weirv1.ExplainResponse, error) {
	flow, err := wire.FlowFromProto(r)
	if err != nil {
		return nil, apierr.ToConnect(err)
	}
	state := m.Store.State()
	if r.GetNetwork() != "" {
		return m.explainIn(ctx, state, r.GetNetwork(), flow)
	}
	vip, there := state.VIPAt(flow.Destination.Addr())
	if !there {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no VIP has the address %s", flow.Destination.Addr()))
	}
	response, err := m.explainTo(state, vip, flow)
	if err == nil && r.GetMultipathToken() != 0 {
		m.explainJoin(ctx, state, vip, flow, multipath.Token(r.GetMultipathToken()), response)
	}
	return response, err
}

// explainTo explains a flow to a VIP.
func (m *Service) explainTo(state *store.State, vip model.VIP, flow model.Flow) (*weirv1.ExplainResponse, error) {
	if e, found := endpointOf(vip, flow); found {
		return m.explain(state, vip, e, flow), nil
	}
	if vip.SNAT != nil && flow.VNI == 0 {
		return explainAnswer(state, vip, flow), nil
	}
	what := "pass the flow to their own kernel"
	if flow.VNI != 0 {
		what = "drop the flow"
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf(
		"VIP %s has no endpoint %s %d: muxes %s", vip.Name, flow.Protocol, flow.Destination.Port(), what))
}

// endpointOf is the endpoint that serves the flow.
func endpointOf(vip model.VIP, flow model.Flow) (model.Endpoint, bool) {
	for _, port := range []uint16{flow.Destination.Port(), model.AllPorts} {
		for _, e := range vip.Endpoints {
			if e.Protocol == flow.Protocol && e.Port == port {
				return e, true
			}
		}
	}
	return model.Endpoint{}, false
}

func (m *Service) explain(s *store.State, vip model.VIP, e model.Endpoint, flow model.Flow) *weirv1.ExplainResponse {
	table := s.Tables.At(desired.Key(vip, e))
	p := &weirv1.ExplainResponse{
		Vip: vip.Name, Tenant: vip.Tenant, Generation: uint64(s.Generation),
		Hash: s.HashKey.Sum(hashed(e, flow)), Buckets: uint32(len(table.MuxBuckets())),
	}
	step := func(format string, args ...any) { p.Steps = append(p.Steps, fmt.Sprintf(format, args...)) }
	step("%s goes to endpoint %s of VIP %s (tenant %s)", flow, desired.Key(vip, e), vip.Name, vip.Tenant)
	stepInHardware(step, s, vip)
	if !e.Takes(flow.Source.Addr(), s.PrefixLists.Prefixes) {
		step("the endpoint does not take %s: the muxes drop the flow, by %s", flow.Source.Addr(), whyRefused(s, e, flow.Source.Addr()))
		return p
	}
	switch {
	case flow.VNI != 0:
		step("muxes see the first segment of a connection, and the others go from host to host; this explains a new one")
	case table.Cookies == model.CookiesOn || table.Cookies == model.CookiesSettling:
		step("a connection that is open keeps its backend by the cookie in its TCP timestamps, without any by the muxes' flow table; this explains a new one")
	default:
		step("a connection that is open keeps its backend by the muxes' flow table; this explains a new one")
	}
	m.stepAnswered(step, s, vip, desired.Key(vip, e))
	if p.Buckets == 0 {
		step("%s: the muxes drop the flow", whyEmpty(e))
		return p
	}
	p.Bucket = p.Hash & (p.Buckets - 1)
	slot := table.Buckets[p.Bucket]
	p.Slot = uint32(slot)
	what := "five-tuple"
	if e.Affinity == model.AffinityClient {
		what = "client's address"
	}
	step("the keyed hash of the %s is 0x%08x; its low bits name bucket %d of %d", what, p.Hash, p.Bucket, p.Buckets)
	step("bucket %d names slot %d", p.Bucket, slot)
	for _, move := range table.Moves {
		if move.Bucket == p.Bucket {
			step("until %s it named slot %d: a connection from then that carries no cookie is handed on to that by its host", move.Since.UTC().Format(time.RFC3339), move.From)
		}
	}
	m.stepPassedOver(step, s, vip, e)
	row, _ := table.Row(slot)
	for i, b := range e.Backends {
		if b.AddrPort() != row.Backend {
			continue
		}
		p.Backend = compile.BackendMessage(b)
		p.Backend.Status = m.BackendStatuses(s, vip, e)[i]
		step("slot %d is backend %s on host %s (weight %d, %s, %d of %d buckets)", slot, row.Backend, b.Host, b.Weight,
			p.Backend.Status.Health, p.Backend.Status.Buckets, p.Buckets)
		if flow.VNI != 0 {
			stepInNetwork(s, step, row, b, flow)
			continue
		}
		step("the mux sends the packet in an outer header to %s; the agent on %s rewrites %s to %s",
			row.Tunnel, b.Host, flow.Destination, rewritten(row.Backend, flow))
		stepThroughSwitch(step, s, vip, flow, table.Cookies, row)
	}
	return p
}

// stepPassedOver tells of the backends that new connections do not come to, and why.
func (m *Service) stepPassedOver(step func(format string, args ...any), s *store.State, vip model.VIP, e model.Endpoint) {
	const most = 5
	n := 0
	for _, b := range e.Backends {
		said := desired.HealthOf(&s.State, vip, e, b)
		if said.Health != model.HealthUnhealthy && said.Health != model.HealthPending {
			continue
		}
		if n++; n <= most {
			step("backend %s on host %s is %s: %s", b.AddrPort(), b.Host, said.Health, said.Reason)
		}
	}
	if n > most {
		step("and %d more backends are unhealthy, or their hosts have not joined", n-most)
	}
}

// serving are the switches that serve a VIP, in order.
func serving(s *store.State, vip model.VIP) (names []string) {
	for name, place := range s.Placements.At(vip.Address).Places {
		if place.Phase.Announced() && !place.Unrouted {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// stepInHardware tells of switches that serve the VIP, or why those that are to do not.
func stepInHardware(step func(format string, args ...any), s *store.State, vip model.VIP) {
	names := serving(s, vip)
	if len(names) > 0 {
		step("%s serves the VIP: a packet arrives at any of its hosts, and that host hands it to the backend that is chosen below, but for connections whose backend it is itself",
			strings.Join(names, ", "))
	}
	if vip.Hardware == nil || len(names) > 0 {
		return
	}
	for _, c := range condition.ToProto(s, vip, condition.Of(s, vip)) {
		if c.GetType() == "hardware" {
			step("no switch serves the VIP: %s: %s", c.GetReason(), c.GetMessage())
		}
	}
}

// stepThroughSwitch tells how a packet of the flow comes to its backend when a switch brings it.
func stepThroughSwitch(step func(format string, args ...any), s *store.State, vip model.VIP, flow model.Flow, cookies model.Cookies, row desired.Row) {
	names := serving(s, vip)
	if len(names) == 0 {
		return
	}
	var own, all uint64
	group := switchconfig.GroupOf(s.State, vip)
	for _, share := range group {
		if all += share.Weight; share.Tunnel == row.Tunnel {
			own = share.Weight
		}
	}
	step("by a switch it comes to one of %d tunnels, which a hash of the switch's own chooses: %.0f %% of flows come to %s, others take one hop more, from host to host",
		len(group), 100*float64(own)/float64(max(all, 1)), row.Tunnel)
	switch {
	case flow.Protocol == model.TCP && cookies == model.CookiesOn:
		step("a new connection with TCP timestamps stays at the tunnel that its SYN came to, if the workload there answers with timestamps: its cookie names that backend, and takes no more hops")
	case flow.Protocol == model.UDP && vip.Hardware != nil && vip.Hardware.UDP == model.UDPLocal:
		step("a flow of UDP stays at the tunnel that it came to, as hardware.udp is local")
	}
}

// stepAnswered tells of muxes that answer the endpoint's SYNs with cookies just now.
func (m *Service) stepAnswered(step func(format string, args ...any), s *store.State, vip model.VIP, endpoint model.EndpointKey) {
	for _, a := range condition.AnsweredBy(s, m.Reported, vip) {
		if a.Endpoint == endpoint {
			step("%s; the backend gets the connection by the client's first acknowledgement", a)
		}
	}
}

// hashed is what of the flow chooses the bucket.
func hashed(e model.Endpoint, flow model.Flow) model.Flow {
	if e.Affinity == model.AffinityClient {
		flow.Source = netip.AddrPortFrom(flow.Source.Addr(), 0)
		flow.Destination = netip.AddrPortFrom(flow.Destination.Addr(), e.Port)
	}
	return flow
}

// rewritten is the destination that the backend sees: it may be of all ports.
func rewritten(backend netip.AddrPort, flow model.Flow) netip.AddrPort {
	if backend.Port() == model.AllPorts {
		return netip.AddrPortFrom(backend.Addr(), flow.Destination.Port())
	}
	return backend
}

// whyRefused names the list that keeps the source out.
func whyRefused(s *store.State, e model.Endpoint, source netip.Addr) string {
	switch denied := s.PrefixLists.Denies(e, source); {
	case denied != "":
		return denied
	case len(e.AllowLists) > 0:
		return "allow and " + strings.Join(e.AllowLists, ", ") + ", which have it not"
	}
	return "allow, which has it not"
}

// whyEmpty says why an endpoint has no buckets.
func whyEmpty(e model.Endpoint) string {
	weighted := 0
	for _, b := range e.Backends {
		if b.Weight > 0 {
			weighted++
		}
	}
	switch {
	case len(e.Backends) == 0:
		return "the endpoint has no backends"
	case weighted == 0:
		return "all backends of the endpoint have weight 0"
	}
	return "no backend of the endpoint is healthy, and allUnhealthy is refuse"
}
