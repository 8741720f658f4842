package steering

import (
	"fmt"
	"net/netip"
)

// MaxRefusals is how many VIPs a host names that it does not steer, and how many hosts are named of one VIP.
const MaxRefusals = 64

// Refusal is a VIP that a host does not steer as it was told, but as before, or not at all.
type Refusal struct {
	VIP    netip.Addr
	Reason string
}

// RefusedError says which VIPs a host has no room for. All others are as it was told.
type RefusedError struct {
	VIPs []Refusal // by address, at least one
}

func (e *RefusedError) Error() string {
	text := fmt.Sprintf("steer %s: %s", e.VIPs[0].VIP, e.VIPs[0].Reason)
	if more := len(e.VIPs) - 1; more > 0 {
		text += fmt.Sprintf(", and %d more VIPs", more)
	}
	return text
}
