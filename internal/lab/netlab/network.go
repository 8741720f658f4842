package netlab

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/lab/ethernet"
	"github.com/weirlb/weir/internal/lab/netns"
)

// SegmentLink is the router's interface to the muxes' segment, on which it takes VIPs for its neighbors.
const SegmentLink = "segment"

var (
	segment4 = netip.MustParsePrefix("203.0.113.254/24")
	segment6 = netip.MustParsePrefix("2001:db8:113::fffe/64")
)

// Uplink is the name of each node's interface towards the router, or towards its host.
const Uplink = "eth0"

var (
	all4 = netip.MustParsePrefix("0.0.0.0/0")
	all6 = netip.MustParsePrefix("::/0")

	forwarding = []string{"net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding"}
)

func (l *network) buildNetwork() error {
	router, err := l.create(string(Router), forwarding...)
	if err == nil && l.Segment {
		err = ethernet.Build(router, SegmentLink, segment4, segment6)
	}
	if err == nil {
		err = buildFabric(l)
	}
	if err != nil {
		return err
	}
	for _, n := range l.Nodes() {
		switch {
		case n.Kind == Workload && n.Native:
			err = l.addNative(n)
		case n.Kind == Workload:
			err = l.addContainer(n)
		case n.Kind == Tenant, l.inFabric(n): // made with its host; made before
		default:
			err = l.addMachine(n)
		}
		if err != nil {
			return err
		}
	}
	return addTenants(l)
}

// create makes a namespace and switches knobs on in it.
func (l *network) create(node string, on ...string) (*netns.NS, error) {
	ns, err := netns.Create(l.space(node))
	if err != nil {
		return nil, err
	}
	l.spacesMu.Lock()
	l.spaces[node] = ns
	l.spacesMu.Unlock()
	if err := ethernet.SwitchOn(ns, on...); err != nil {
		return nil, err
	}
	return ns, nil
}

// addMachine makes a node and the link from the router above to it.
func (l *network) addMachine(n Node) error {
	router, err := l.NS(l.Above(n))
	if err != nil {
		return err
	}
	var forward []string
	if n.Kind == Host || n.Kind == Switch {
		forward = forwarding
	}
	ns, err := l.create(n.Name, forward...)
	if err != nil {
		return err
	}
	if err := netns.Veth(router, n.Name, ns, Uplink); err != nil {
		return err
	}
	gateway4, gateway6 := n.gateway()
	at := n.Name
	if n.Kind == Mux && l.Segment {
		at = SegmentLink
		if err := ethernet.Join(router, SegmentLink, n.Name); err != nil {
			return err
		}
	}
	err = first(
		func() error { return addresses(router, at, 24, 64, gateway4, gateway6) },
		func() error { return addresses(ns, Uplink, 24, 64, n.IPv4, n.IPv6) },
		func() error { return ns.AddRoute(all4, gateway4) },
		func() error { return ns.AddRoute(all6, gateway6) },
	)
	if err == nil && l.Above(n) != string(Router) {
		err = prepareRack(router, ns, n)
	}
	switch {
	case err != nil:
		return err
	case n.Kind == Mux && l.Above(n) != string(Router):
		return nil
	case n.Kind == Mux:
		return ethernet.PrepareForXDP(router, n.Name)
	case n.Kind == Host:
		return routeWorkloads(router, n)
	}
	return nil
}

func routeWorkloads(router *netns.NS, host Node) error {
	return first(
		func() error { return router.ReplaceRoute(workloadNet4(host), host.IPv4) },
		func() error { return router.ReplaceRoute(workloadNet6(host), host.IPv6) },
	)
}

func workloadNet4(host Node) netip.Prefix {
	return netip.PrefixFrom(address4(Workload, host.Number, 0), 24)
}

func workloadNet6(host Node) netip.Prefix {
	return netip.PrefixFrom(address6(Workload, host.Number, 0), 64)
}

// addContainer makes a workload in a namespace of its own, as container networks without a bridge
// do: the host routes each address to one interface, and all interfaces share the gateway's address.
func (l *network) addContainer(n Node) error {
	host, err := l.NS(n.Host)
	if err != nil {
		return err
	}
	ns, err := l.create(n.Name)
	if err != nil {
		return err
	}
	port := fmt.Sprintf("w%d", n.Number)
	if err := netns.Veth(host, port, ns, Uplink); err != nil {
		return err
	}
	return connectContainer(host, port, ns, n)
}

// connectContainer gives both ends of a container's link their addresses and routes.
func connectContainer(host *netns.NS, port string, ns *netns.NS, n Node) error {
	gateway4, gateway6 := n.gateway()
	return first(
		func() error { return addresses(host, port, 32, 128, gateway4, gateway6) },
		func() error { return host.AddLinkRoute(netip.PrefixFrom(n.IPv4, 32), port) },
		func() error { return host.AddLinkRoute(netip.PrefixFrom(n.IPv6, 128), port) },
		func() error { return addresses(ns, Uplink, 32, 128, n.IPv4, n.IPv6) },
		func() error { return ns.AddLinkRoute(netip.PrefixFrom(gateway4, 32), Uplink) },
		func() error { return ns.AddLinkRoute(netip.PrefixFrom(gateway6, 128), Uplink) },
		func() error { return ns.AddRoute(all4, gateway4) },
		func() error { return ns.AddRoute(all6, gateway6) },
	)
}

// addNative gives the host a workload's addresses.
func (l *network) addNative(n Node) error {
	host, err := l.NS(n.Host)
	if err != nil {
		return err
	}
	return addresses(host, "lo", 32, 128, n.IPv4, n.IPv6)
}

func addresses(ns *netns.NS, link string, bits4, bits6 int, v4, v6 netip.Addr) error {
	return ns.AddAddress(link, netip.PrefixFrom(v4, bits4), netip.PrefixFrom(v6, bits6))
}

// first runs steps until one fails.
func first(steps ...func() error) error {
	for _, step := range steps {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}
