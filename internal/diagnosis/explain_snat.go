package diagnosis

import (
	"fmt"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
)

// explainAnswer explains a packet to a port that no endpoint has, of a VIP that workloads leave as: muxes take it for an
// answer to one of them.
func explainAnswer(s *store.State, vip model.VIP, flow model.Flow) *weirv1.ExplainResponse {
	port := flow.Destination.Port()
	r := model.RangeOf(port)
	p := &weirv1.ExplainResponse{Vip: vip.Name, Tenant: vip.Tenant, Generation: uint64(s.Generation)}
	step := func(format string, args ...any) { p.Steps = append(p.Steps, fmt.Sprintf(format, args...)) }
	step("VIP %s (tenant %s) has no endpoint %s %d, and workloads leave as it: the packet is taken for an answer to one of them",
		vip.Name, vip.Tenant, flow.Protocol, port)
	for key, held := range s.Ports.Of(vip.Address) {
		if !slices.Contains(held.Ranges, r) {
			continue
		}
		w, there := s.Ports.Client(key)
		if !there {
			continue
		}
		if key.IsBlock() {
			step("range %d, of the ports from %d on, is in the port block of host %s, whose agent knows which workload uses it", r, r.First(), w.Host)
			step("the mux sends the packet in an outer header to %s (forward_snat); the agent on %s delivers it to the workload that has a connection from this port that it belongs to",
				w.TunnelAddress(), w.Host)
			p.Backend = &weirv1.Backend{Host: w.Host}
			return p
		}
		step("range %d, of the ports from %d on, is workload %s's", r, r.First(), key.Address)
		step("the mux sends the packet in an outer header to %s (forward_snat); the agent on %s delivers it if the workload has a connection from this port that it belongs to",
			w.TunnelAddress(), w.Host)
		p.Backend = &weirv1.Backend{Host: w.Host, Address: key.Address.String()}
		return p
	}
	step("range %d, of the ports from %d on, is nobody's: the muxes drop the packet (drop_no_range)", r, r.First())
	return p
}
