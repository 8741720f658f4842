package manager

import (
	"fmt"
	"net/netip"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/wire"
)

// Bounds of what a mux may tell.
const (
	maxMuxEvents = 64
)

// muxReasons are those that a mux may give.
var muxReasons = []string{"SYNCookiesOn", "SYNCookiesOff", "ShareOn", "ShareOff"}

// hostReasons are those that a host may give, and what is told of each: a host has no words of its own in what tenants read.
var hostReasons = map[string]struct {
	text    string
	figures bool // of rows that the VIP has, and may have
	warning bool
}{
	"SessionQuotaOn":  {"has %d of at most %d sessions: more make way for each other", true, true},
	"SessionQuotaOff": {"wants no more sessions than it may have", false, false},
	"SNATQuotaOn":     {"workloads' own connections are refused: their tenant has %d of at most %d rows of a table of source NAT", true, true},
	"SNATQuotaOff":    {"no connection of its workloads is refused", false, false},
}

// noteMuxDone notes what a mux did by itself about endpoints and VIPs. What is of no VIP, or not of its reasons, is
// left out.
func (m *Manager) noteMuxDone(mux string, reported []*weirv1.MuxEvent) {
	for _, e := range reported[:min(len(reported), maxMuxEvents)] {
		address, what, err := toldOf(e)
		vip, there := m.store.State().VIPAt(address)
		if err != nil || !there || !slices.Contains(muxReasons, e.GetReason()) {
			continue
		}
		m.events.Record(store.Event{
			Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: e.GetWarning(), Reason: e.GetReason(),
			Message: what + ": " + events.CutMessage(e.GetMessage()), Source: mux,
		})
	}
}

// noteHostDone notes what a host did by itself about VIPs that have a backend on it, or a workload that leaves as they.
// What it says of others is left out.
func (m *Manager) noteHostDone(host string, reported []*weirv1.MuxEvent) {
	state := m.store.State()
	for _, e := range reported[:min(len(reported), maxMuxEvents)] {
		address, err := netip.ParseAddr(e.GetVip())
		vip, there := state.VIPAt(address)
		reason, known := hostReasons[e.GetReason()]
		if err != nil || !there || !known || !state.Serves(host, vip.Name) {
			continue
		}
		text := reason.text
		if reason.figures {
			text = fmt.Sprintf(text, e.GetUsed(), e.GetLimit())
		}
		m.events.Record(store.Event{
			Kind: events.KindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: reason.warning, Reason: e.GetReason(),
			Message: address.String() + ": " + text, Source: host,
		})
	}
}

// toldOf is what an event is about: an endpoint of a VIP, or the VIP itself.
func toldOf(e *weirv1.MuxEvent) (vip netip.Addr, what string, err error) {
	if e.GetEndpoint() == nil {
		vip, err = netip.ParseAddr(e.GetVip())
		return vip, vip.String(), err
	}
	key, err := wire.EndpointKeyFromProto(e.GetEndpoint())
	return key.VIP, key.String(), err
}
