package snat

import (
	"context"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// release releases idle ranges, and those that the manager reclaims, in two rounds: the first closes a range to new flows,
// the second releases it if it is still unused.
func (p *Ports) release(ctx context.Context, now time.Time) {
	uses, err := p.config.Datapath.SNATUse(false)
	if err != nil {
		p.warn("read the use of ports", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.failure != "" {
		p.warn("close ranges", p.applyPorts())
	}
	if p.failure != "" { // the tables may show as open what is closed, so that new flows begin there
		return
	}
	changed := false
	for _, use := range uses {
		client := p.workloads[use.Key.Address]
		if client == nil || client.config.Key != use.Key {
			continue
		}
		idle := make(map[model.Range]time.Duration, len(use.Idle))
		for _, r := range use.Idle {
			idle[r.Range] = r.Since
		}
		lent, reclaim := lending{p}.lent(client)
		if client.closeRanges(lent, reclaim, idle, now) {
			changed = true
		}
		unused := client.releasableRanges(idle, now) // after ranges in use were opened again
		own := lending{p}.returnRanges(client, unused)
		if len(own) < len(unused) {
			changed = true
		}
		p.releaseRanges(ctx, client, own)
	}
	if changed {
		p.warn("close ranges", p.applyPorts())
	}
	lending{p}.balanceBlocks(ctx, now)
}

// releasableRanges are the ranges without flows that were closed at least one round ago.
func (c *snatClient) releasableRanges(idle map[model.Range]time.Duration, now time.Time) []model.Range {
	var due []model.Range
	for r, closed := range c.releasing {
		if _, unused := idle[r]; unused && now.Sub(closed.since) >= releaseInterval {
			due = append(due, r)
		}
	}
	slices.Sort(due)
	return due
}

// closeRanges closes reclaimed and idle ranges to new flows, and opens idle ones again that are needed after all. Of its own
// a workload keeps some, of the host's block none.
func (c *snatClient) closeRanges(lent, reclaim []model.Range, idle map[model.Range]time.Duration, now time.Time) (changed bool) {
	for r, closed := range c.releasing {
		if closed.since.IsZero() {
			c.releasing[r] = closedRange{since: now, offered: closed.offered}
		}
	}
	reclaim = slices.Concat(c.config.Reclaim, reclaim)
	for _, r := range reclaim {
		if _, closed := c.releasing[r]; !closed && (slices.Contains(c.config.Ranges, r) || slices.Contains(lent, r)) {
			c.releasing[r] = closedRange{since: now}
			changed = true
		}
	}
	closeIdle := func(ranges []model.Range, keeps int) {
		room := len(ranges) - keeps
		for _, r := range ranges {
			if _, closed := c.releasing[r]; closed {
				room--
			}
		}
		for _, r := range slices.Backward(ranges) {
			at, closed := c.releasing[r]
			since, unused := idle[r]
			switch {
			case closed && !at.offered && !slices.Contains(reclaim, r) && (!unused || len(c.queue) > 0):
				delete(c.releasing, r)
				room++
				changed = true
			case !closed && unused && room > 0 && len(c.queue) == 0 && session.Now()-since >= c.config.IdleTimeout:
				c.releasing[r] = closedRange{since: now}
				room--
				changed = true
			}
		}
	}
	closeIdle(c.config.Ranges, int(c.config.KeepPorts)/model.RangePorts)
	closeIdle(lent, 0)
	return changed
}

// releaseRanges releases ranges in a call of its own. Until the manager has answered they stay allocated, but closed. If
// the call fails, the manager may have released them or not: the next round asks again.
func (p *Ports) releaseRanges(ctx context.Context, client *snatClient, due []model.Range) {
	if len(due) == 0 || client.requesting {
		return
	}
	client.requesting = true
	key := client.config.Key
	request := &weirv1.ReleasePortsRequest{Name: p.name, Vip: key.VIP.String(), Address: key.Address.String()}
	for _, r := range due {
		request.Ranges = append(request.Ranges, uint32(r))
		client.releasing[r] = closedRange{since: client.releasing[r].since, offered: true}
	}
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := p.config.Manager.ReleasePorts(ctx, request)
		p.mu.Lock()
		defer p.mu.Unlock()
		if client := p.workloads[key.Address]; client != nil && client.config.Key == key {
			p.handleReleased(client, answer, err)
		}
	})
}

func (p *Ports) handleReleased(client *snatClient, answer *weirv1.ReleasePortsResponse, err error) {
	client.requesting = false
	if err != nil {
		p.log.Debug("can't release ports, trying again", "vip", client.config.Key.VIP, "err", err)
		return
	}
	p.warn("release ports", lending{p}.take(client, answer.GetAllocation()))
	p.warn("close ranges", p.applyPorts())
}

// Usage is the use of ports of each workload for reports, with their ranges if the manager wants them.
func (p *Ports) Usage() (all []*weirv1.SNATUse, tellsRanges bool) {
	if p.config.Datapath == nil {
		return nil, true
	}
	uses, err := p.config.Datapath.SNATUse(true)
	p.warn("read the use of ports", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	all = make([]*weirv1.SNATUse, 0, len(uses)+len(p.blocks))
	for _, use := range uses {
		own := use.Ranges
		if b := p.blocks[use.Key.VIP]; b != nil {
			own = slices.DeleteFunc(slices.Clone(own), b.pool.Has)
		}
		u := &weirv1.SNATUse{
			Vip: use.Key.VIP.String(), Address: use.Key.Address.String(), Ranges: uint32(len(own)), Written: uint64(use.Written),
			LentRanges: uint32(len(use.Ranges) - len(own)), Digest: snat.Digest(use.Key.VIP, use.Tunnel, own...), PortsInUse: uint32(use.PortsInUse), Flows: uint64(max(use.Flows, 0)), Held: uint32(max(use.Held, 0)),
		}
		for _, d := range use.Most {
			u.Destinations = append(u.Destinations, &weirv1.SNATDestination{
				Address: d.Remote.Addr().String(), Port: uint32(d.Remote.Port()), Protocol: protocolName(d.Protocol), Flows: uint64(d.Flows),
			})
		}
		if client := p.workloads[use.Key.Address]; client != nil {
			u.Requests, u.FlowsWaited, u.Exhausted = client.requests, client.queued, client.exhausted
			u.FlowsLocal = use.Begun
		}
		if p.reportsRanges {
			u.RangeNumbers = wire.RangesToProto(own)
		}
		all = append(all, u)
	}
	return slices.Concat(all, lending{p}.uses()), p.reportsRanges && err == nil
}

func protocolName(p model.Protocol) string {
	if p == model.TCP || p == model.UDP {
		return p.String()
	}
	return "ICMP"
}

// Sample puts the metrics of source NAT.
func (p *Ports) Sample(to *telemetry.Sample) {
	uses, _ := p.Usage()
	for _, use := range uses {
		vip, workload := use.GetVip(), use.GetAddress()
		if address, err := netip.ParseAddr(workload); err == nil && (model.SNATKey{Address: address}).IsBlock() {
			telemetry.Put(to, "weir_agent_snat_block_ports", use.GetRanges()*model.RangePorts, vip)
			telemetry.Put(to, "weir_agent_snat_block_ports_lent", use.GetLentRanges()*model.RangePorts, vip)
			telemetry.Put(to, "weir_agent_snat_block_requests_total", use.GetRequests(), vip)
			continue
		}
		telemetry.Put(to, "weir_agent_snat_ports", (use.GetRanges()+use.GetLentRanges())*model.RangePorts, vip, workload)
		telemetry.Put(to, "weir_agent_snat_ports_in_use", use.GetPortsInUse(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_flows", use.GetFlows(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_queued_packets", use.GetHeld(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_requests_total", use.GetRequests(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_flows_created_total", use.GetFlowsLocal(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_flows_queued_total", use.GetFlowsWaited(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_exhausted_total", use.GetExhausted(), vip, workload)
	}
}

// Warnings are those of source NAT for operators.
func (p *Ports) Warnings() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	if p.failure != "" {
		lines = append(lines, p.failure)
	}
	dips := make([]netip.Addr, 0, len(p.workloads))
	for dip, client := range p.workloads {
		if client.refused {
			dips = append(dips, dip)
		}
	}
	slices.SortFunc(dips, netip.Addr.Compare)
	for _, dip := range dips {
		lines = append(lines, "no more ports for "+p.workloads[dip].config.Key.String())
	}
	return lines
}
