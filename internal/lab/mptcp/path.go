package mptcp

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/tcx"
)

// Bounds of what has room in the addresses.
const (
	mostPaths  = 8
	mostClient = 24
)

// Path is one of a client's to the router.
type Path struct {
	Client     string
	Number     int
	Interface  string // of the client
	IPv4, IPv6 netip.Addr

	port string // of the router
	lab  *netlab.Lab
}

// pathOf returns a path of a client; the first is the lab's own.
func pathOf(lab *netlab.Lab, client string, number int) (Path, error) {
	n, err := lab.Node(client)
	if err != nil {
		return Path{}, err
	}
	if n.Kind != netlab.Client || n.Number > mostClient || number < 1 || number > mostPaths {
		return Path{}, fmt.Errorf("find path %d of %s: clients up to client%d have paths up to %d", number, client, mostClient, mostPaths)
	}
	if number == 1 {
		return Path{client, number, netlab.Uplink, n.IPv4, n.IPv6, client, lab}, nil
	}
	net := 10*n.Number + number
	return Path{
		client, number, fmt.Sprintf("path%d", number),
		netip.MustParseAddr(fmt.Sprintf("10.8.%d.2", net)), netip.MustParseAddr(fmt.Sprintf("fd00:8:%d::2", net)),
		fmt.Sprintf("%s-%d", client, number), lab,
	}, nil
}

// FirstPath is the client's path that every lab has.
func FirstPath(lab *netlab.Lab, client string) (Path, error) { return pathOf(lab, client, 1) }

// Prepare has a lab's clients and workloads accept as many subflows as there are paths. Idle subflows of clients ask every
// second whether the other end is there.
func Prepare(lab *netlab.Lab) error {
	for _, node := range append(Servers(lab), names(lab, netlab.Client)...) {
		if _, err := lab.Run(node, "ip", "mptcp", "limits", "set", "subflows", strconv.Itoa(mostPaths)); err != nil {
			return err
		}
	}
	for _, client := range names(lab, netlab.Client) {
		ns, err := lab.NS(client)
		if err != nil {
			return err
		}
		for knob, value := range map[string]string{"time": "1", "intvl": "1", "probes": "60"} {
			if err := ns.Sysctl("net.ipv4.tcp_keepalive_"+knob, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// Servers are the nodes that workloads' sockets are on, each once.
func Servers(lab *netlab.Lab) (all []string) {
	for _, n := range lab.Of(netlab.Workload) {
		if !n.Native {
			all = append(all, n.Name)
		}
	}
	return append(all, names(lab, netlab.Host)...)
}

func names(lab *netlab.Lab, kind netlab.Kind) (all []string) {
	for _, n := range lab.Of(kind) {
		all = append(all, n.Name)
	}
	return all
}

// AddPath gives a client one more path, with an address of each family. Connections do not use it before Join.
func AddPath(lab *netlab.Lab, client string, number int) (Path, error) {
	p, err := pathOf(lab, client, number)
	if err != nil {
		return p, err
	}
	ns, err := lab.NS(client)
	if err != nil {
		return p, err
	}
	router, err := lab.NS(string(netlab.Router))
	if err != nil {
		return p, err
	}
	gateway4, gateway6 := p.IPv4.Prev(), p.IPv6.Prev()
	metric := strconv.Itoa(2000 + number) // behind the first path's
	for _, step := range []func() error{
		func() error { return netns.Veth(router, p.port, ns, p.Interface) },
		func() error {
			return router.AddAddress(p.port, netip.PrefixFrom(gateway4, 24), netip.PrefixFrom(gateway6, 64))
		},
		func() error {
			return ns.AddAddress(p.Interface, netip.PrefixFrom(p.IPv4, 24), netip.PrefixFrom(p.IPv6, 64))
		},
		func() error { return p.route("-4", gateway4, metric) },
		func() error { return p.route("-6", gateway6, metric) },
		func() error {
			if lab.Fabric == "" { // hosts have the router as their next hop
				return nil
			}
			return lab.Router().Announce(netip.PrefixFrom(p.IPv4, 24).Masked(), netip.PrefixFrom(p.IPv6, 64).Masked())
		},
	} {
		if err := step(); err != nil {
			return p, fmt.Errorf("add path %d of %s: %w", number, client, err)
		}
	}
	return p, nil
}

func (p Path) run(program string, args ...string) error {
	_, err := p.lab.Run(p.Client, program, args...)
	return err
}

func (p Path) route(family string, via netip.Addr, metric string) error {
	return p.run("ip", family, "route", "add", "default", "via", via.String(), "dev", p.Interface, "metric", metric)
}

// ids of the path's endpoints in the client's path manager, which numbers subflows by them.
func (p Path) ids() map[string]netip.Addr {
	return map[string]netip.Addr{strconv.Itoa(2 * p.Number): p.IPv4, strconv.Itoa(2*p.Number + 1): p.IPv6}
}

// Join has all connections of the client, those that are open too, join from the path.
func (p Path) Join() error {
	for id, address := range p.ids() {
		if err := p.run("ip", "mptcp", "endpoint", "add", address.String(), "id", id, "dev", p.Interface, "subflow"); err != nil {
			return err
		}
	}
	return nil
}

// Leave ends the path's subflows, and has no connection join from it.
func (p Path) Leave() error {
	for id := range p.ids() {
		if err := p.run("ip", "mptcp", "endpoint", "delete", "id", id); err != nil {
			return err
		}
	}
	return nil
}

// Cut has the path lose all packets, while its link stays up: nobody is told.
func (p Path) Cut() error {
	router, err := p.lab.NS(string(netlab.Router))
	if err != nil {
		return err
	}
	return tcx.Drop(router, p.port, p.pin("in"), p.pin("out"))
}

// Restore ends Cut.
func (p Path) Restore() error {
	return errors.Join(os.Remove(p.pin("in")), os.Remove(p.pin("out")))
}

func (p Path) pin(direction string) string {
	return filepath.Join(p.lab.Dir(), "bpf", "path-"+p.port+"-"+direction)
}
