package doctor

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"

	vnl "github.com/vishvananda/netlink"

	"github.com/weirlb/weir/internal/netlink"
)

// Sizes of packets and of their encapsulation.
const (
	plainMTU   = 1500 // of most clients
	leastMTU   = 1280 // of IPv6
	outerIPv4  = 20
	outerIPv6  = 40
	mostIP     = 65535
	mostChecks = 256 // routes in one check
)

// route is a path of tunnels' packets.
type route struct {
	to   netip.Addr
	name string     // of who is there
	node netip.Addr // the node's own address, on the same path: that of the tunnel may belong to nobody, or to a workload
}

// checkRouteMTU checks the MTU of the routes to tunnels, whose packets are larger than clients'.
func checkRouteMTU(ctx context.Context, s Subject) []Finding {
	routes, err := routesOf(ctx, s)
	if err != nil {
		return unknown(err, "make sure that the routes between muxes and hosts carry 1576 bytes")
	}
	own, err := netlink.FindInterface(s.Interface)
	if err != nil {
		return bad(Fail, "name an interface that is there", "%v", err)
	}
	if len(routes) == 0 {
		return ok("there is nobody to send to yet")
	}
	return judgeRoutes(ctx, s, routes, own.MTU)
}

// judgeRoutes checks each route's MTU, and whether the path carries it.
func judgeRoutes(ctx context.Context, s Subject, routes []route, ownMTU int) (found []Finding) {
	seen, probed := probe(ctx, routes)
	whole, silent, told := 0, 0, map[string]int{}
	for _, w := range routes {
		f, fits := judgeRoute(s, w, ownMTU)
		if seen[w.node] == blackHole && f.Level != Fail {
			f, fits = lossy(w), false
		}
		if fits {
			whole++
			if seen[w.node] == unanswered {
				silent++
			}
			continue
		}
		if told[f.Next]++; told[f.Next] == 1 {
			found = append(found, f)
		}
	}
	for i := range found { // one line for all of one cause
		if more := told[found[i].Next] - 1; more > 0 {
			found[i].Reason += fmt.Sprintf("; likewise %d more", more)
		}
	}
	if whole > 0 {
		text := fmt.Sprintf("%d of %d routes carry what they must", whole, len(routes))
		if len(routes) == mostChecks {
			text += "; there may be more, which are not looked at"
		}
		if probed == nil && silent > 0 {
			text += fmt.Sprintf("; %d answer no echo request, so only their routes were looked at", silent)
		}
		found = append(found, ok("%s", text)...)
	}
	if probed != nil {
		found = append(found, unknown(probed, "run it as root")...)
	}
	return found
}

// probe sends packets of the routes' MTU.
func probe(ctx context.Context, routes []route) (map[netip.Addr]carriage, error) {
	mtus := map[netip.Addr]int{}
	for _, w := range routes {
		if mtu := w.probed(); mtu > smallEcho {
			mtus[w.node] = mtu
		}
	}
	return probeRoutes(ctx, mtus)
}

// probed is the size that both the route to the tunnel and that to its node allow; 0: it is not known.
func (w route) probed() int {
	if !w.node.IsValid() {
		return 0
	}
	tunnel, err := routeMTU(w.to)
	node, failed := routeMTU(w.node)
	if err != nil || failed != nil {
		return 0
	}
	return min(tunnel, node, mostIP)
}

// lossy is the finding of a path MTU black hole: it carries less than its route's MTU, without an ICMP error.
func lossy(w route) Finding {
	return bad(Fail, fmt.Sprintf("have the network carry %d bytes to %s, or give the route to %s the MTU that the way has: ip route change ... mtu", w.probed(), w.node, w.to),
		"the route to %s of %s is a black hole for large packets: an echo request of %d bytes to %s, as the route allows, gets no answer, and one of %d does",
		w.to, w.name, w.probed(), w.node, smallEcho)[0]
}

// judgeRoute says whether a route's MTU suffices, or why not.
func judgeRoute(s Subject, w route, ownMTU int) (Finding, bool) {
	mtu, err := routeMTU(w.to)
	if err != nil {
		return bad(Fail, "ip route get "+w.to.String(), "no route to %s of %s: %v", w.to, w.name, err)[0], false
	}
	if s.Role == Host {
		if mtu < ownMTU {
			return bad(Fail, "ip link set "+s.Interface+" mtu "+fmt.Sprint(mtu)+", so that the agent clamps the MSS to what fits",
				"the route to mux %s (%s) carries %d bytes, the uplink %d: large packets of clients are lost", w.name, w.to, mtu, ownMTU)[0], false
		}
		return Finding{}, true
	}
	outer := outerIPv4
	if w.to.Is6() {
		outer = outerIPv6
	}
	inner := mtu - outer
	switch {
	case inner < leastMTU:
		return bad(Fail, "raise the MTU of the route", "the route to %s of %s carries %d bytes: too little for IPv6, whose packets of %d must pass",
			w.to, w.name, mtu, leastMTU)[0], false
	case inner < plainMTU:
		return bad(Warn, fmt.Sprintf("raise the MTU of the route to %d (better 1576: GUE needs more), or live with it: TCP is told to send less", plainMTU+outer),
			"the route to %s of %s carries %d bytes: packets of clients above %d are refused with the size that fits", w.to, w.name, mtu, inner)[0], false
	}
	return Finding{}, true
}

// routeMTU is the MTU of the route to an address: the route's own, or one that a router told, or the interface's.
func routeMTU(to netip.Addr) (int, error) {
	routes, err := vnl.RouteGet(net.IP(to.AsSlice()))
	if err != nil || len(routes) == 0 {
		return 0, fmt.Errorf("look up the route: %w", err)
	}
	if routes[0].MTU > 0 {
		return routes[0].MTU, nil
	}
	link, err := vnl.LinkByIndex(routes[0].LinkIndex)
	if err != nil {
		return 0, fmt.Errorf("look up the interface of the route: %w", err)
	}
	return link.Attrs().MTU, nil
}

// routes are those that were found, and the nodes' addresses by name.
type routes struct {
	found []route
	nodes map[string][]netip.Addr
}

func (w *routes) add(text, name string) {
	to, err := netip.ParseAddr(text)
	if err != nil || len(w.found) >= mostChecks || slices.ContainsFunc(w.found, func(other route) bool { return other.to == to }) {
		return
	}
	one := route{to: to, name: name}
	for _, a := range w.nodes[name] {
		if a == to || !one.node.IsValid() && a.Is4() == to.Is4() {
			one.node = a
		}
	}
	w.found = append(w.found, one)
}

// routesOf asks the managers for the tunnels of a mux, or the peers of a host.
func routesOf(ctx context.Context, s Subject) ([]route, error) {
	client, err := s.Connect()
	if err != nil {
		return nil, err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	w := routes{nodes: map[string][]netip.Addr{}}
	listed, err := client.Nodes(ctx, "")
	if err != nil {
		return nil, err
	}
	for _, n := range listed {
		for _, text := range n.GetAddresses() {
			if a, err := netip.ParseAddr(text); err == nil {
				w.nodes[n.GetName()] = append(w.nodes[n.GetName()], a)
			}
		}
	}
	if s.Role == Host {
		for _, n := range listed {
			for _, a := range n.GetAddresses() {
				if n.GetRole() == string(Mux) {
					w.add(a, n.GetName())
				}
			}
		}
		return w.found, nil
	}
	answer, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	for i, more := 0, true; more; i++ { // one of each host first, in case there are too many
		more = false
		for _, h := range answer.GetHostBackends() {
			if i < len(h.GetTunnels()) {
				w.add(h.GetTunnels()[i], h.GetHost())
				more = true
			}
		}
	}
	return w.found, nil
}
