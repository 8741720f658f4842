package netlab

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/lab/ethernet"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/tcx"
)

// path is what lies between a client and the router, where Narrow puts something.
const path Kind = "path"

// Narrow puts a router of another network between a client and the lab's router; the link from there
// on has this MTU. The client's own link keeps the MTU that it has, so only ICMP tells it.
//
//	client 10.0.i.2 ── 10.0.i.1  path  10.5.i.2 ══ MTU ══ 10.5.i.1 router
func (l *network) Narrow(client string, mtu int) error {
	n, err := l.Node(client)
	if err != nil {
		return err
	}
	if n.Kind != Client {
		return fmt.Errorf("narrow the path of %s: it is no client", client)
	}
	ns, err := l.NS(client)
	if err != nil {
		return err
	}
	router, err := l.NS(string(Router))
	if err != nil {
		return err
	}
	between, err := l.create(client+string(path), "net.ipv4.ip_forward", "net.ipv6.conf.all.forwarding")
	if err != nil {
		return err
	}
	gateway4, gateway6 := n.gateway()
	near4, near6 := address4(path, n.Number, 1), address6(path, n.Number, 1)
	far4, far6 := address4(path, n.Number, 2), address6(path, n.Number, 2)
	const port = "client"
	return first(
		func() error { return router.DeleteLink(client) }, // and the client's end with it
		func() error { return netns.Veth(between, port, ns, Uplink) },
		func() error { return addresses(between, port, 24, 64, gateway4, gateway6) },
		func() error { return addresses(ns, Uplink, 24, 64, n.IPv4, n.IPv6) },
		func() error { return ethernet.AddDefaultRoutes(ns, gateway4, gateway6) },
		func() error { return netns.Veth(router, client, between, Uplink) },
		func() error { return router.SetMTU(client, mtu) },
		func() error { return between.SetMTU(Uplink, mtu) },
		func() error { return addresses(router, client, 24, 64, near4, near6) },
		func() error { return addresses(between, Uplink, 24, 64, far4, far6) },
		func() error { return ethernet.AddDefaultRoutes(between, near4, near6) },
		func() error { return router.AddRoute(netip.PrefixFrom(n.IPv4, 24).Masked(), far4) },
		func() error { return router.AddRoute(netip.PrefixFrom(n.IPv6, 64).Masked(), far6) },
	)
}

// IgnoreMSS makes a client send segments of 1500 bytes whatever the servers ask for, as some do: a
// program at its interface writes the largest MSS into each SYN/ACK on its way in. It stays with the
// interface.
func (l *network) IgnoreMSS(client string) error {
	ns, err := l.NS(client)
	if err != nil {
		return err
	}
	if err := tcx.RaiseMSS(ns, Uplink, l.silencePin(client, "mss")); err != nil {
		return fmt.Errorf("make %s ignore the MSS: %w", client, err)
	}
	return nil
}
