package manager

import (
	"slices"

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
var muxReasons = []string{"SYNCookiesOn", "SYNCookiesOff"}

// noteMux notes what a mux did by itself about endpoints. What is of no VIP, or not of the list, is left out.
func (m *Manager) noteMux(mux string, events []*weirv1.MuxEvent) {
	for _, e := range events[:min(len(events), maxMuxEvents)] {
		key, err := rpc.EndpointKeyFromProto(e.GetEndpoint())
		vip, there := m.store.State().VIPAt(key.VIP)
		if err != nil || !there || !slices.Contains(muxReasons, e.GetReason()) {
			continue
		}
		message := e.GetMessage()
		m.note(store.Event{
			Kind: kindVIP, Object: vip.Name, Tenant: vip.Tenant, Warning: e.GetWarning(), Reason: e.GetReason(),
			Message: key.String() + ": " + message[:min(len(message), maxMuxMessage)], Source: mux,
		})
	}
}
