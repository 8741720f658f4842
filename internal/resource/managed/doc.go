// Package managed holds the backends of field managers: programs that write single backends of an endpoint, as autoscalers and
// controllers do, beside who writes the VIP. Pure: no I/O, no clock.
//
// Invariants:
//   - a backend has one writer: a field manager, or who writes the VIP. Only by force another one takes it over;
//   - a VIP that is written without the backends of field managers keeps them, as long as their endpoint stays.
package managed

import "github.com/weirlb/weir/internal/model"

// endpointOf is where the endpoint of a protocol and port is in vip; -1: nowhere.
func endpointOf(vip model.VIP, protocol model.Protocol, port uint16) int {
	for i, e := range vip.Endpoints {
		if e.Protocol == protocol && e.Port == port {
			return i
		}
	}
	return -1
}

// writer is how people are told who writes a backend.
func writer(b model.Backend) string {
	if b.FieldManager == "" {
		return "is written with the VIP"
	}
	return "is of field manager " + b.FieldManager
}
