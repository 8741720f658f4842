package diagnose

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/ctl/table"
)

// What is normal just after a session came up is warned of when it lasts.
const (
	bfdTime     = 10 * time.Second // BFD is started after BGP, and may need a second attempt
	silentTime  = 15 * time.Minute // with few clients their hash may pass a mux over for a while
	arrivalTime = time.Minute      // a packet that came within it came just now
)

// warnDisconnected says what is known of a node that does not report: that it is dead is not.
func (o *observation) warnDisconnected(n *weirv1.Node, name string) {
	status := n.GetStatus()
	runs := fmt.Sprintf("works on with generation %d", status.GetGeneration())
	if status.GetGeneration() == 0 {
		runs = "runs none"
	}
	if routes := o.routesOfTheDead(n); routes != "" {
		runs = fmt.Sprintf("%s if it is alive; if weir-mux has ended there, %s", runs, routes)
	}
	o.add("%s: %s; it %s: check the machine, or weir delete node %s if it is gone for good",
		name, table.NodeState(n, o.now), runs, n.GetName())
}

// routesOfTheDead says what routers did with a mux's routes if it ended when it was last seen; empty: it had none, or
// does not tell how long they keep them.
func (o *observation) routesOfTheDead(n *weirv1.Node) string {
	mux := n.GetStatus().GetMux()
	if mux.GetGracefulRestart() == nil || n.GetStatus().GetLastSeen() == nil {
		return ""
	}
	routes, keeps := 0, true
	for _, p := range mux.GetPeers() {
		if p.GetState() == table.BGPEstablished && p.GetRoutes() > 0 {
			routes++
			keeps = keeps && p.GetKeepsRoutes()
		}
	}
	kept := mux.GetGracefulRestart().AsDuration()
	left := kept - o.now.Sub(n.GetStatus().GetLastSeen().AsTime())
	switch {
	case routes == 0:
		return ""
	case kept == 0 || !keeps:
		return "routers have dropped its routes at once"
	case left > 0:
		return fmt.Sprintf("routers keep its routes for %s more", left.Round(time.Second))
	}
	return fmt.Sprintf("routers have dropped its routes %s ago, after --graceful-restart of %s", (-left).Round(time.Second), kept)
}

func (o *observation) warnMux(n *weirv1.Node, mux *weirv1.MuxStatus) {
	name := "mux " + n.GetName()
	if len(mux.GetPeers()) == 0 {
		o.add("%s: has no BGP peer: no router sends it packets", name)
	}
	for _, p := range mux.GetPeers() {
		if p.GetState() == table.BGPEstablished {
			o.warnSession(name, mux, p)
			continue
		}
		text := fmt.Sprintf("%s: BGP session with %s is %s", name, p.GetAddress(), p.GetState())
		if p.GetLastError() != "" {
			text += ": " + p.GetLastError()
		}
		o.add("%s", text)
	}
	o.warnArrivals(n, mux)
	for _, warning := range mux.GetWarnings() {
		o.add("%s: %s", name, warning)
	}
}

// warnSession says what a router that has a session does not do.
func (o *observation) warnSession(name string, mux *weirv1.MuxStatus, p *weirv1.BGPPeer) {
	up := o.now.Sub(p.GetSince().AsTime())
	for _, f := range p.GetFamilies() {
		if !f.GetNegotiated() && f.GetRoutes() > 0 && !takesFamily(mux, p.GetAs(), f.GetName()) {
			o.add("%s: router %s takes no routes of %s, so %d are not sent: activate that family for this mux there",
				name, p.GetAddress(), f.GetName(), f.GetRoutes())
		}
	}
	if p.GetBfd() == "down" && up > bfdTime {
		o.add("%s: BFD with %s does not come up, BGP did %s ago: enable it for this mux there, and let UDP port 3784 pass; "+
			"until then routers find a dead mux by the hold time", name, p.GetAddress(), table.Span(up))
	}
	if len(p.GetFamilies()) > 0 && !p.GetKeepsRoutes() && mux.GetGracefulRestart().AsDuration() > 0 {
		o.add("%s: router %s takes no part in graceful restart: it drops the routes whenever weir-mux restarts",
			name, p.GetAddress())
	}
}

// takesFamily tells whether a session of the mux with an AS has the family: routers may have a session for each.
func takesFamily(mux *weirv1.MuxStatus, as uint32, family string) bool {
	for _, p := range mux.GetPeers() {
		for _, f := range p.GetFamilies() {
			if p.GetAs() == as && f.GetName() == family && f.GetNegotiated() {
				return true
			}
		}
	}
	return false
}

// warnArrivals warns of routes that bring no packets: a router tells nobody that its policy refuses what it was sent.
func (o *observation) warnArrivals(n *weirv1.Node, mux *weirv1.MuxStatus) {
	routes, since, to := uint32(0), o.now, []string{}
	for _, p := range mux.GetPeers() {
		if p.GetState() == table.BGPEstablished && p.GetRoutes() > 0 && len(p.GetFamilies()) > 0 {
			routes, to = max(routes, p.GetRoutes()), append(to, p.GetAddress())
			if at := p.GetSince().AsTime(); at.Before(since) {
				since = at
			}
		}
	}
	if last := mux.GetLastPacket(); last != nil && last.AsTime().After(since) {
		since = last.AsTime()
	}
	silent := o.now.Sub(since)
	if routes == 0 || silent < silentTime {
		return
	}
	other := o.muxWithPackets(n)
	if other == "" {
		return // there may be no clients, or switches have all VIPs
	}
	o.add("mux %s: no packet of a VIP has come for %s, and mux %s gets them, though %s has its %d routes: if clients send, "+
		"its import policy refuses them, or has no ECMP: look there; weir doctor path VIP:PORT, on a client, proves it",
		n.GetName(), table.Span(silent), other, strings.Join(to, " and "), routes)
}

// muxWithPackets names a mux, other than n, that packets of VIPs came to just now.
func (o *observation) muxWithPackets(n *weirv1.Node) (name string) {
	for _, other := range o.status.GetNodes() {
		last := other.GetStatus().GetMux().GetLastPacket()
		if other.GetName() != n.GetName() && other.GetStatus().GetConnected() && last != nil &&
			o.now.Sub(last.AsTime()) < arrivalTime {
			name = cmp.Or(name, other.GetName())
		}
	}
	return name
}
