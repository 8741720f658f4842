package agentd

import (
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent"
)

// maxEvents bounds those that wait for a manager.
const maxEvents = 64

// sessionQuotaEvents notes which VIPs have reached their quota of sessions, and which are below it again: events of theirs.
func (r *reports) sessionQuotaEvents(vips []agent.VIPSessions) {
	refused := make(map[netip.Addr]bool)
	for _, v := range vips {
		if !v.Refused {
			continue
		}
		refused[v.VIP] = true
		if !r.refused[v.VIP] {
			r.addEvent(&weirv1.MuxEvent{Vip: v.VIP.String(), Reason: "SessionQuotaOn", Used: uint64(v.Confirmed) + uint64(v.New), Limit: uint64(v.Limit), Warning: true})
		}
	}
	for vip := range r.refused {
		if !refused[vip] {
			r.addEvent(&weirv1.MuxEvent{Vip: vip.String(), Reason: "SessionQuotaOff"})
		}
	}
	r.refused = refused
}

// snatQuotaEvents notes which VIPs' workloads had no room for connections of their own, and which have it again.
func (r *reports) snatQuotaEvents(vips []agent.SNATRefusal) {
	refused := make(map[netip.Addr]bool)
	for _, v := range vips {
		refused[v.VIP] = true
		if !r.leaving[v.VIP] {
			r.addEvent(&weirv1.MuxEvent{Vip: v.VIP.String(), Reason: "SNATQuotaOn", Used: uint64(v.Used), Limit: uint64(v.Limit), Warning: true})
		}
	}
	for vip := range r.leaving {
		if !refused[vip] {
			r.addEvent(&weirv1.MuxEvent{Vip: vip.String(), Reason: "SNATQuotaOff"})
		}
	}
	r.leaving = refused
}

// addEvent has the manager told of an event by the next report.
func (r *reports) addEvent(event *weirv1.MuxEvent) {
	r.events = append(r.events, event)
	r.events = r.events[max(0, len(r.events)-maxEvents):]
}

// removeSentEvents forgets the events that a report told.
func (r *reports) removeSentEvents(events []*weirv1.MuxEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = slices.DeleteFunc(r.events, func(e *weirv1.MuxEvent) bool { return slices.Contains(events, e) })
}
