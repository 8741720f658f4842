package agentd

import (
	"context"
	"net/netip"
	"slices"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/snat"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/wire"
)

// release releases idle ranges, and those that the manager reclaims, in two rounds: the first closes a range to new flows,
// the second releases it if it is still unused.
func (p *ports) release(ctx context.Context, now time.Time) {
	uses, err := p.config.Datapath.SNATUse(false)
	if err != nil {
		p.warn("read the use of ports", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	changed := false
	for _, use := range uses {
		user := p.workloads[use.Key.Address]
		if user == nil || user.config.Key != use.Key {
			continue
		}
		idle := make(map[model.Range]time.Duration, len(use.Idle))
		for _, r := range use.Idle {
			idle[r.Range] = r.Since
		}
		if p.closeRanges(user, idle, now) {
			changed = true
		}
		p.releaseRanges(ctx, user, p.releasableRanges(user, idle, now)) // after ranges in use were opened again
	}
	if changed {
		p.warn("close ranges", p.applyPorts())
	}
}

// releasableRanges are the ranges without flows that were closed at least one round ago.
func (p *ports) releasableRanges(user *portUser, idle map[model.Range]time.Duration, now time.Time) []model.Range {
	var due []model.Range
	for r, closed := range user.releasing {
		if _, unused := idle[r]; unused && now.Sub(closed.since) >= releaseInterval {
			due = append(due, r)
		}
	}
	slices.Sort(due)
	return due
}

// closeRanges closes reclaimed and idle ranges to new flows, and opens idle ones again that are needed after all.
func (p *ports) closeRanges(user *portUser, idle map[model.Range]time.Duration, now time.Time) (changed bool) {
	for _, r := range user.config.Reclaim {
		if _, closed := user.releasing[r]; !closed && slices.Contains(user.config.Ranges, r) {
			user.releasing[r] = closedRange{since: now}
			changed = true
		}
	}
	keeps := int(user.config.KeepPorts) / model.RangePorts
	room := len(user.config.Ranges) - len(user.releasing) - keeps
	for _, r := range slices.Backward(user.config.Ranges) {
		at, closed := user.releasing[r]
		since, unused := idle[r]
		switch {
		case closed && !at.offered && !slices.Contains(user.config.Reclaim, r) && (!unused || len(user.queue) > 0):
			delete(user.releasing, r)
			room++
			changed = true
		case !closed && unused && room > 0 && len(user.queue) == 0 && agent.Now()-since >= user.config.IdleTimeout:
			user.releasing[r] = closedRange{since: now}
			room--
			changed = true
		}
	}
	return changed
}

// releaseRanges releases ranges in a call of its own. Until the manager has answered they stay allocated, but closed. If
// the call fails, the manager may have released them or not: the next round asks again.
func (p *ports) releaseRanges(ctx context.Context, user *portUser, due []model.Range) {
	if len(due) == 0 || user.requesting {
		return
	}
	user.requesting = true
	key := user.config.Key
	request := &weirv1.ReleasePortsRequest{Name: p.name, Vip: key.VIP.String(), Address: key.Address.String()}
	for _, r := range due {
		request.Ranges = append(request.Ranges, uint32(r))
		user.releasing[r] = closedRange{since: user.releasing[r].since, offered: true}
	}
	p.asking.Go(func() {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		answer, err := p.config.Manager.ReleasePorts(ctx, request)
		p.mu.Lock()
		defer p.mu.Unlock()
		if user := p.workloads[key.Address]; user != nil && user.config.Key == key {
			p.handleReleased(user, due, answer, err)
		}
	})
}

func (p *ports) handleReleased(user *portUser, due []model.Range, answer *weirv1.ReleasePortsResponse, err error) {
	user.requesting = false
	if err != nil {
		p.log.Debug("can't release ports, trying again", "vip", user.config.Key.VIP, "err", err)
		return
	}
	for _, r := range due {
		delete(user.releasing, r)
	}
	// Else a later update of the stream has replaced the ranges.
	if written := model.Generation(answer.GetGeneration()); written >= user.config.Written {
		gone := func(r model.Range) bool { return slices.Contains(due, r) }
		user.config.Ranges = slices.DeleteFunc(slices.Clone(user.config.Ranges), gone)
		user.config.Reclaim = slices.DeleteFunc(slices.Clone(user.config.Reclaim), gone)
		user.config.Written = written
	}
	p.warn("close ranges", p.applyPorts())
}

// portUsage is the use of ports of each workload for reports, with their ranges if the manager wants them.
func (p *ports) portUsage() (all []*weirv1.SNATUse, tellsRanges bool) {
	if p.config.Datapath == nil {
		return nil, true
	}
	uses, err := p.config.Datapath.SNATUse(true)
	p.warn("read the use of ports", err)
	p.mu.Lock()
	defer p.mu.Unlock()
	all = make([]*weirv1.SNATUse, 0, len(uses))
	for _, use := range uses {
		u := &weirv1.SNATUse{
			Vip: use.Key.VIP.String(), Address: use.Key.Address.String(), Ranges: uint32(len(use.Ranges)),
			Digest: snat.Digest(use.Key.VIP, use.Tunnel, use.Ranges...), PortsInUse: uint32(use.PortsInUse), Flows: uint64(max(use.Flows, 0)), Held: uint32(max(use.Held, 0)),
		}
		for _, d := range use.Most {
			u.Destinations = append(u.Destinations, &weirv1.SNATDestination{
				Address: d.Remote.Addr().String(), Port: uint32(d.Remote.Port()), Protocol: protocolName(d.Protocol), Flows: uint64(d.Flows),
			})
		}
		if user := p.workloads[use.Key.Address]; user != nil {
			u.Requests, u.FlowsWaited, u.Exhausted = user.requests, user.queued, user.exhausted
			u.FlowsLocal, u.Written = use.Begun, uint64(user.config.Written)
		}
		if p.reportsRanges {
			u.RangeNumbers = wire.RangesToProto(use.Ranges)
		}
		all = append(all, u)
	}
	return all, p.reportsRanges && err == nil
}

func protocolName(p model.Protocol) string {
	if p == model.TCP || p == model.UDP {
		return p.String()
	}
	return "ICMP"
}

// sample puts the metrics of source NAT.
func (p *ports) sample(to *telemetry.Sample) {
	uses, _ := p.portUsage()
	for _, use := range uses {
		vip, workload := use.GetVip(), use.GetAddress()
		telemetry.Put(to, "weir_agent_snat_ports", use.GetRanges()*model.RangePorts, vip, workload)
		telemetry.Put(to, "weir_agent_snat_ports_in_use", use.GetPortsInUse(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_flows", use.GetFlows(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_queued_packets", use.GetHeld(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_requests_total", use.GetRequests(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_flows_created_total", use.GetFlowsLocal(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_flows_queued_total", use.GetFlowsWaited(), vip, workload)
		telemetry.Put(to, "weir_agent_snat_exhausted_total", use.GetExhausted(), vip, workload)
	}
}

// warnings are those of source NAT for operators.
func (p *ports) warnings() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var lines []string
	if p.failure != "" {
		lines = append(lines, p.failure)
	}
	dips := make([]netip.Addr, 0, len(p.workloads))
	for dip, user := range p.workloads {
		if user.refused {
			dips = append(dips, dip)
		}
	}
	slices.SortFunc(dips, netip.Addr.Compare)
	for _, dip := range dips {
		lines = append(lines, "no more ports for "+p.workloads[dip].config.Key.String())
	}
	return lines
}
