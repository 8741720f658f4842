package agentd

import (
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/events/reason"
)

// maxEvents bounds the events that are not reported yet.
const maxEvents = 64

// sessionQuotaEvents adds events of VIPs that have reached their limit of sessions, or are below it again.
func (r *reports) sessionQuotaEvents(vips []session.VIPSessions) {
	refused := make(map[netip.Addr]bool)
	for _, v := range vips {
		if !v.Refused {
			continue
		}
		refused[v.VIP] = true
		if !r.refused[v.VIP] {
			r.addEvent(&weirv1.MuxEvent{Vip: v.VIP.String(), Reason: reason.SessionQuotaOn, Used: uint64(v.Confirmed) + uint64(v.New), Limit: uint64(v.Limit), Warning: true})
		}
	}
	for vip := range r.refused {
		if !refused[vip] {
			r.addEvent(&weirv1.MuxEvent{Vip: vip.String(), Reason: reason.SessionQuotaOff})
		}
	}
	r.refused = refused
}

// snatQuotaEvents adds events of VIPs whose workloads had no room in the tables of source NAT, or have it again.
func (r *reports) snatQuotaEvents(vips []session.SNATRefusal) {
	refused := make(map[netip.Addr]bool)
	for _, v := range vips {
		refused[v.VIP] = true
		if !r.snatRefused[v.VIP] {
			r.addEvent(&weirv1.MuxEvent{Vip: v.VIP.String(), Reason: reason.SNATQuotaOn, Used: uint64(v.Used), Limit: uint64(v.Limit), Warning: true})
		}
	}
	for vip := range r.snatRefused {
		if !refused[vip] {
			r.addEvent(&weirv1.MuxEvent{Vip: vip.String(), Reason: reason.SNATQuotaOff})
		}
	}
	r.snatRefused = refused
}

// addEvent adds an event to the next report.
func (r *reports) addEvent(event *weirv1.MuxEvent) {
	r.events = append(r.events, event)
	r.events = r.events[max(0, len(r.events)-maxEvents):]
}

// removeSentEvents removes the events of an answered report.
func (r *reports) removeSentEvents(events []*weirv1.MuxEvent) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.events = slices.DeleteFunc(r.events, func(e *weirv1.MuxEvent) bool { return slices.Contains(events, e) })
}
