// Package reason names the reasons of events: CamelCase words for programs, as in Kubernetes. The condition of a VIP and the
// action of an overload policy are reasons too, and stand in package condition.
//
// A reason that a node reports is allowed here, where it is named: a manager drops any other one.
package reason

import (
	"fmt"
	"slices"

	"github.com/weirlb/weir/internal/rpc"
)

// Reasons of managers.
const (
	Created          = "Created"
	Updated          = "Updated"
	Deleted          = "Deleted"
	LeaderElected    = "LeaderElected"
	Joined           = "Joined" // a node's stream is open
	Lost             = "Lost"   // it is not any more
	BackendHealthy   = "BackendHealthy"
	BackendUnhealthy = "BackendUnhealthy"
	Restored         = "Restored" // no overload action is in force any more
	PortsExhausted   = "PortsExhausted"
	PortLimitReached = "PortLimitReached"
	PortsDiffer      = "PortsDiffer" // of a node and of the store
	PortsMended      = "PortsMended"
	Attached         = "Attached" // a VIP, to a virtual network
	Detached         = "Detached"

	HardwarePlaced    = "HardwarePlaced"    // a switch serves a VIP
	HardwareWithdrawn = "HardwareWithdrawn" // it does not any more
	HardwareRefused   = "HardwareRefused"   // it does not take the VIP's entry
	HardwareFlooded   = "HardwareFlooded"   // a VIP in switches is flooded: it leaves them, or muxes have no room for it
	HardwareFloodOver = "HardwareFloodOver" // it may go back
	SwitchSilent      = "SwitchSilent"      // a switch that holds VIPs has no stream
	SwitchDrained     = "SwitchDrained"
	SwitchUndrained   = "SwitchUndrained"

	LinkMissing    = "LinkMissing"    // links of the fabric are not there
	LinkDown       = "LinkDown"       // links of the fabric are down
	LinkUnexpected = "LinkUnexpected" // links are there that the fabric does not have
	LinkFlapping   = "LinkFlapping"   // links of the fabric go up and down again and again
	LinksRestored  = "LinksRestored"  // none of these any more
)

// OfChange are the reasons of what an apply did.
var OfChange = map[string]string{rpc.Created: Created, rpc.Updated: Updated}

// Reasons that muxes report.
const (
	SYNCookiesOn  = "SYNCookiesOn"
	SYNCookiesOff = "SYNCookiesOff"
	ShareOn       = "ShareOn"
	ShareOff      = "ShareOff"

	NeighborConflict = "NeighborConflict" // another station claims the address of a VIP
)

var ofMux = []string{SYNCookiesOn, SYNCookiesOff, ShareOn, ShareOff, NeighborConflict}

// IsOfMux says whether a mux may report a reason.
func IsOfMux(reason string) bool { return slices.Contains(ofMux, reason) }

// Reasons that hosts report.
const (
	SessionQuotaOn  = "SessionQuotaOn"
	SessionQuotaOff = "SessionQuotaOff"
	SNATQuotaOn     = "SNATQuotaOn"
	SNATQuotaOff    = "SNATQuotaOff"
)

// Host is a reason that hosts report, with its text: tenants read no words of a host.
type Host struct {
	Warning bool
	text    string
	figures bool // the text has the rows in use, and the most of them
}

// Message is the text of an event, with figures if the text has some.
func (h Host) Message(used, limit uint64) string {
	if !h.figures {
		return h.text
	}
	return fmt.Sprintf(h.text, used, limit)
}

// OfHost are the reasons that a host may report.
var OfHost = map[string]Host{
	SessionQuotaOn:  {true, "has %d of at most %d sessions: more make way for each other", true},
	SessionQuotaOff: {text: "wants no more sessions than it may have"},
	SNATQuotaOn:     {true, "workloads' own connections are refused: their tenant has %d of at most %d rows of a table of source NAT", true},
	SNATQuotaOff:    {text: "no connection of its workloads is refused"},
}
