package netlab

import (
	"context"
	"fmt"
	"net/netip"
	"path/filepath"
	"strings"

	"github.com/weirlb/weir/internal/lab/clos"
	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/switches"
)

// fabric is the plan's Clos network; without one it has no switches. Validate has seen that the text can be read.
func (p Plan) fabric() clos.Fabric {
	if p.Fabric == "" {
		return clos.Fabric{}
	}
	f, err := clos.Parse(p.Fabric, string(Router))
	if err != nil {
		return clos.Fabric{}
	}
	return f
}

// Above is the router that a machine is connected to.
func (p Plan) Above(n Node) string {
	if p.Fabric != "" && (n.Kind == Mux || n.Kind == Host || n.Kind == ClientHost) {
		return p.fabric().ToR(n.Number)
	}
	return string(Router)
}

// inFabric tells whether a node is one of the fabric's switches.
func (p Plan) inFabric(n Node) bool { return p.Fabric != "" && n.Kind == Switch }

func buildFabric(l *network) error {
	for _, n := range l.Of(Switch) {
		if !l.inFabric(n) {
			return nil
		}
		ns, err := l.create(n.Name, forwarding...)
		if err != nil {
			return err
		}
		if err := clos.Loopback(ns, n.IPv4, n.IPv6); err != nil {
			return err
		}
	}
	for _, link := range l.fabric().Links {
		lower, err := l.NS(link.Lower)
		if err != nil {
			return err
		}
		upper, err := l.NS(link.Upper)
		if err != nil {
			return err
		}
		if err := link.Connect(lower, upper); err != nil {
			return err
		}
	}
	return nil
}

// prepareRack makes the link between a ToR and a machine fit for the switch's program.
func prepareRack(tor, machine *netns.NS, n Node) error {
	return first(
		func() error { return clos.PreparePort(tor, n.Name) },
		func() error { return machine.SetOffload(Uplink, netns.TxChecksum, false) },
		func() error {
			if n.Kind == Mux { // its own program will be there
				return nil
			}
			return machine.PassXDP(Uplink)
		},
	)
}

// networksBelow are those of the machines that are connected to a router.
func (p Plan) networksBelow(router string) (all []netip.Prefix) {
	for _, n := range p.Nodes() {
		if n.Kind == Workload || n.Kind == Tenant || n.Kind == Switch || p.Above(n) != router {
			continue
		}
		all = append(all, netip.PrefixFrom(n.IPv4, 24).Masked(), netip.PrefixFrom(n.IPv6, 64).Masked())
		if n.Kind == Host {
			all = append(all, workloadNet4(n), workloadNet6(n))
		}
	}
	return all
}

// fabricPicture lists who is below whom.
func (p Plan) fabricPicture() string {
	f := p.fabric()
	below := map[string][]string{}
	var beside []string
	for _, n := range p.Nodes() {
		switch {
		case n.Kind == Workload || n.Kind == Tenant || n.Kind == Switch:
		case p.Above(n) == string(Router):
			beside = append(beside, n.Name)
		default:
			below[p.Above(n)] = append(below[p.Above(n)], n.Name)
		}
	}
	return f.Picture(routerAS, strings.Join(beside, ", "), below)
}

// startFabric starts the FRR of each switch.
func (l *Lab) startFabric() error {
	for _, n := range l.Of(Switch) {
		if !l.inFabric(n) {
			return nil
		}
		if err := l.startSwitchRouter(n); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
	}
	return nil
}

// WaitFabric waits until the fabric has all routes that it has when nothing is broken.
func (l *programs) WaitFabric(ctx context.Context) error {
	if l.Fabric == "" {
		return nil
	}
	hops := func(router string, to netip.Prefix) (int, error) {
		ns, err := l.NS(router)
		if err != nil {
			return 0, err
		}
		return clos.Ways(ns, to)
	}
	var racks []netip.Prefix
	for _, n := range l.Of(Host) {
		racks = append(racks, netip.PrefixFrom(n.IPv4, 24).Masked())
	}
	client := netip.PrefixFrom(l.Of(Client)[0].IPv4, 24).Masked()
	return Poll(ctx, readyTime, func() error { return l.fabric().Converged(hops, client, racks) })
}

func (l *programs) startSwitchRouter(n Node) error {
	ns, err := l.NS(n.Name)
	if err != nil {
		return err
	}
	config := frr.Config{
		Dir: switchDir(&l.network, n.Name), AS: l.fabric().AS(n.Name, routerAS), PeerAS: muxAS, Password: password, Networks: l.networksBelow(n.Name), Source4: n.IPv4, Source6: n.IPv6,
	}
	config.Networks = append(config.Networks, netip.PrefixFrom(n.IPv4, 32), netip.PrefixFrom(n.IPv6, 128))
	for _, mux := range l.Of(Mux) {
		if l.Above(mux) == n.Name {
			config.Neighbors = append(config.Neighbors, mux.IPv4)
		}
	}
	// A Linux router takes no VIP that the kernel has a route to by another's. A router beside muxes would send what comes to their
	// aggregate back to routers that have heard before it that a VIP is withdrawn.
	if l.SwitchDriver == linuxDriver || len(config.Neighbors) > 0 {
		config.HostRoutes = []netip.Prefix{VIPs4, VIPs6}
	}
	return switches.InFabric(ns, n.Number, l.fabric().FRR(n.Name, routerAS, bfdInterval, config))
}

func switchDir(l *network, name string) string { return filepath.Join(l.dir, "frr-"+name) }

// SwitchRouter is the FRR of a switch.
func (l *cluster) SwitchRouter(name string) *frr.Router { return frr.Open(switchDir(&l.network, name)) }

// stopSwitch kills all that runs on a switch of the fabric. Neighbors see at once that its links are gone, unless it is silent.
// Its tables stay.
func (l *programs) stopSwitch(n Node, silent bool) error {
	return onPorts(&l.network, n, func(ns *netns.NS, port string) error {
		if silent {
			return silencePort(&l.network, n.Name, port)
		}
		return ns.SetDown(port)
	}, func(ns *netns.NS) error { return clos.Kill(ns, switchDir(&l.network, n.Name)) })
}

// Forget empties the tables of a switch that is down.
func (l *programs) Forget(node string) error {
	ns, err := l.NS(node)
	if err != nil {
		return err
	}
	return clos.Forget(ns)
}

// startSwitchAgain gives a switch of the fabric its links back, and its router.
func (l *programs) startSwitchAgain(n Node) error {
	return onPorts(&l.network, n, func(ns *netns.NS, port string) error {
		return setUpPort(&l.network, ns, n.Name, port)
	}, func(*netns.NS) error { return l.startSwitchRouter(n) })
}

// setUpPort gives a router's interface its packets back, and the routes that the kernel has forgotten with it.
func setUpPort(l *network, ns *netns.NS, router, port string) error {
	err := first(
		func() error { return restorePort(l, router, port) },
		func() error { return ns.SetUp(port) },
	)
	if n, unknown := l.Node(port); err == nil && unknown == nil && n.Kind == Host {
		err = routeWorkloads(ns, n)
	}
	return err
}

func onPorts(l *network, n Node, do func(ns *netns.NS, port string) error, then func(*netns.NS) error) error {
	ns, err := l.NS(n.Name)
	if err != nil {
		return err
	}
	ports, err := clos.Ports(ns)
	if err != nil {
		return err
	}
	for _, port := range ports {
		if err := do(ns, port); err != nil {
			return err
		}
	}
	return then(ns)
}

// Reboot has a machine's links go, seen by its neighbors, and come back, with its programs. A switch has empty tables then, unless
// they are kept.
func (l *programs) Reboot(node string, keepTables bool) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	if err := l.Crash(node); err != nil {
		return err
	}
	if l.inFabric(n) && !keepTables {
		if err := l.Forget(node); err != nil {
			return err
		}
	}
	return l.Revive(node)
}

// CutLink cuts the cable between two nodes of which one is a router, until RestoreLink. Both see it, unless it is silent.
func (l *programs) CutLink(a, b string, silent bool) error {
	cut := func(ns *netns.NS, node, port string) error { return silencePort(&l.network, node, port) }
	if !silent { // one end is enough
		return onLink(&l.network, a, b, func(ns *netns.NS, _, port string) error { return ns.SetDown(port) }, nil)
	}
	return onLink(&l.network, a, b, cut, cut)
}

// RestoreLink ends what CutLink began.
func (l *programs) RestoreLink(a, b string) error {
	return onLink(&l.network, a, b, func(ns *netns.NS, router, port string) error {
		return setUpPort(&l.network, ns, router, port)
	}, func(_ *netns.NS, node, port string) error { return restorePort(&l.network, node, port) })
}

// onLink does something at the end of a link that is a router's, whose interface has the other end's name, and at the other end.
func onLink(l *network, a, b string, do, other func(ns *netns.NS, node, port string) error) error {
	for _, end := range [][2]string{{a, b}, {b, a}} {
		ns, err := l.NS(end[0])
		if err != nil {
			return err
		}
		if _, err := ns.Index(end[1]); err != nil {
			continue
		}
		if err := do(ns, end[0], end[1]); err != nil || other == nil {
			return err
		}
		far, err := l.NS(end[1])
		if err != nil {
			return err
		}
		if _, err := far.Index(end[0]); err != nil {
			return other(far, end[1], Uplink)
		}
		return other(far, end[1], end[0])
	}
	return fmt.Errorf("%s and %s have no link", a, b)
}
