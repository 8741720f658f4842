package manager

import (
	"net/netip"
	"slices"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/store"
)

// Bounds of what a mux may tell.
const (
	maxMuxEvents  = 64
	maxMuxMessage = 256
)

// muxReasons are those that a mux may give.
var muxReasons = []string{"SYNCookiesOn", "SYNCookiesOff", "ShareOn", "ShareOff"}

// hostReasons are those that a host may give.
var hostReasons = []string{"SessionQuotaOn", "SessionQuotaOff", "SNATQuotaOn", "SNATQuotaOff"}

// noteDone notes what a node did by itself about endpoints and VIPs. What is of no VIP, or not of reasons, is
// left out.
func (m *Manager) noteDone(node string, reasons []string, events []*weirv1.MuxEvent) {
	for _, e := range events[:min(len(events), maxMuxEvents)] {
		address, what, err := toldOf(e)
		vip, there := m.store.State().VIPAt(address)
		if err != nil || !there || !slices.Contains(reasons, e.GetReason()) {
			continue
		}
		m.note(store.Event{
			Kind: kindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: e.GetWarning(), Reason: e.GetReason(),
			Message: what + ": " + cutMessage(e.GetMessage()), Source: node,
		})
	}
}

// cutMessage cuts what a mux tells to what is kept of it, between two letters.
func cutMessage(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxMuxMessage)], "")
}

// toldOf is what an event is about: an endpoint of a VIP, or the VIP itself.
func toldOf(e *weirv1.MuxEvent) (vip netip.Addr, what string, err error) {
	if e.GetEndpoint() == nil {
		vip, err = netip.ParseAddr(e.GetVip())
		return vip, vip.String(), err
	}
	key, err := rpc.EndpointKeyFromProto(e.GetEndpoint())
	return key.VIP, key.String(), err
}
