// Package warning says what needs attention in an installation, of what GetStatus tells: the lines of "weir status" and of
// the web page.
//
// Invariants:
//   - a line names the thing, what is wrong with it and, where that is known, what to do;
//   - what is normal just after a start, or where there are no clients, is no warning;
//   - no line holds what a terminal obeys.
package warning

import (
	"fmt"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/elapsed"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/model"
)

// What a warning is of, if it is of a VIP.
const kindVIP = "VIP"

const (
	roleMux        = string(model.RoleMux)
	bgpEstablished = "established"
)

// Of lists what needs attention, the worst first; total counts those too that the status leaves out.
func Of(status *weirv1.GetStatusResponse, now time.Time) (list []*weirv1.Warning, total int) {
	c := collector{now: now, status: status}
	return c.collect()
}

// collector has what was found.
type collector struct {
	now    time.Time
	status *weirv1.GetStatusResponse
	list   []*weirv1.Warning
}

func (c *collector) collect() (list []*weirv1.Warning, total int) {
	muxes, connected := 0, 0
	for _, n := range c.status.GetNodes() {
		if n.GetRole() == roleMux {
			muxes++
			if n.GetStatus().GetConnected() {
				connected++
			}
		}
	}
	switch {
	case muxes == 0 && c.status.GetVips() > 0:
		c.add("", "", "no mux is registered: nothing forwards packets, start weir-mux")
	case muxes > 0 && connected == 0:
		c.add("", "", "no mux is connected: those that run forward with the tables they have, and learn of no change")
	}
	for _, text := range c.status.GetVipWarnings() {
		c.add(kindVIP, vipOf(text), "%s", text)
	}
	untold := int(c.status.GetVipWarningsTotal()) - len(c.status.GetVipWarnings())
	if untold > 0 {
		c.add(kindVIP, "", "and %d more of VIPs: weir get vips --with-warnings", untold)
		untold-- // this line is counted too
	}
	for _, n := range c.status.GetNodes() {
		c.node(n)
	}
	return c.list, len(c.list) + max(untold, 0)
}

// vipOf is the VIP that a line begins with: "vip shop, TCP 80: ...".
func vipOf(text string) string {
	rest, is := strings.CutPrefix(text, "vip ")
	if end := strings.IndexAny(rest, " ,:"); is && end > 0 {
		return rest[:end]
	}
	return ""
}

// add adds a warning; nodes' words may be in it, of managers that take them as they are.
func (c *collector) add(kind, name, format string, args ...any) {
	c.list = append(c.list, &weirv1.Warning{Text: events.Printable(fmt.Sprintf(format, args...)), Kind: kind, Name: name})
}

// of adds a warning of a node.
func (c *collector) of(n *weirv1.Node, format string, args ...any) {
	c.add(n.GetRole(), n.GetName(), "%s %s: %s", n.GetRole(), n.GetName(), fmt.Sprintf(format, args...))
}

func (c *collector) node(n *weirv1.Node) {
	status := n.GetStatus()
	if r := status.GetRejection(); r.GetReason() != "" {
		c.of(n, "refused generation %d: %s", r.GetGeneration(), r.GetReason())
	}
	switch {
	case !status.GetConnected():
		c.disconnected(n)
		return
	case status.GetRejection().GetReason() != "":
		// Told above.
	case status.GetGeneration() < c.status.GetGeneration() && n.GetRole() == roleMux:
		c.of(n, "runs generation %d, the newest is %d", status.GetGeneration(), c.status.GetGeneration())
	}
	if mux := status.GetMux(); mux != nil {
		c.mux(n, mux)
	}
	for _, text := range status.GetHost().GetWarnings() {
		c.of(n, "%s", text)
	}
	for _, text := range status.GetSwitch().GetWarnings() {
		c.of(n, "%s", text)
	}
}

// disconnected says what is known of a node that does not report: that it is dead is not.
func (c *collector) disconnected(n *weirv1.Node) {
	status := n.GetStatus()
	runs := fmt.Sprintf("works on with generation %d", status.GetGeneration())
	if status.GetGeneration() == 0 {
		runs = "runs none"
	}
	if routes := c.routesOfTheDead(n); routes != "" {
		runs = fmt.Sprintf("%s if it is alive; if weir-mux has ended there, %s", runs, routes)
	}
	c.of(n, "disconnected, last seen %s; it %s: check the machine, or weir delete node %s if it is gone for good",
		elapsed.Ago(status.GetLastSeen(), c.now), runs, n.GetName())
}
