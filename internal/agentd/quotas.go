package agentd

import (
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent"
)

// maxEvents bounds those that wait for a manager.
const maxEvents = 64

// quotas notes which VIPs have reached their quota of sessions, and which are below it again: events of theirs.
func (r *reports) quotas(vips []agent.VIPSessions) {
	refused := make(map[netip.Addr]bool)
	for _, v := range vips {
		if !v.Refused {
			continue
		}
		refused[v.VIP] = true
		if !r.refused[v.VIP] {
			r.tell(&weirv1.MuxEvent{Vip: v.VIP.String(), Reason: "SessionQuotaOn", Used: uint64(v.Confirmed) + uint64(v.New), Limit: uint64(v.Limit), Warning: true})
		}
	}
	for vip := range r.refused {
		if !refused[vip] {
			r.tell(&weirv1.MuxEvent{Vip: vip.String(), Reason: "SessionQuotaOff"})
		}
	}
	r.refused = refused
}

// snatQuotas notes which VIPs' workloads had no room for connections of their own, and which have it again.
func (r *reports) snatQuotas(vips []agent.SNATRefusal) {
	refused := make(map[netip.Addr]bool)
	for _, v := range vips {
		refused[v.VIP] = true
		if !r.leaving[v.VIP] {
			r.tell(&weirv1.MuxEvent{Vip: v.VIP.String(), Reason: "SNATQuotaOn", Used: uint64(v.Used), Limit: uint64(v.Limit), Warning: true})
		}
	}
	for vip := range r.leaving {
		if !refused[vip] {
			r.tell(&weirv1.MuxEvent{Vip: vip.String(), Reason: "SNATQuotaOff"})
		}
	}
	r.leaving = refused
}

// tell has the manager told of an event by the next report.
func (r *reports) tell(event *weirv1.MuxEvent) {
	r.events = append(r.events, event)
	r.events = r.events[max(0, len(r.events)-maxEvents):]
}

// heard forgets the events that a report told.
func (r *reports) heard(events []*weirv1.MuxEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = slices.DeleteFunc(r.events, func(e *weirv1.MuxEvent) bool { return slices.Contains(events, e) })
}
