package diagnosis

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// nameParts adds the names that only the desired state has: of the VIP and of the backend.
func nameParts(s *store.State, p *weirv1.PacketExplanation) {
	key, err := wire.EndpointKeyFromProto(p.GetEndpoint())
	if p.GetEndpoint() == nil || err != nil {
		return
	}
	if vip, _, there := s.EndpointAt(key); there {
		p.Vip = vip.Name
	}
	if row, ok := s.Tables.At(key).Row(model.Slot(p.GetSlot())); ok {
		p.Backend, p.BackendPort = row.Backend.Addr().String(), uint32(row.Backend.Port())
	}
}

// packetSteps tells the decision, a line for each step.
func packetSteps(mux string, p *weirv1.PacketExplanation) (steps []string) {
	step := func(format string, args ...any) { steps = append(steps, fmt.Sprintf(format, args...)) }
	snat := p.GetLayer() == look.LayerSNAT || p.GetVerdict() == "drop_no_range"
	if e := p.GetEndpoint(); e == nil {
		step("the packet is for no endpoint that %s has", mux)
	} else if snat {
		step("no endpoint has %s port %d of %s, and workloads leave as that VIP", e.GetProtocol(), e.GetPort(), e.GetVip())
		step("%s", rangeStep(uint16(e.GetPort()), p))
	} else {
		step("the packet is for endpoint %s %s port %d, %s", e.GetProtocol(), e.GetVip(), e.GetPort(), vipOr(p.GetVip()))
	}
	switch p.GetLayer() {
	case "cookie":
		step("its TCP timestamp names slot %d: no hash is needed", p.GetSlot())
	case "flow table":
		step("the flow table remembers slot %d for it", p.GetSlot())
	case "bucket":
		if p.GetVerdict() == "forward_known" {
			step("a flow with its bit was found in the flow table lately, and its bucket has not moved: the table is not asked")
		}
		step("bucket %d of %d names slot %d", p.GetBucket(), p.GetBuckets(), p.GetSlot())
	}
	if n := p.GetPreviousSlot(); n != 0 {
		step("the bucket named slot %d before: the packet says so, and a host that does not know the connection hands it there", n)
	}
	if p.GetBackend() != "" {
		step("slot %d is backend %s port %d, behind tunnel %s", p.GetSlot(), p.GetBackend(), p.GetBackendPort(), p.GetTunnel())
	}
	step("verdict %s: the program would %s the packet", p.GetVerdict(), p.GetAction())
	return steps
}

// rangeStep tells whose the port is.
func rangeStep(port uint16, p *weirv1.PacketExplanation) string {
	r := model.RangeOf(port)
	switch {
	case p.GetWorkload() != "":
		return fmt.Sprintf("range %d, of the ports from %d on, is workload %s's, behind tunnel %s", r, r.First(), p.GetWorkload(), p.GetTunnel())
	case p.GetTunnel() != "":
		return fmt.Sprintf("range %d, of the ports from %d on, is of a workload behind tunnel %s", r, r.First(), p.GetTunnel())
	}
	return fmt.Sprintf("range %d, of the ports from %d on, is nobody's", r, r.First())
}

func vipOr(name string) string {
	if name == "" {
		return "of a VIP that the manager no longer has"
	}
	return "of VIP " + name
}
