package resource

import (
	"cmp"
	"slices"

	"google.golang.org/protobuf/types/known/timestamppb"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/condition"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/resource/answering"
	"github.com/weirlb/weir/internal/store"
)

// vipWithStatus writes vip with all that is output only.
func (m *VIPs) vipWithStatus(s *store.State, vip model.VIP, a *answering.Muxes) *weirv1.VIP {
	p := compile.VIPMessage(vip)
	p.ResourceVersion = uint64(s.Written.At(vip.Name))
	if record := s.Records.At(vip.Name); !record.Created.IsZero() {
		p.CreateTime, p.UpdateTime, p.UpdatedBy = timestamppb.New(record.Created), timestamppb.New(record.Updated), record.By
	}
	for i, e := range vip.Endpoints {
		for j, status := range m.BackendStatuses(s, vip, e) {
			p.Endpoints[i].Backends[j].Status = status
		}
	}
	p.Status = vipStatus(s, condition.GenerationOf(s, vip))
	c := condition.Of(s, vip)
	p.Status.Conditions = condition.ToProto(s, vip, c)
	p.Status.Snat, p.Status.Switches = snatStatus(s, vip), condition.Places(s, vip)
	p.Status.BackendsHealthy, p.Status.BackendsTotal = c.Serving, c.Backends
	p.Status.NeighborMux = a.By(vip.Address)
	return p
}

// BackendStatuses are those of e's backends, in their order.
func (m *VIPs) BackendStatuses(s *store.State, vip model.VIP, e model.Endpoint) []*weirv1.BackendStatus {
	table := s.Tables.At(desired.Key(vip, e))
	slots, shares, draining := table.Slots(), table.Shares(), table.Draining()
	all := make([]*weirv1.BackendStatus, 0, len(e.Backends))
	for _, b := range e.Backends {
		slot := slots[b.AddrPort()]
		reported := desired.HealthOf(&s.State, vip, e, b)
		counted := m.Sessions.Of(vip, e, b)
		all = append(all, &weirv1.BackendStatus{
			Slot: uint32(slot), Health: string(reported.Health), Reason: reported.Reason,
			Buckets: uint32(shares[slot]), BucketsTotal: uint32(len(table.MuxBuckets())),
			BucketsDraining: uint32(len(draining[slot])), Sessions: counted.Sessions, SessionsWithoutCookie: counted.WithoutCookie,
		})
	}
	return all
}

// vipStatus says which muxes run the generation, of all registered. One that is away may have stopped.
func vipStatus(s *store.State, generation model.Generation) *weirv1.VIPStatus {
	status := &weirv1.VIPStatus{Generation: uint64(generation)}
	for node := range s.MuxNodes() {
		if s.Excluded.Has(node.Name) {
			continue // it announces nothing
		}
		status.MuxesTotal++
		switch runs, rejection := runsGeneration(s, node, generation); {
		case runs:
			status.MuxesProgrammed++
		case rejection != "":
			status.Rejections = append(status.Rejections, rejection)
		}
	}
	slices.SortFunc(status.Rejections, cmp.Compare)
	return status
}

// runsGeneration says whether a mux runs a generation, or why it refused to.
func runsGeneration(s *store.State, mux model.Node, generation model.Generation) (runs bool, rejection string) {
	said := s.Status.At(mux.Name)
	switch {
	case said.Generation >= generation && s.Streams.At(mux.Name):
		return true, ""
	case said.Rejected >= generation:
		return false, condition.Refusal(mux.Name)
	}
	return false, ""
}

// refusing are the muxes that may have refused a VIP: mostly none.
func refusing(s *store.State) []model.Node {
	var muxes []model.Node
	for mux := range s.MuxNodes() {
		if !s.Excluded.Has(mux.Name) && s.Status.At(mux.Name).Rejected > 0 {
			muxes = append(muxes, mux)
		}
	}
	return muxes
}

// rejectionsOf are why those of the muxes do not run the VIP that refused it.
func rejectionsOf(s *store.State, vip model.VIP, muxes []model.Node) []string {
	var all []string
	if len(muxes) == 0 {
		return nil
	}
	generation := condition.GenerationOf(s, vip)
	for _, mux := range muxes {
		if _, rejection := runsGeneration(s, mux, generation); rejection != "" {
			all = append(all, rejection)
		}
	}
	return all
}
