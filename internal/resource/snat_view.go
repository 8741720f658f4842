package resource

import (
	"context"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/apierr"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// GetSNAT says who leaves as a VIP, with which ports, and how they use them.
func (m *VIPs) GetSNAT(ctx context.Context, r *weirv1.GetSNATRequest) (*weirv1.GetSNATResponse, error) {
	s := m.Store.State()
	vip, there := s.VIPs.Get(r.GetName())
	if !there {
		return nil, apierr.NotFound("VIP", r.GetName(), s.VIPs, authz.CanViewVIP(ctx))
	}
	response := &weirv1.GetSNATResponse{Name: vip.Name, Address: vip.Address.String(), Status: snatStatus(s, vip)}
	uses := map[string]map[model.SNATKey]*weirv1.SNATUse{}
	listed := map[netip.Addr]bool{}
	if vip.SNAT != nil {
		for _, w := range vip.SNAT.Workloads {
			key := model.SNATKey{VIP: vip.Address, Address: w.Address}
			if uses[w.Host] == nil {
				uses[w.Host] = m.Uses(s, w.Host)
			}
			p := workloadPorts(key, s.Ports.At(key))
			p.Host, p.Tunnel, p.Use = w.Host, w.TunnelAddress().String(), uses[w.Host][key]
			response.Workloads = append(response.Workloads, p)
			listed[w.Address] = true
		}
	}
	for key, h := range s.Ports.Of(vip.Address) {
		if listed[key.Address] || h.Empty() {
			continue
		}
		p := workloadPorts(key, h)
		p.Host, p.Removed, p.Block = h.Host, true, key.IsBlock()
		if w, there := s.Ports.Client(key); there { // a block in use
			if uses[w.Host] == nil {
				uses[w.Host] = m.Uses(s, w.Host)
			}
			p.Host, p.Tunnel, p.Removed, p.Use = w.Host, w.TunnelAddress().String(), false, uses[w.Host][key]
		}
		response.Workloads = append(response.Workloads, p)
	}
	return response, nil
}

func workloadPorts(key model.SNATKey, h snatport.Allocation) *weirv1.WorkloadPorts {
	p := &weirv1.WorkloadPorts{
		Address: key.Address.String(), Ranges: wire.RangesToProto(h.Ranges), Reclaim: wire.RangesToProto(h.Reclaim),
	}
	for _, r := range h.Quarantined {
		p.Quarantined = append(p.Quarantined, wire.RangesToProto(r.Ranges)...)
	}
	return p
}

// snatStatus sums up how the ports of a VIP are given out; nil if nobody leaves as it.
func snatStatus(s *store.State, vip model.VIP) *weirv1.SNATStatus {
	if vip.SNAT == nil {
		return nil
	}
	held, quarantined := 0, 0
	for _, h := range s.Ports.Of(vip.Address) {
		held += len(h.Ranges)
		for _, r := range h.Quarantined {
			quarantined += len(r.Ranges)
		}
	}
	return &weirv1.SNATStatus{
		Workloads:  uint32(len(vip.SNAT.Workloads)),
		PortsTotal: uint32(snat.FreeCount(nil, snat.Blocked(vip)) * model.RangePorts),
		PortsHeld:  uint32(held * model.RangePorts), PortsQuarantined: uint32(quarantined * model.RangePorts),
	}
}
