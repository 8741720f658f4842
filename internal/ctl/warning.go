package ctl

import (
	"fmt"
	"maps"
	"slices"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
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
	case muxes == 0 && len(o.vips) > 0:
		o.add("no mux is registered: nothing forwards packets, start weir-mux")
	case muxes > 0 && connected == 0:
		o.add("no mux is connected: they forward with the tables they have, and learn of no change")
	}
	for _, vip := range o.vips {
		o.warnVIP(vip)
	}
	o.warnRefused()
	for _, n := range o.status.GetNodes() {
		o.warnNode(n)
	}
}

func (o *observation) add(format string, args ...any) {
	o.warnings = append(o.warnings, fmt.Sprintf(format, args...))
}

func (o *observation) warnVIP(vip *weirv1.VIP) {
	for _, e := range vip.GetEndpoints() {
		var all tally
		for _, b := range e.GetBackends() {
			all.add(b)
		}
		endpoint := fmt.Sprintf("vip %s, %s %s", vip.GetName(), e.GetProtocol(), portName(e.GetPort()))
		switch {
		case all.total == 0:
			o.add("%s: has no backends: the muxes drop what arrives", endpoint)
		case all.total == all.draining:
			o.add("%s: all backends drain: new connections are dropped", endpoint)
		case all.serving == 0 && e.GetAllUnhealthy() == string(model.Refuse):
			o.add("%s: no backend is healthy: new connections are dropped", endpoint)
		case all.serving == 0:
			o.add("%s: no backend is healthy: connections go to all of them", endpoint)
		}
		for _, b := range e.GetBackends() {
			if model.Health(b.GetStatus().GetHealth()) == model.HealthUnhealthy {
				o.add("%s: backend %s on %s is %s", endpoint, hostPort(b.GetAddress(), b.GetPort()), b.GetHost(), backendState(b))
			}
		}
	}
}

// warnRefused tells each refusal once: a full table keeps out all VIPs of a generation.
func (o *observation) warnRefused() {
	refused := map[string][]string{} // names of VIPs
	for _, vip := range o.vips {
		for _, rejection := range vip.GetStatus().GetRejections() {
			refused[rejection] = append(refused[rejection], vip.GetName())
		}
	}
	for _, rejection := range slices.Sorted(maps.Keys(refused)) {
		vips := "vip " + refused[rejection][0]
		if others := len(refused[rejection]) - 1; others > 0 {
			vips += fmt.Sprintf(" and %d others", others)
		}
		o.add("%s: refused by %s", vips, rejection)
	}
}

func (o *observation) warnNode(n *weirv1.Node) {
	name := n.GetRole() + " " + n.GetName()
	status := n.GetStatus()
	if r := status.GetRejection(); r.GetReason() != "" {
		o.add("%s: refused generation %d: %s", name, r.GetGeneration(), r.GetReason())
	}
	switch {
	case !status.GetConnected():
		runs := fmt.Sprintf("works on with generation %d", status.GetGeneration())
		if status.GetGeneration() == 0 {
			runs = "runs none"
		}
		o.add("%s: %s; it %s: check the machine, or weir delete node %s if it is gone for good",
			name, o.session.nodeState(n), runs, n.GetName())
		return
	case status.GetRejection().GetReason() != "":
		// Told above.
	case status.GetGeneration() < o.status.GetGeneration() && n.GetRole() == roleMux:
		o.add("%s: runs generation %d, the newest is %d", name, status.GetGeneration(), o.status.GetGeneration())
	}
	if mux := status.GetMux(); mux != nil {
		o.warnMux(name, mux)
	}
	for _, warning := range status.GetHost().GetWarnings() {
		o.add("%s: %s", name, warning)
	}
}

func (o *observation) warnMux(name string, mux *weirv1.MuxStatus) {
	if len(mux.GetPeers()) == 0 {
		o.add("%s: has no BGP peer: no router sends it packets", name)
	}
	for _, p := range mux.GetPeers() {
		if p.GetState() == established {
			continue
		}
		text := fmt.Sprintf("%s: BGP session with %s is %s", name, p.GetAddress(), p.GetState())
		if p.GetLastError() != "" {
			text += ": " + p.GetLastError()
		}
		o.add("%s", text)
	}
	for _, warning := range mux.GetWarnings() {
		o.add("%s: %s", name, warning)
	}
}
