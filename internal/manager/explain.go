package manager

import (
	"context"
	"fmt"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// Explain says which backend a new flow gets, from the tables.
func (m *Manager) Explain(_ context.Context, r *weirv1.ExplainRequest) (*weirv1.ExplainResponse, error) {
	flow, err := rpc.FlowFromProto(r)
	if err != nil {
		return nil, refusal(err)
	}
	state := m.store.State()
	for _, vip := range state.SortedVIPs() {
		if vip.Address != flow.Destination.Addr() {
			continue
		}
		for _, e := range vip.Endpoints {
			if desired.Key(vip, e) == flow.Endpoint() {
				return m.explain(state, vip, e, flow), nil
			}
		}
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf(
			"VIP %s has no endpoint %s %d: muxes pass the flow to their own kernel", vip.Name, flow.Protocol, flow.Destination.Port()))
	}
	return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no VIP has the address %s", flow.Destination.Addr()))
}

func (m *Manager) explain(s *store.State, vip model.VIP, e model.Endpoint, flow model.Flow) *weirv1.ExplainResponse {
	table := s.Tables[desired.Key(vip, e)]
	p := &weirv1.ExplainResponse{
		Vip: vip.Name, Tenant: vip.Tenant, Generation: uint64(s.Generation),
		Hash: s.HashKey.Sum(flow), Buckets: uint32(len(table.Buckets)),
	}
	step := func(format string, args ...any) { p.Steps = append(p.Steps, fmt.Sprintf(format, args...)) }
	step("%s goes to endpoint %s of VIP %s (tenant %s)", flow, flow.Endpoint(), vip.Name, vip.Tenant)
	step("the muxes' flow table is asked first: a connection that it knows keeps its backend; this explains a new one")
	if p.Buckets == 0 {
		step("%s: the muxes drop the flow", whyEmpty(e))
		return p
	}
	p.Bucket = p.Hash & (p.Buckets - 1)
	slot := table.Buckets[p.Bucket]
	p.Slot = uint32(slot)
	step("the keyed hash of the five-tuple is 0x%08x; its low bits name bucket %d of %d", p.Hash, p.Bucket, p.Buckets)
	step("bucket %d names slot %d", p.Bucket, slot)
	row, _ := table.Row(slot)
	for i, b := range e.Backends {
		if b.AddrPort() != row.Backend {
			continue
		}
		p.Backend = rpc.BackendToProto(b)
		p.Backend.Status = m.backendStatuses(s, vip, e)[i]
		step("slot %d is backend %s on host %s (weight %d, %s, %d of %d buckets)", slot, row.Backend, b.Host, b.Weight,
			p.Backend.Status.Health, p.Backend.Status.Buckets, p.Buckets)
		step("the mux sends the packet in an outer header to %s; the agent on %s rewrites %s to %s",
			row.Tunnel, b.Host, flow.Destination, row.Backend)
	}
	return p
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
