package agentd

import (
	"context"
	"errors"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// enqueue queues a packet, or drops it if the workload's queue is full.
func (p *ports) enqueue(user *portUser, n agent.Notice, now time.Time) {
	at := slices.IndexFunc(user.queue, func(h *queuedFlow) bool { return h.flow == n.Flow })
	if at < 0 {
		user.queue = append(user.queue, &queuedFlow{flow: n.Flow, since: now})
		at = len(user.queue) - 1
		user.queued++
	}
	held := user.queue[at]
	held.received = n.Order
	if n.Flow.Protocol == model.TCP && len(held.notices) > 0 { // the same SYN again
		p.dequeue(user, held, len(held.notices))
	}
	if user.packets >= p.config.Bounds.Packets || user.bytes+len(n.Frame) > p.config.Bounds.Bytes {
		user.exhausted++
		p.releaseQueued(&queuedFlow{flow: n.Flow, notices: []agent.Notice{n}}, 1)
		return
	}
	held.notices = append(held.notices, n)
	user.packets++
	user.bytes += len(n.Frame)
}

// dequeue removes the first n packets of a flow.
func (p *ports) dequeue(user *portUser, held *queuedFlow, n int) {
	for _, notice := range held.notices[:n] {
		user.packets--
		user.bytes -= len(notice.Frame)
	}
	p.releaseQueued(held, n)
	held.notices = held.notices[n:]
}

func (p *ports) releaseQueued(held *queuedFlow, n int) {
	if n > 0 {
		p.warn("release queued packets", p.config.Datapath.ReleaseQueued(held.notices[0].Number, n))
	}
}

// assignPorts assigns ports to queued flows in order of arrival, and requests more if they do not suffice.
func (p *ports) assignPorts(ctx context.Context, user *portUser, now time.Time) {
	lacking := 0
	for _, held := range slices.Clone(user.queue) {
		if !held.port.IsValid() {
			external, found, err := p.config.Datapath.AssignPort(held.flow)
			if errors.Is(err, agent.ErrFlowGone) {
				p.rejectFlow(user, held)
				continue
			}
			p.warn("assign a port to a flow", err)
			if !found {
				lacking++
				continue
			}
			held.port, held.since = external, now // from now on it waits to be opened
		}
		p.transmit(user, held)
	}
	if lacking == 0 {
		return
	}
	if user.refused && now.Before(user.retryAt) || !user.requesting && p.isFull(user) {
		p.rejectQueue(user, now)
		return
	}
	p.requestPorts(ctx, user, now)
}

// transmit sends the queued packets of a flow in order, and opens the flow if no more have arrived meanwhile.
func (p *ports) transmit(user *portUser, held *queuedFlow) {
	for _, n := range held.notices {
		packet, err := n.Packet(held.port, p.config.MTU())
		if err == nil {
			err = p.config.Sender.Transmit(held.flow.Remote.Addr(), packet)
		}
		if err != nil {
			p.log.Debug("a queued packet is lost", "err", err)
		}
	}
	p.dequeue(user, held, len(held.notices))
	opened, err := p.config.Datapath.OpenFlow(held.flow, held.received)
	p.warn("open a flow", err)
	if opened { // else more notices come
		user.queue = slices.DeleteFunc(user.queue, func(h *queuedFlow) bool { return h == held })
	}
}

// isFull says whether a workload is at its limit of ports.
func (p *ports) isFull(user *portUser) bool {
	return uint32(len(user.config.Ranges)+1)*model.RangePorts > user.config.MaxPorts
}

// rejectQueue rejects all queued flows without a port, after the manager refused ports.
func (p *ports) rejectQueue(user *portUser, now time.Time) {
	user.retryAt = now.Add(refusedFor)
	p.warn("refuse ports", p.config.Datapath.RefusePorts(user.config.Key.Address, agent.Now()+refusedFor))
	for _, held := range slices.Clone(user.queue) {
		if !held.port.IsValid() {
			p.rejectFlow(user, held)
		}
	}
}

// rejectFlow ends a queued flow and rejects its first packet. A flow that was opened meanwhile, by a repeated SYN, goes on.
func (p *ports) rejectFlow(user *portUser, held *queuedFlow) {
	ended, err := p.config.Datapath.EndQueuedFlow(held.flow)
	p.warn("end a flow", err)
	if ended && len(held.notices) > 0 {
		user.exhausted += uint64(len(held.notices))
		p.rejectPacket(user, held.notices[0])
	}
	p.dequeue(user, held, len(held.notices))
	user.queue = slices.DeleteFunc(user.queue, func(h *queuedFlow) bool { return h == held })
	user.wantsPorts = user.wantsPorts && len(user.queue) > 0
}

// rejectPacket answers a packet by a reset or an ICMP error, if the VIP's policy is to reject.
func (p *ports) rejectPacket(user *portUser, n agent.Notice) {
	if user.config.Exhausted != model.ExhaustedReject || user.refusals >= maxRefusalsPerTick {
		return
	}
	user.refusals++
	packet := n.Refusal()
	if packet == nil {
		return
	}
	if err := p.config.Sender.Reject(n.Workload, packet); err != nil {
		p.log.Debug("can't reject a packet", "err", err)
	}
}

// requestPorts requests more ports of a workload from the manager, one request at a time.
func (p *ports) requestPorts(ctx context.Context, user *portUser, now time.Time) {
	if user.requesting || now.Before(user.retryAt) {
		return
	}
	if p.isFull(user) {
		user.wantsPorts = false
		return
	}
	need := max(len(user.queue), 1)
	user.requesting, user.wantsPorts = true, false
	user.requests++
	key := user.config.Key
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := p.config.Manager.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
			Name: p.name, Vip: key.VIP.String(), Address: key.Address.String(), Ports: uint32(need),
		})
		p.handleAllocated(ctx, key, answer, err)
	})
}

// handleAllocated handles the manager's answer.
func (p *ports) handleAllocated(ctx context.Context, key model.SNATKey, answer *weirv1.AllocatePortsResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	user := p.workloads[key.Address]
	if user == nil || user.config.Key != key {
		return
	}
	user.requesting = false
	reason, after, _ := rpc.PortsRefused(err)
	switch {
	case reason == rpc.PortsRate || reason == rpc.PortsOutstanding || reason == rpc.PortsRestored || err != nil && !isRefusal(err):
		user.retryAt, user.wantsPorts = now.Add(max(after, retryAfter)), true
		p.log.Debug("can't request ports, trying again", "vip", key.VIP, "err", err)
		return
	case err != nil:
		if !user.refused {
			p.log.Warn("no more ports", "vip", key.VIP, "workload", key.Address, "err", err)
		}
		user.refused = true
		if len(user.queue) > 0 {
			p.rejectQueue(user, now)
		}
		user.retryAt = now.Add(refusedFor)
		return
	}
	user.refused = false
	// Else a later update of the stream has replaced the ranges.
	if written := model.Generation(answer.GetGeneration()); written > user.config.Written {
		for _, r := range answer.GetRanges() {
			user.config.Ranges = append(user.config.Ranges, model.Range(r))
		}
		slices.Sort(user.config.Ranges)
		user.config.Ranges, user.config.Written = slices.Compact(user.config.Ranges), written
	}
	if p.applyPorts() == nil {
		p.assignPorts(ctx, user, now)
	}
}
