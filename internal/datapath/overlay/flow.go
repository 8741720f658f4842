package overlay

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
)

// FlowState is which way a client's segments take; see enum bypass_state.
type FlowState uint32

// The states. All but FlowDirect go by the muxes.
const (
	FlowHalfOpen = FlowState(overlayBypassStateBYPASS_HALF_OPEN)
	FlowByMux    = FlowState(overlayBypassStateBYPASS_BY_MUX)
	FlowLost     = FlowState(overlayBypassStateBYPASS_LOST)
	FlowDirect   = FlowState(overlayBypassStateBYPASS_DIRECT)
)

// Flow is a client's connection with a VIP, as the client's host knows it.
type Flow struct {
	Client                 netip.AddrPort
	Attachment             uint32
	Port                   uint16 // the VIP's
	State                  FlowState
	Host                   netip.Addr // tunnel address of the server's host; not valid: none was learnt
	Events                 Event      // the FINs, and Reset; UDP alone of datagrams
	ClientNext, ServerNext uint32
	Seen                   uint32 // tick
	vni                    uint32 // 0: the attachment is gone
}

// Flows are the bypass flows of this host's clients.
func (c *Clients) Flows() ([]Flow, error) {
	c.tables.Lock()
	defer c.tables.Unlock()
	var all []Flow
	_, err := c.sweepFlows(func(f Flow) bool { all = append(all, f); return false })
	return all, err
}

// SweepFlows forgets at a tick the flows that are over for as long as sessions are in quarantine, and counts those of each
// port. It returns how many go on. To be called every few seconds.
func (c *Clients) SweepFlows(now uint32) (int, error) {
	c.tables.Lock()
	defer c.tables.Unlock()
	owners, err := abi.ReadTable[overlayNetworkAddress, overlayOverlayPortAddress](c.objects.PortAddresses)
	if err != nil {
		return 0, fmt.Errorf("read addresses of ports: %w", err)
	}
	flows := make(map[uint32]uint32)
	left, err := c.sweepFlows(func(f Flow) bool {
		if time.Duration(int32(now-f.Seen))*Tick > f.keptFor() {
			return true
		}
		flows[owners[networkAddress(f.vni, f.Client.Addr())].Ifindex]++
		return false
	})
	if err != nil {
		return left, err
	}
	ports, err := abi.ReadTable[uint32, overlayOverlayPort](c.objects.Ports)
	if err != nil {
		return left, fmt.Errorf("read ports: %w", err)
	}
	for ifindex, row := range ports {
		if row.Flows == flows[ifindex] {
			continue
		}
		row.Flows = flows[ifindex]
		if err := c.objects.Ports.Update(ifindex, row, ebpf.UpdateExist); err != nil {
			return left, fmt.Errorf("count flows of interface %d: %w", ifindex, err)
		}
	}
	return left, nil
}

// The silence after which a flow is forgotten: it would go by the muxes, and has a place of its port's until then. Of a
// connection it is what RFC 5382 asks of a NAT, 2 hours and 4 minutes, or of one that did not begin, 4 minutes.
const (
	datagramsTime = 30 * time.Second
	beginningTime = 4 * time.Minute
	silenceTime   = 2*time.Hour + 4*time.Minute
)

func (f Flow) keptFor() time.Duration {
	switch {
	case f.Events&UDP != 0:
		return datagramsTime
	case f.Events.IsOver():
		return f.Events.Quarantine()
	case f.State == FlowHalfOpen:
		return beginningTime
	}
	return silenceTime
}

func flowOf(key overlayBypassFlowKey, row overlayBypassFlow) Flow {
	f := Flow{
		Client: netip.AddrPortFrom(abi.Address(key.Client.Words), abi.Port(key.ClientPort)), Port: abi.Port(key.VipPort),
		Attachment: key.Attachment, State: FlowState(row.State), Events: Event(row.Events),
		ClientNext: row.ClientNext, ServerNext: row.ServerNext, Seen: row.Seen,
	}
	if mark := uint32(overlayBypassFlowMarkBYPASS_FLOW_UDP); key.Attachment&mark != 0 {
		f.Attachment, f.Events = key.Attachment&^mark, UDP // the row has a tick there
	}
	if row.Host.Words != [4]uint32{} {
		f.Host = abi.Address(row.Host.Words)
	}
	return f
}

// sweepFlows removes the flows of which over says so, and returns how many are left.
func (c *Clients) sweepFlows(over func(Flow) bool) (left int, err error) {
	attachments := make(map[uint32]uint32)
	err = abi.EachRow(c.objects.Attachments, func(number uint32, row overlayOverlayAttachment) { attachments[number] = row.Vni })
	if err != nil {
		return 0, fmt.Errorf("read attachments: %w", err)
	}
	rows := make(map[overlayBypassFlowKey]bool) // whether it is over
	// In batches: key by key a table that evicts begins anew whenever the key has gone that one was at.
	err = abi.EachBatched(c.objects.BypassFlows, func(key overlayBypassFlowKey, row overlayBypassFlow) {
		if _, twice := rows[key]; twice {
			return
		}
		f := flowOf(key, row)
		f.vni = attachments[f.Attachment]
		rows[key] = over(f)
	})
	if err != nil {
		return 0, fmt.Errorf("read bypass flows: %w", err)
	}
	for key, isOver := range rows {
		if !isOver {
			left++
			continue
		}
		if err := c.objects.BypassFlows.Delete(key); err != nil && !errors.Is(err, ebpf.ErrKeyNotExist) {
			return left, fmt.Errorf("forget a flow of %s: %w", abi.Address(key.Client.Words), err)
		}
	}
	return left, nil
}
