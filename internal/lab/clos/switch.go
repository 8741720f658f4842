package clos

import (
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/switches"
)

// linuxProtocol is what driver linux calls its routes and next hops.
const linuxProtocol = "87"

// AS is that of a router of the fabric; the border has the one that it is given. Cores share one, and the aggregation switches
// of a container, as RFC 7938 has it (5.2.1): a route that is withdrawn is then not looked for by ways down and up again, on
// which packets would go in circles.
func (f Fabric) AS(name string, border uint32) uint32 {
	var container, number uint32
	switch {
	case slices.Contains(f.Cores, name):
		return 65100
	case slices.Contains(f.ToRs, name):
		return 65300 + uint32(f.Number(name))
	}
	if n, err := fmt.Sscanf(name, "agg-%d-%d", &container, &number); err == nil && n == 2 {
		return 65200 + container
	}
	return border
}

// FRR adds to a router's configuration its sessions with the rest of the fabric.
func (f Fabric) FRR(name string, border uint32, bfd time.Duration, config frr.Config) frr.Config {
	config.BFD = bfd
	for _, l := range f.Links {
		if other, ok := l.other(name); ok {
			address, _ := l.addresses(other)
			config.Fabric = append(config.Fabric, frr.Upstream{Address: address, AS: f.AS(other, border), Dials: other == l.Lower})
		}
	}
	return config
}

// Ports are a switch's interfaces that have a cable.
func Ports(ns *netns.NS) (names []string, err error) {
	links, err := ns.Netlink().LinkList()
	if err != nil {
		return nil, fmt.Errorf("list the ports of %s: %w", ns.Name(), err)
	}
	for _, l := range links {
		if l.Type() == "veth" && !slices.Contains(switches.Own, l.Attrs().Name) {
			names = append(names, l.Attrs().Name)
		}
	}
	return names, nil
}

// Kill ends all that runs on a switch, without a word to anybody.
func Kill(ns *netns.NS, frrDir string) error {
	const bound = 5 * time.Second
	for end := time.Now().Add(bound); ; time.Sleep(5 * time.Millisecond) {
		pids, err := ns.Processes()
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			return os.RemoveAll(frrDir)
		}
		if time.Now().After(end) {
			return fmt.Errorf("processes %v of %s do not end", pids, ns.Name())
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL) // fails if it has ended
		}
	}
}

// Forget empties the tables of a switch, as it has none when it boots: no port has its program, and the kernel none of the routes
// and next hops of driver linux.
func Forget(ns *netns.NS) error {
	for _, of := range []string{"-4 route", "-6 route", "nexthop"} {
		if out, err := ns.Run("ip", append(strings.Fields(of), "flush", "protocol", linuxProtocol)...); err != nil {
			return fmt.Errorf("forget the routes of %s: %w: %s", ns.Name(), err, out)
		}
	}
	ports, err := Ports(ns)
	if err != nil {
		return err
	}
	for _, port := range append(ports, switches.Own...) {
		if err := ns.DetachXDP(port); err != nil {
			return err
		}
	}
	return nil
}

// Loopback gives a switch the addresses that it sends from.
func Loopback(ns *netns.NS, v4, v6 netip.Addr) error {
	return ns.AddAddress("lo", netip.PrefixFrom(v4, 32), netip.PrefixFrom(v6, 128))
}
