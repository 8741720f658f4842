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

// hold keeps a packet that waits, unless too much does.
func (p *ports) hold(user *portUser, n agent.Notice, now time.Time) {
	at := slices.IndexFunc(user.queue, func(h *heldFlow) bool { return h.flow == n.Flow })
	if at < 0 {
		user.queue = append(user.queue, &heldFlow{flow: n.Flow, since: now})
		at = len(user.queue) - 1
		user.waited++
	}
	held := user.queue[at]
	held.taken = n.Order
	if n.Flow.Protocol == model.TCP && len(held.held) > 0 { // the same SYN again
		p.drop(user, held, len(held.held))
	}
	if user.packets >= p.config.Bounds.Packets || user.bytes+len(n.Frame) > p.config.Bounds.Bytes {
		user.exhausted++
		p.unhold(&heldFlow{flow: n.Flow, held: []agent.Notice{n}}, 1)
		return
	}
	held.held = append(held.held, n)
	user.packets++
	user.bytes += len(n.Frame)
}

// drop takes the first n packets out of the count.
func (p *ports) drop(user *portUser, held *heldFlow, n int) {
	for _, notice := range held.held[:n] {
		user.packets--
		user.bytes -= len(notice.Frame)
	}
	p.unhold(held, n)
	held.held = held.held[n:]
}

func (p *ports) unhold(held *heldFlow, n int) {
	if n > 0 {
		p.warn("end the wait of packets", p.config.Datapath.Unhold(held.held[0].Number, n))
	}
}

// serve gives ports to what waits, first come first served, and asks for more if they do not do.
func (p *ports) serve(ctx context.Context, user *portUser, now time.Time) {
	lacking := 0
	for _, held := range slices.Clone(user.queue) {
		if !held.port.IsValid() {
			external, found, err := p.config.Datapath.AssignPort(held.flow)
			if errors.Is(err, agent.ErrFlowGone) {
				p.giveUp(user, held)
				continue
			}
			p.warn("give a flow a port", err)
			if !found {
				lacking++
				continue
			}
			held.port, held.since = external, now // its wait is over: it is only to be opened
		}
		p.send(user, held)
	}
	if lacking == 0 {
		return
	}
	if user.refused && now.Before(user.askAfter) || !user.asking && p.isFull(user) {
		p.exhaust(user, now)
		return
	}
	p.ask(ctx, user, now)
}

// send sends what waits in a flow in order, and opens the flow if that was all.
func (p *ports) send(user *portUser, held *heldFlow) {
	for _, n := range held.held {
		packet, err := n.Packet(held.port, p.config.MTU())
		if err == nil {
			err = p.config.Sender.Leave(held.flow.Remote.Addr(), packet)
		}
		if err != nil {
			p.log.Debug("a packet that waited is lost", "err", err)
		}
	}
	p.drop(user, held, len(held.held))
	opened, err := p.config.Datapath.OpenFlow(held.flow, held.taken)
	p.warn("open a flow", err)
	if opened { // else more comes
		user.queue = slices.DeleteFunc(user.queue, func(h *heldFlow) bool { return h == held })
	}
}

// isFull says whether a workload holds all the ports that it may.
func (p *ports) isFull(user *portUser) bool {
	return uint32(len(user.config.Ranges)+1)*model.RangePorts > user.config.MaxPorts
}

// exhaust ends the wait of all flows that have no port: there are none to be had.
func (p *ports) exhaust(user *portUser, now time.Time) {
	user.askAfter = now.Add(refusedFor)
	p.warn("refuse ports", p.config.Datapath.RefusePorts(user.config.Key.Address, agent.Now()+refusedFor))
	for _, held := range slices.Clone(user.queue) {
		if !held.port.IsValid() {
			p.giveUp(user, held)
		}
	}
}

// giveUp tells the workload that a flow finds no port, unless it has one by now: its SYN came again.
func (p *ports) giveUp(user *portUser, held *heldFlow) {
	ended, err := p.config.Datapath.EndHeldFlow(held.flow)
	p.warn("end a flow", err)
	if ended && len(held.held) > 0 {
		user.exhausted += uint64(len(held.held))
		p.refuse(user, held.held[0])
	}
	p.drop(user, held, len(held.held))
	user.queue = slices.DeleteFunc(user.queue, func(h *heldFlow) bool { return h == held })
	user.wants = user.wants && len(user.queue) > 0
}

// refuse tells the workload of one packet, if its VIP's policy says so.
func (p *ports) refuse(user *portUser, n agent.Notice) {
	if user.config.Exhausted != model.ExhaustedReject || user.refusals >= refusalsATick {
		return
	}
	user.refusals++
	packet := n.Refusal()
	if packet == nil {
		return
	}
	if err := p.config.Sender.Tell(n.Workload, packet); err != nil {
		p.log.Debug("a workload was not told that there are no ports", "err", err)
	}
}

// ask asks the manager for more ports of a workload, once at a time.
func (p *ports) ask(ctx context.Context, user *portUser, now time.Time) {
	if user.asking || now.Before(user.askAfter) {
		return
	}
	if p.isFull(user) {
		user.wants = false
		return
	}
	need := max(len(user.queue), 1)
	user.asking, user.wants = true, false
	user.requests++
	key := user.config.Key
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := p.config.Manager.AllocatePorts(ctx, &weirv1.AllocatePortsRequest{
			Name: p.name, Vip: key.VIP.String(), Address: key.Address.String(), Ports: uint32(need),
		})
		p.answered(ctx, key, answer, err)
	})
}

// answered takes the manager's answer.
func (p *ports) answered(ctx context.Context, key model.SNATKey, answer *weirv1.AllocatePortsResponse, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	user := p.workloads[key.Address]
	if user == nil || user.config.Key != key {
		return
	}
	user.asking = false
	reason, after, _ := rpc.PortsRefused(err)
	switch {
	case reason == rpc.PortsRate || reason == rpc.PortsOutstanding || reason == rpc.PortsRestored || err != nil && !isRefusal(err):
		user.askAfter, user.wants = now.Add(max(after, retryAfter)), true
		p.log.Debug("ports can't be asked for", "vip", key.VIP, "err", err)
		return
	case err != nil:
		if !user.refused {
			p.log.Warn("no more ports", "vip", key.VIP, "workload", key.Address, "err", err)
		}
		user.refused = true
		if len(user.queue) > 0 {
			p.exhaust(user, now)
		}
		user.askAfter = now.Add(refusedFor)
		return
	}
	user.refused = false
	// If not newer, a list has said since what it has.
	if written := model.Generation(answer.GetGeneration()); written > user.config.Written {
		for _, r := range answer.GetRanges() {
			user.config.Ranges = append(user.config.Ranges, model.Range(r))
		}
		slices.Sort(user.config.Ranges)
		user.config.Ranges, user.config.Written = slices.Compact(user.config.Ranges), written
	}
	if p.set() == nil {
		p.serve(ctx, user, now)
	}
}
