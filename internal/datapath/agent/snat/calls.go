package snat

import (
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
)

// Flow names a workload's own connection as the workload sees it. Of ICMP the workload's port is the
// identifier, and the remote's 0.
type Flow struct {
	Protocol model.Protocol
	Workload netip.AddrPort
	Remote   netip.AddrPort
}

// String is "TCP 10.1.0.2:40000 → 198.51.100.7:443".
func (f Flow) String() string { return fmt.Sprintf("%s %s → %s", f.Protocol, f.Workload, f.Remote) }

// Key is that of the flow's row.
func (f Flow) Key() bpf.AgentSessionKey {
	return bpf.AgentSessionKey{
		Client: bpf.ToAddress(f.Remote.Addr()), Dip: bpf.ToAddress(f.Workload.Addr()),
		ClientPort: abi.Port(f.Remote.Port()), DipPort: abi.Port(f.Workload.Port()), Protocol: uint8(f.Protocol),
	}
}

func fromFlowKey(key bpf.AgentSessionKey) Flow {
	return Flow{
		Protocol: model.Protocol(key.Protocol),
		Workload: bpf.FromAddrPort(key.Dip, key.DipPort), Remote: bpf.FromAddrPort(key.Client, key.ClientPort),
	}
}

// calls are the programs that change tables of flows one flow at a time.
type calls struct {
	objects  *bpf.AgentObjects
	sweeping sync.Mutex // over a sweep; taken after the data plane's, where both are
}

// AssignPort gives a flow that waits a port, if its workload has one that is free towards the remote. The
// flow goes on waiting: OpenFlow ends that. Of one that does not wait any more it says ErrFlowGone.
func (t *calls) AssignPort(flow Flow) (external netip.AddrPort, found bool, err error) {
	c := bpf.AgentSnatFlowCall{Key: flow.Key()}
	if err := bpf.Call(t.objects.SnatAssign, &c); err != nil {
		return external, false, fmt.Errorf("give %s a port: %w", flow, err)
	}
	if c.Result == uint32(bpf.AgentSnatResultSNAT_GONE) {
		return external, false, ErrFlowGone
	}
	return bpf.FromAddrPort(c.Vip, c.VipPort), c.Result != 0, nil
}

// ErrFlowGone says that a flow has ended.
var ErrFlowGone = errors.New("the flow has ended")

// OpenFlow ends the wait of a flow of which so many packets have been sent. It says false if more wait:
// they are among the notices, or about to be. A flow that does not wait is open: its SYN came again, and
// found a port.
func (t *calls) OpenFlow(flow Flow, sent uint32) (opened bool, err error) {
	c := bpf.AgentSnatFlowCall{Key: flow.Key(), Seen: sent}
	if err := bpf.Call(t.objects.SnatOpen, &c); err != nil {
		return false, fmt.Errorf("open %s: %w", flow, err)
	}
	return c.Result != 0, nil
}

// EndQueuedFlow forgets a flow that waits. It says false of one that has been opened: that goes on.
func (t *calls) EndQueuedFlow(flow Flow) (ended bool, err error) {
	c := bpf.AgentSnatFlowCall{Key: flow.Key(), Queued: 1}
	if err := bpf.Call(t.objects.SnatClose, &c); err != nil {
		return false, fmt.Errorf("end %s: %w", flow, err)
	}
	return c.Result != 0, nil
}

// EndFlow forgets a flow, whether it waits or not.
func (t *calls) EndFlow(flow Flow) error {
	c := bpf.AgentSnatFlowCall{Key: flow.Key()}
	if err := bpf.Call(t.objects.SnatClose, &c); err != nil {
		return fmt.Errorf("end %s: %w", flow, err)
	}
	return nil
}

// ReleaseQueued tells that so many packets of a workload do not wait any more.
func (t *calls) ReleaseQueued(workload uint32, packets int) error {
	c := bpf.AgentSnatDequeueCall{Workload: workload, Packets: uint32(packets)}
	if err := bpf.Call(t.objects.SnatDequeue, &c); err != nil {
		return fmt.Errorf("end the wait of packets: %w", err)
	}
	return nil
}

// RefusePorts has packets of a workload that find no port dropped at once until a time on the clock of Now.
func (t *Translator) RefusePorts(dip netip.Addr, until time.Duration) error {
	t.mu.Lock()
	row := t.rows[dip]
	t.mu.Unlock()
	if row == nil {
		return nil
	}
	c := bpf.AgentSnatDequeueCall{Workload: row.number, Until: uint64(until)}
	if err := bpf.Call(t.objects.SnatRefuse, &c); err != nil {
		return fmt.Errorf("refuse ports to %s: %w", dip, err)
	}
	return nil
}

func (t *calls) own(workload, block uint32, ports uint64) error {
	c := bpf.AgentSnatOwnCall{Workload: workload, Block: block, Ports: ports}
	return bpf.Call(t.objects.SnatOwn, &c)
}

// endFlowsOn ends a workload's flows that use any of the ports.
func (t *calls) endFlowsOn(row *snatRow, ports map[uint32]uint64) error {
	var due []Flow
	err := eachFlow(t.objects.SnatFlows, func(key bpf.AgentSessionKey, flow bpf.AgentSnatFlow) {
		port := uint32(abi.Port(flow.VipPort))
		if flow.Workload == row.number && ports[port/portsOfBlock]>>(port%portsOfBlock)&1 != 0 {
			due = append(due, fromFlowKey(key))
		}
	})
	if err != nil {
		return err
	}
	for _, flow := range due {
		if err := t.EndFlow(flow); err != nil {
			return err
		}
	}
	return nil
}
