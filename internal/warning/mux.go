package warning

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/elapsed"
)

// What is normal just after a session came up is warned of when it lasts.
const (
	bfdTime     = 10 * time.Second // BFD is started after BGP, and may need a second attempt
	silentTime  = 15 * time.Minute // with few clients their hash may pass a mux over for a while
	unusedTime  = time.Minute      // a first client comes soon after the first session
	arrivalTime = time.Minute      // a packet that came within it came just now
)

// routesOfTheDead says what routers did with a mux's routes if it ended when it was last seen; empty: it had none, or
// does not tell how long they keep them.
func (c *collector) routesOfTheDead(n *weirv1.Node) string {
	mux := n.GetStatus().GetMux()
	if mux.GetGracefulRestart() == nil || n.GetStatus().GetLastSeen() == nil {
		return ""
	}
	routes, keeps := 0, true
	for _, p := range mux.GetPeers() {
		if p.GetState() == bgpEstablished && p.GetRoutes() > 0 {
			routes++
			keeps = keeps && p.GetKeepsRoutes()
		}
	}
	kept := mux.GetGracefulRestart().AsDuration()
	left := kept - c.now.Sub(n.GetStatus().GetLastSeen().AsTime())
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

func (c *collector) mux(n *weirv1.Node, mux *weirv1.MuxStatus) {
	if len(mux.GetPeers()) == 0 && len(n.GetNeighborPrefixes()) == 0 {
		c.of(n, "has no BGP peer and no neighbor prefix: no router sends it packets")
	}
	for _, p := range mux.GetPeers() {
		if p.GetState() == bgpEstablished {
			c.session(n, mux, p)
			continue
		}
		text := fmt.Sprintf("BGP session with %s is %s", p.GetAddress(), p.GetState())
		if p.GetLastError() != "" {
			text += ": " + p.GetLastError()
		}
		c.of(n, "%s", text)
	}
	c.arrivals(n, mux)
	for _, text := range mux.GetWarnings() {
		c.of(n, "%s", text)
	}
}

// session says what a router that has a session does not do.
func (c *collector) session(n *weirv1.Node, mux *weirv1.MuxStatus, p *weirv1.BGPPeer) {
	up := c.now.Sub(p.GetSince().AsTime())
	for _, f := range p.GetFamilies() {
		if !f.GetNegotiated() && f.GetRoutes() > 0 && !takesFamily(mux, p.GetAs(), f.GetName()) {
			c.of(n, "router %s takes no routes of %s, so %d are not sent: activate that family for this mux there",
				p.GetAddress(), f.GetName(), f.GetRoutes())
		}
	}
	if p.GetBfd() == "down" && up > bfdTime {
		c.of(n, "BFD with %s does not come up, BGP did %s ago: enable it for this mux there, and let UDP port 3784 pass; "+
			"until then routers find a dead mux by the hold time", p.GetAddress(), elapsed.Span(up))
	}
	if len(p.GetFamilies()) > 0 && !p.GetKeepsRoutes() && mux.GetGracefulRestart().AsDuration() > 0 {
		c.of(n, "router %s takes no part in graceful restart: it drops the routes whenever weir-mux restarts", p.GetAddress())
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

// arrivals warns of routes that bring no packets: a router tells nobody that its policy refuses what it was sent.
func (c *collector) arrivals(n *weirv1.Node, mux *weirv1.MuxStatus) {
	routes, since, to := uint32(0), c.now, []string{}
	for _, p := range mux.GetPeers() {
		if p.GetState() == bgpEstablished && p.GetRoutes() > 0 && len(p.GetFamilies()) > 0 {
			routes, to = max(routes, p.GetRoutes()), append(to, p.GetAddress())
			if at := p.GetSince().AsTime(); at.Before(since) {
				since = at
			}
		}
	}
	if last := mux.GetLastPacket(); last != nil && last.AsTime().After(since) {
		since = last.AsTime()
	}
	silent := c.now.Sub(since)
	if routes == 0 || silent < silentTime {
		return
	}
	other := c.muxWithPackets(n)
	if other == "" {
		return // there may be no clients, or switches have all VIPs
	}
	c.of(n, "no packet of a VIP has come for %s, and mux %s gets them, though %s has its %d routes: if clients send, "+
		"its import policy refuses them, or has no ECMP: look there; weir doctor path VIP:PORT, on a client, proves it",
		elapsed.Span(silent), other, strings.Join(to, " and "), routes)
}

// muxWithPackets names a mux, other than n, that packets of VIPs came to just now.
func (c *collector) muxWithPackets(n *weirv1.Node) (name string) {
	for _, other := range c.status.GetNodes() {
		last := other.GetStatus().GetMux().GetLastPacket()
		if other.GetName() != n.GetName() && other.GetStatus().GetConnected() && last != nil &&
			c.now.Sub(last.AsTime()) < arrivalTime {
			name = cmp.Or(name, other.GetName())
		}
	}
	return name
}

// Silence notes that no mux gets a packet though routers have their routes; empty: one does. It is no warning: there may be
// no clients. That routers drop what muxes announce looks the same from here.
func Silence(status *weirv1.GetStatusResponse, now time.Time) string {
	var last time.Time
	since, announced := now, false
	for _, n := range status.GetNodes() {
		if n.GetStatus().GetSwitch() != nil {
			return "" // packets may go by it alone
		}
		mux := n.GetStatus().GetMux()
		if at := mux.GetLastPacket(); at != nil && at.AsTime().After(last) {
			last = at.AsTime()
		}
		for _, p := range mux.GetPeers() {
			if p.GetState() == bgpEstablished && p.GetRoutes() > 0 {
				if !n.GetStatus().GetConnected() {
					return "" // it may get all of them
				}
				announced = true
				if at := p.GetSince().AsTime(); at.Before(since) {
					since = at
				}
			}
		}
	}
	what, silent, patience := "has come for", now.Sub(last), silentTime
	if last.Before(since) {
		what, silent, patience = "has come since BGP came up, for", now.Sub(since), unusedTime
	}
	if !announced || silent < patience {
		return ""
	}
	return fmt.Sprintf("No mux gets packets: none of a VIP %s %s. Nobody sends, or routers drop what is announced: "+
		"weir doctor path VIP:PORT, on a client, tells which", what, elapsed.Span(silent))
}
