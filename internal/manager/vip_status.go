package manager

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// vipWithStatus writes vip with all that is output only.
func (m *Manager) vipWithStatus(s *store.State, vip model.VIP) *weirv1.VIP {
	p := rpc.VIPToProto(vip)
	p.ResourceVersion = uint64(s.Written.At(vip.Name))
	if record := s.Records.At(vip.Name); !record.Created.IsZero() {
		p.CreateTime, p.UpdateTime, p.UpdatedBy = timestamppb.New(record.Created), timestamppb.New(record.Updated), record.By
	}
	for i, e := range vip.Endpoints {
		for j, status := range m.backendStatuses(s, vip, e) {
			p.Endpoints[i].Backends[j].Status = status
		}
	}
	p.Status = vipStatus(s, vip, generationOf(s, vip))
	c := conditionsOf(s, vip)
	p.Status.Conditions = conditionsToProto(s, vip, c)
	p.Status.Snat = snatStatus(s, vip)
	p.Status.BackendsHealthy, p.Status.BackendsTotal = c.serving, c.backends
	return p
}

// backendStatuses are those of e's backends, in their order.
func (m *Manager) backendStatuses(s *store.State, vip model.VIP, e model.Endpoint) []*weirv1.BackendStatus {
	table := s.Tables.At(desired.Key(vip, e))
	slots, shares, ceded := table.Slots(), table.Shares(), table.Ceded()
	all := make([]*weirv1.BackendStatus, 0, len(e.Backends))
	for _, b := range e.Backends {
		slot := slots[b.AddrPort()]
		health, reason := s.BackendHealth(vip, e, b)
		counted := m.sessions.of(vip, e, b)
		all = append(all, &weirv1.BackendStatus{
			Slot: uint32(slot), Health: string(health), Reason: reason,
			Buckets: uint32(shares[slot]), BucketsTotal: uint32(len(table.Open())),
			BucketsCeded: uint32(len(ceded[slot])), Sessions: counted.Sessions, SessionsWithoutCookie: counted.WithoutCookie,
		})
	}
	return all
}

// vipStatus says which muxes run the generation, of all registered. One that is away may have stopped.
func vipStatus(s *store.State, vip model.VIP, generation model.Generation) *weirv1.VIPStatus {
	status := &weirv1.VIPStatus{Generation: uint64(generation)}
	for node := range s.MuxNodes() {
		if s.Fenced.Has(node.Name) {
			continue // it announces nothing
		}
		status.MuxesTotal++
		said := s.Status.At(node.Name)
		switch reason := ignorant(s, vip, node); {
		case reason != "":
			status.Rejections = append(status.Rejections, node.Name+": "+reason)
		case said.Generation >= generation && s.Streams.At(node.Name):
			status.MuxesProgrammed++
		case said.Rejected >= generation:
			status.Rejections = append(status.Rejections, node.Name+": "+said.Reason)
		}
	}
	slices.SortFunc(status.Rejections, cmp.Compare)
	return status
}
