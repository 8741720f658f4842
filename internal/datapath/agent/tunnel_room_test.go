package agent

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Rules and workloads that need more tunnel addresses than there is room for change nothing: what leaves goes on leaving.
func TestTunnelsThatDoNotFitChangeNothing(t *testing.T) {
	const room = 16
	r := newRig(t, func(spec *ebpf.CollectionSpec) { spec.Maps["tunnels"].MaxEntries = room })
	workload := func(i int) model.HostSNAT {
		address := netip.AddrFrom4([4]byte{10, 9, 0, byte(i)})
		return model.HostSNAT{
			Key: model.SNATKey{VIP: netip.MustParseAddr(crawler4), Address: address}, Tunnel: address,
			Ranges: []model.Range{firstRange + model.Range(i)}, Exhausted: model.ExhaustedReject, MaxPorts: 1024,
		}
	}
	leaving := workload(0)
	leaving.Key.Address, leaving.Tunnel = netip.MustParseAddr(native4), netip.MustParseAddr(native4)
	wanted := []model.HostSNAT{leaving}
	if err := errors.Join(r.SetSNAT(wanted, nil), r.changeSettings(func(s *bpf.AgentAgentSettings) { s.SnatFlows = 1 << 10 })); err != nil {
		t.Fatal(err)
	}
	before, err := abi.ReadTable[bpf.AgentAddress, uint8](r.objects.Tunnels)
	if err != nil {
		t.Fatal(err)
	}
	var rules []model.HostBackend
	for i := range room {
		wanted = append(wanted, workload(1+i))
		rules = append(rules, rule(model.TCP, vip4, wanted[1+i].Tunnel.String(), native4, native6))
	}
	without := wanted[1:]
	if err := r.SetSNAT(without, nil); err == nil {
		t.Error("workloads with more tunnels than fit were taken, without the one that leaves")
	}
	if err := r.Apply(rules, nil); err == nil {
		t.Error("rules with more tunnels than fit were taken")
	}
	if after, err := abi.ReadTable[bpf.AgentAddress, uint8](r.objects.Tunnels); err != nil || len(after) != len(before) {
		t.Errorf("the host decapsulates for %d addresses after what was refused, before for %d, error %v", len(after), len(before), err)
	}
	r.leaves(native4, pkt.TCP(native4+":40000", "198.51.100.7:443", pkt.SYN))
	if err := r.SetSNAT(wanted[:3], nil); err != nil {
		t.Errorf("what fits is refused then: %v", err)
	}
}
