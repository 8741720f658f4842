package diagnosis

import (
	"context"
	"fmt"
	"slices"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/authz"
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/vnet"
	"github.com/weirlb/weir/internal/store"
)

// explainIn explains a flow in a virtual network, to a VIP that is attached to it.
func (m *Service) explainIn(ctx context.Context, s *store.State, network string, flow model.Flow) (*weirv1.ExplainResponse, error) {
	n, _ := s.Networks.Get(network)
	at, there := s.Networks.AttachedAt(network, flow.Destination.Addr())
	if !there {
		return nil, connect.NewError(connect.CodeNotFound, fmt.Errorf("no VIP has the address %s in network %.64q", flow.Destination.Addr(), network))
	}
	flow.VNI = n.VNI
	p, err := m.explainTo(s, s.VIPs.At(at.VIP), flow)
	if err == nil && authz.CanView(ctx, n.Tenant) { // where clients are is not the VIP's tenant's to know
		p.Steps = slices.Insert(p.Steps, 0, whereClientIs(s, n, flow))
	}
	return p, err
}

// whereClientIs tells of the client's host.
func whereClientIs(s *store.State, n vnet.Network, flow model.Flow) string {
	for _, w := range n.Workloads {
		if !slices.Contains(w.Addresses, flow.Source.Addr()) {
			continue
		}
		if s.Networks.Numbers.Of(w.Host) == 0 {
			return fmt.Sprintf("%s is workload %s, on host %s: that has no number, so muxes take nothing from it", flow.Source.Addr(), w.Name, w.Host)
		}
		return fmt.Sprintf("%s is workload %s, behind %s of host %s", flow.Source.Addr(), w.Name, w.Interface, w.Host)
	}
	return fmt.Sprintf("%s is no workload of network %s: no host of Weir sends its packets to muxes", flow.Source.Addr(), n.Name)
}

// stepInNetwork tells how the first segment goes on from the mux.
func stepInNetwork(s *store.State, step func(string, ...any), row desired.Row, b model.Backend, flow model.Flow) {
	if s.Networks.Numbers.Of(b.Host) == 0 {
		step("host %s has no number, so there is no key to make an FBT with: the muxes drop the flow", b.Host)
		return
	}
	step("the mux inserts an FBT, which tells where the client is, and sends the segment in VXLAN to %s", row.Tunnel)
	local := "an address of the overlay's localPrefixes"
	if prefix := s.Networks.Overlay.Local(flow.Source.Addr().Is4()); prefix.IsValid() {
		local = "an address of " + prefix.String()
	}
	step("the agent on %s rewrites %s to %s, and the client to %s", b.Host, flow.Destination, rewritten(row.Backend, flow), local)
}
