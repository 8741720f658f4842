package diagnose

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
)

// warn collects what needs attention: the worst first.
func (o *observation) warn() {
	muxes, connected := 0, 0
	for _, n := range o.status.GetNodes() {
		if n.GetRole() == roleMux {
			muxes++
			if n.GetStatus().GetConnected() {
				connected++
			}
		}
	}
	switch {
	case muxes == 0 && o.status.GetVips() > 0:
		o.add("no mux is registered: nothing forwards packets, start weir-mux")
	case muxes > 0 && connected == 0:
		o.add("no mux is connected: those that run forward with the tables they have, and learn of no change")
	}
	for _, warning := range o.status.GetVipWarnings() {
		o.add("%s", warning)
	}
	untold := int(o.status.GetVipWarningsTotal()) - len(o.status.GetVipWarnings())
	if untold > 0 {
		o.add("and %d more of VIPs: weir get vips --with-warnings", untold)
		untold-- // this line is counted too
	}
	for _, n := range o.status.GetNodes() {
		o.warnNode(n)
	}
	o.warned = len(o.warnings) + max(untold, 0)
}

// add adds a warning; nodes' words may be in it, of managers that take them as they are.
func (o *observation) add(format string, args ...any) {
	o.warnings = append(o.warnings, events.Printable(fmt.Sprintf(format, args...)))
}

func (o *observation) warnNode(n *weirv1.Node) {
	name := n.GetRole() + " " + n.GetName()
	status := n.GetStatus()
	if r := status.GetRejection(); r.GetReason() != "" {
		o.add("%s: refused generation %d: %s", name, r.GetGeneration(), r.GetReason())
	}
	switch {
	case !status.GetConnected():
		o.warnDisconnected(n, name)
		return
	case status.GetRejection().GetReason() != "":
		// Told above.
	case status.GetGeneration() < o.status.GetGeneration() && n.GetRole() == roleMux:
		o.add("%s: runs generation %d, the newest is %d", name, status.GetGeneration(), o.status.GetGeneration())
	}
	if mux := status.GetMux(); mux != nil {
		o.warnMux(n, mux)
	}
	for _, warning := range status.GetHost().GetWarnings() {
		o.add("%s: %s", name, warning)
	}
}
