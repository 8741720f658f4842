package snat

import (
	"context"
	"errors"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	agentsnat "github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
)

// enqueue queues a packet, or drops it if the workload's queue is full.
func (p *Ports) enqueue(client *snatClient, n agentsnat.Notice, now time.Time) {
	at := slices.IndexFunc(client.queue, func(h *queuedFlow) bool { return h.flow == n.Flow })
	if at < 0 {
		client.queue = append(client.queue, &queuedFlow{flow: n.Flow, since: now})
		at = len(client.queue) - 1
		client.queued++
	}
	held := client.queue[at]
	held.received = n.Order
	if n.Flow.Protocol == model.TCP && len(held.notices) > 0 { // the same SYN again
		p.dequeue(client, held, len(held.notices))
	}
	if client.packets >= p.config.Bounds.Packets || client.bytes+len(n.Frame) > p.config.Bounds.Bytes {
		client.exhausted++
		p.releaseQueued(&queuedFlow{flow: n.Flow, notices: []agentsnat.Notice{n}}, 1)
		return
	}
	held.notices = append(held.notices, n)
	client.packets++
	client.bytes += len(n.Frame)
}

// dequeue removes the first n packets of a flow.
func (p *Ports) dequeue(client *snatClient, held *queuedFlow, n int) {
	for _, notice := range held.notices[:n] {
		client.packets--
		client.bytes -= len(notice.Frame)
	}
	p.releaseQueued(held, n)
	held.notices = held.notices[n:]
}

func (p *Ports) releaseQueued(held *queuedFlow, n int) {
	if n > 0 {
		p.warn("release queued packets", p.config.Datapath.ReleaseQueued(held.notices[0].Number, n))
	}
}

// assignPorts assigns ports to queued flows in order of arrival, and gets more if they do not suffice.
func (p *Ports) assignPorts(ctx context.Context, client *snatClient, now time.Time) {
	if p.assignQueued(client, now) == 0 {
		return
	}
	if client.refused && now.Before(client.retryAt) || !client.requesting && (lending{p}).room(client) <= 0 {
		p.rejectQueue(client, now)
		return
	}
	if p.requestPorts(ctx, client, now) {
		p.assignQueued(client, now)
	}
}

// assignQueued assigns ports to queued flows in order of arrival, and returns how many lack one.
func (p *Ports) assignQueued(client *snatClient, now time.Time) (lacking int) {
	for _, held := range slices.Clone(client.queue) {
		if !held.port.IsValid() {
			external, found, err := p.config.Datapath.AssignPort(held.flow)
			if errors.Is(err, agentsnat.ErrFlowGone) {
				p.rejectFlow(client, held)
				continue
			}
			p.warn("assign a port to a flow", err)
			if !found {
				lacking++
				continue
			}
			held.port, held.since = external, now // from now on it waits to be opened
		}
		p.transmit(client, held)
	}
	return lacking
}

// transmit sends the queued packets of a flow in order, and opens the flow if no more have arrived meanwhile.
func (p *Ports) transmit(client *snatClient, held *queuedFlow) {
	for _, n := range held.notices {
		packet, err := n.Packet(held.port, p.config.MSS(held.port.Addr().Is6()))
		if err == nil {
			err = p.config.Sender.Transmit(held.flow.Remote.Addr(), packet)
		}
		if err != nil {
			p.log.Debug("a queued packet is lost", "err", err)
		}
	}
	p.dequeue(client, held, len(held.notices))
	opened, err := p.config.Datapath.OpenFlow(held.flow, held.received)
	p.warn("open a flow", err)
	if opened { // else more notices come
		client.queue = slices.DeleteFunc(client.queue, func(h *queuedFlow) bool { return h == held })
	}
}

// rejectQueue rejects all queued flows without a port, after the manager refused ports.
func (p *Ports) rejectQueue(client *snatClient, now time.Time) {
	client.retryAt = now.Add(refusedFor)
	p.warn("refuse ports", p.config.Datapath.RefusePorts(client.config.Key.Address, session.Now()+refusedFor))
	for _, held := range slices.Clone(client.queue) {
		if !held.port.IsValid() {
			p.rejectFlow(client, held)
		}
	}
}

// rejectFlow ends a queued flow and rejects its first packet. A flow that was opened meanwhile, by a repeated SYN, goes on.
func (p *Ports) rejectFlow(client *snatClient, held *queuedFlow) {
	ended, err := p.config.Datapath.EndQueuedFlow(held.flow)
	p.warn("end a flow", err)
	if ended && len(held.notices) > 0 {
		client.exhausted += uint64(len(held.notices))
		p.rejectPacket(client, held.notices[0])
	}
	p.dequeue(client, held, len(held.notices))
	client.queue = slices.DeleteFunc(client.queue, func(h *queuedFlow) bool { return h == held })
	client.wantsPorts = client.wantsPorts && len(client.queue) > 0
}

// rejectPacket answers a packet by a reset or an ICMP error, if the VIP's policy is to reject.
func (p *Ports) rejectPacket(client *snatClient, n agentsnat.Notice) {
	if client.config.Exhausted != model.ExhaustedReject || client.refusals >= maxRefusalsPerTick {
		return
	}
	client.refusals++
	packet := n.Refusal()
	if packet == nil {
		return
	}
	if err := p.config.Sender.Reject(n.Workload, packet); err != nil {
		p.log.Debug("can't reject a packet", "err", err)
	}
}

// requestPorts gets more ports for a workload, and says whether it has them: those of the host's block at once. Without a
// block the manager is asked for them, one request at a time.
func (p *Ports) requestPorts(ctx context.Context, client *snatClient, now time.Time) (got bool) {
	if (lending{p}).room(client) <= 0 {
		client.wantsPorts = false
		return false
	}
	if b := p.blocks[client.config.Key.VIP]; b != nil && b.pool.Told() {
		return (lending{p}).lend(ctx, b, client, now)
	}
	if client.requesting || now.Before(client.retryAt) {
		return false
	}
	need := max(len(client.queue), 1)
	client.requesting, client.wantsPorts = true, false
	client.requests++
	key := client.config.Key
	p.asking.Go(func() {
		bounded, cancel := context.WithTimeout(ctx, requestTimeout) // the call alone: its answer may have more asked for
		defer cancel()
		answer, err := p.config.Manager.AllocatePorts(bounded, &weirv1.AllocatePortsRequest{
			Name: p.name, Vip: key.VIP.String(), Address: key.Address.String(), Ports: uint32(need),
		})
		p.handleAllocated(ctx, key, answer, err)
	})
	return false
}

// mayRetry says whether a failed request is to be made again soon, as nothing was decided.
func mayRetry(reason string, err error) bool {
	return reason == rpc.PortsRate || reason == rpc.PortsOutstanding || reason == rpc.PortsRestored || err != nil && !isRefusal(err)
}

// handleAllocated handles the manager's answer.
func (p *Ports) handleAllocated(ctx context.Context, key model.SNATKey, answer *weirv1.AllocatePortsResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	client := p.workloads[key.Address]
	if client == nil || client.config.Key != key {
		return
	}
	client.requesting = false
	reason, after, _ := rpc.PortsRefused(err)
	switch {
	case mayRetry(reason, err):
		client.retryAt, client.wantsPorts = now.Add(max(after, retryAfter)), true
		p.log.Debug("can't request ports, trying again", "vip", key.VIP, "err", err)
		return
	case err != nil:
		if !client.refused {
			p.log.Warn("no more ports", "vip", key.VIP, "workload", key.Address, "err", err)
		}
		client.refused = true
		if len(client.queue) > 0 {
			p.rejectQueue(client, now)
		}
		client.retryAt = now.Add(refusedFor)
		return
	}
	client.refused = false
	p.warn("take ports", lending{p}.take(client, answer.GetAllocation()))
	if p.applyPorts() == nil {
		p.assignPorts(ctx, client, now)
	}
}
