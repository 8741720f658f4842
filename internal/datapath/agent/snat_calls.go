package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

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

func (f Flow) key() bpf.AgentSessionKey {
	return bpf.AgentSessionKey{
		Client: toAddress(f.Remote.Addr()), Dip: toAddress(f.Workload.Addr()),
		ClientPort: abi.Port(f.Remote.Port()), DipPort: abi.Port(f.Workload.Port()), Protocol: uint8(f.Protocol),
	}
}

func fromFlowKey(key bpf.AgentSessionKey) Flow {
	return Flow{
		Protocol: model.Protocol(key.Protocol),
		Workload: fromAddrPort(key.Dip, key.DipPort), Remote: fromAddrPort(key.Client, key.ClientPort),
	}
}

// call runs a program of bpf/agent/snat/calls.h: argument and result in one.
func call[T any](program *ebpf.Program, argument *T) error {
	buffer := make([]byte, binary.Size(argument))
	if _, err := binary.Encode(buffer, binary.NativeEndian, argument); err != nil {
		return err
	}
	result := bytes.Clone(buffer)
	if _, err := program.Run(&ebpf.RunOptions{Context: buffer, ContextOut: result}); err != nil {
		return err
	}
	_, err := binary.Decode(result, binary.NativeEndian, argument)
	return err
}

// AssignPort gives a flow that waits a port, if its workload has one that is free towards the remote. The
// flow goes on waiting: OpenFlow ends that. Of one that does not wait any more it says ErrFlowGone.
func (d *Datapath) AssignPort(flow Flow) (external netip.AddrPort, found bool, err error) {
	c := bpf.AgentSnatFlowCall{Key: flow.key()}
	if err := call(d.objects.SnatAssign, &c); err != nil {
		return external, false, fmt.Errorf("give %s a port: %w", flow, err)
	}
	if c.Result == uint32(bpf.AgentSnatResultSNAT_GONE) {
		return external, false, ErrFlowGone
	}
	return fromAddrPort(c.Vip, c.VipPort), c.Result != 0, nil
}

// ErrFlowGone says that a flow has ended.
var ErrFlowGone = errors.New("the flow has ended")

// OpenFlow ends the wait of a flow of which so many packets have been sent. It says false if more wait:
// they are among the notices, or about to be. A flow that does not wait is open: its SYN came again, and
// found a port.
func (d *Datapath) OpenFlow(flow Flow, sent uint32) (opened bool, err error) {
	c := bpf.AgentSnatFlowCall{Key: flow.key(), Seen: sent}
	if err := call(d.objects.SnatOpen, &c); err != nil {
		return false, fmt.Errorf("open %s: %w", flow, err)
	}
	return c.Result != 0, nil
}

// EndQueuedFlow forgets a flow that waits. It says false of one that has been opened: that goes on.
func (d *Datapath) EndQueuedFlow(flow Flow) (ended bool, err error) {
	c := bpf.AgentSnatFlowCall{Key: flow.key(), Queued: 1}
	if err := call(d.objects.SnatClose, &c); err != nil {
		return false, fmt.Errorf("end %s: %w", flow, err)
	}
	return c.Result != 0, nil
}

// EndFlow forgets a flow, whether it waits or not.
func (d *Datapath) EndFlow(flow Flow) error {
	c := bpf.AgentSnatFlowCall{Key: flow.key()}
	if err := call(d.objects.SnatClose, &c); err != nil {
		return fmt.Errorf("end %s: %w", flow, err)
	}
	return nil
}

// ReleaseQueued tells that so many packets of a workload do not wait any more.
func (d *Datapath) ReleaseQueued(workload uint32, packets int) error {
	c := bpf.AgentSnatDequeueCall{Workload: workload, Packets: uint32(packets)}
	if err := call(d.objects.SnatDequeue, &c); err != nil {
		return fmt.Errorf("end the wait of packets: %w", err)
	}
	return nil
}

// RefusePorts has packets of a workload that find no port dropped at once until a time on the clock of Now.
func (d *Datapath) RefusePorts(dip netip.Addr, until time.Duration) error {
	d.mu.Lock()
	row := d.snat[dip]
	d.mu.Unlock()
	if row == nil {
		return nil
	}
	c := bpf.AgentSnatDequeueCall{Workload: row.number, Until: uint64(until)}
	if err := call(d.objects.SnatRefuse, &c); err != nil {
		return fmt.Errorf("refuse ports to %s: %w", dip, err)
	}
	return nil
}

func (d *Datapath) own(workload, block uint32, ports uint64) error {
	c := bpf.AgentSnatOwnCall{Workload: workload, Block: block, Ports: ports}
	return call(d.objects.SnatOwn, &c)
}

// endFlowsOn ends a workload's flows that use any of the ports.
func (d *Datapath) endFlowsOn(row *snatRow, ports map[uint32]uint64) error {
	var due []Flow
	err := eachFlow(d.objects.SnatFlows, func(key bpf.AgentSessionKey, flow bpf.AgentSnatFlow) {
		port := uint32(abi.Port(flow.VipPort))
		if flow.Workload == row.number && ports[port/portsOfBlock]>>(port%portsOfBlock)&1 != 0 {
			due = append(due, fromFlowKey(key))
		}
	})
	if err != nil {
		return err
	}
	for _, flow := range due {
		if err := d.EndFlow(flow); err != nil {
			return err
		}
	}
	return nil
}
