package netlab

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirlb/weir/internal/lab/frr"
	"github.com/weirlb/weir/internal/lab/switches"
)

// What the router and the muxes agree on.
const (
	routerAS    = 65000
	muxAS       = 65010
	password    = "spread-the-river"
	bfdInterval = 200 * time.Millisecond // three in a row missed: shorter, and a stall of a small machine is one

	// EchoPort is where the echo of each workload listens, TCP and UDP.
	EchoPort = 8080
)

// Requirements says what this machine lacks for a lab, in one line.
func Requirements(bin string) error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("must run as root, to make network namespaces and load eBPF programs: use sudo")
	}
	var programs []string
	for _, name := range []string{"weir", "weir-manager", "weir-mux", "weir-agent"} {
		if _, err := os.Stat(filepath.Join(bin, name)); err != nil {
			programs = append(programs, name)
		}
	}
	if len(programs) > 0 {
		return fmt.Errorf("%s is not in %s: build the programs (make build)", strings.Join(programs, ", "), bin)
	}
	var packages []string
	for program, name := range map[string]string{"/usr/lib/frr/bgpd": "frr", "sysctl": "procps"} {
		if _, err := exec.LookPath(program); err != nil {
			packages = append(packages, name)
		}
	}
	if len(packages) > 0 {
		return fmt.Errorf("missing packages: install %s (apt-get install %[1]s)", strings.Join(packages, " "))
	}
	return nil
}

func (l *Lab) startRouter() error {
	ns, err := l.NS(string(Router))
	if err != nil {
		return err
	}
	config := frr.Config{
		Dir: l.frrDir(), AS: routerAS, RouterID: netip.MustParseAddr("10.255.0.1"),
		PeerAS: muxAS, Password: password, GracefulRestart: true, BFD: bfdInterval,
	}
	for _, mux := range l.Of(Mux) {
		if l.Segment {
			break
		}
		config.Neighbors = append(config.Neighbors, mux.IPv4)
	}
	if l.Fabric != "" {
		config.Neighbors, config.Networks = nil, l.networksBelow(string(Router))
		_, err = frr.Start(ns, l.fabric().FRR(string(Router), routerAS, bfdInterval, config))
		return err
	}
	for _, n := range l.Of(Switch) {
		config.Upstream = append(config.Upstream, switches.Upstream(n.Number, n.IPv4))
	}
	_, err = frr.Start(ns, config)
	return err
}

// startNodes starts the muxes and the agents, but for those that join later.
func (l *Lab) startNodes(later []string) error {
	for _, n := range l.nodesWithPrograms() {
		if slices.Contains(later, n.Name) {
			continue
		}
		if err := l.Join(n.Name); err != nil {
			return err
		}
	}
	return nil
}

// Join starts the program of a mux or a host, which then takes part.
func (l *Lab) Join(node string) error {
	n, err := l.Node(node)
	if err != nil {
		return err
	}
	join, err := l.token(n.Kind)
	if err != nil {
		return err
	}
	join = append([]string{
		"--name", n.Name, "--manager", l.managerURLsFrom(n.Number - 1), "--data-dir", l.DataDir(n.Name),
	}, join...)
	switch n.Kind {
	case Mux:
		return l.startMux(n, join)
	case Host, ClientHost:
		_, err := l.Start(n.Name, "weir-agent", append(join,
			"--uplink", Uplink, "--pin-path", l.PinPath(n.Name), "--native-prefixes", nativePrefixes())...)
		return err
	case Switch:
		return l.startSwitch(n, join)
	}
	return fmt.Errorf("let %s join: only muxes, switches and hosts do", node)
}

func (l *Lab) startSwitch(n Node, join []string) error {
	if l.inFabric(n) {
		source4 := n.IPv4
		if l.SwitchDriver == linuxDriver { // which has IPv6 tunnels alone
			source4 = netip.Addr{}
		}
		_, err := l.Start(n.Name, "weir-switch", append(join, switches.Flags(n.Number, l.fabric().AS(n.Name, routerAS), source4, n.IPv6, VIPs4, VIPs6)...)...)
		return err
	}
	ns, err := l.NS(n.Name)
	if err != nil {
		return err
	}
	router, _ := n.gateway()
	err = switches.Start(ns, filepath.Join(l.dir, "frr-"+n.Name), n.Number, frr.Upstream{Address: router, AS: routerAS}, VIPs4, VIPs6)
	if err != nil {
		return err
	}
	_, err = l.Start(n.Name, "weir-switch", append(join, switches.Flags(n.Number, switches.AS(n.Number), netip.Addr{}, n.IPv6, VIPs4, VIPs6)...)...)
	return err
}

func (l *Lab) startMux(n Node, join []string) error {
	file := filepath.Join(l.dir, n.Name+".bgp-password") // its own: another mux reads while this one's is written
	if err := os.WriteFile(file, []byte(password+"\n"), 0o600); err != nil {
		return fmt.Errorf("write the BGP password: %w", err)
	}
	router, _ := n.gateway()
	join = append(join, l.flags...)
	if len(l.Of(Switch)) > 0 {
		join = append(join, "--announce", "aggregate", "--aggregate", VIPs4.String(), "--aggregate", VIPs6.String())
	}
	if len(l.Of(Tenant)) > 0 {
		v4, v6 := NATPrefixes(n.Number)
		join = append(join, "--nat-prefix4", v4.String(), "--nat-prefix6", v6.String(), "--max-nat-sessions", "4096")
	}
	announce := []string{
		"--as", strconv.Itoa(muxAS),
		"--peer", fmt.Sprintf("address=%s,as=%d,password-file=%s,bfd=%s", router, l.fabric().AS(l.Above(n), routerAS), file, bfdInterval),
	}
	if l.Segment {
		announce = []string{"--neighbor-prefix", VIPs4.String(), "--neighbor-prefix", VIPs6.String()}
	}
	_, err := l.Start(n.Name, "weir-mux", append(append(join, announce...),
		"--interface", Uplink, "--pin-path", l.PinPath(n.Name),
		// Room for a lab's tables, not a datacenter's: each mux has its own.
		"--max-endpoints", "1024", "--max-buckets", "262144", "--max-backends", "16384", "--max-flows", "262144")...)
	return err
}

func (l *Lab) startWorkloads(start func(*Lab, Node) error) error {
	for _, n := range l.Of(Workload) {
		if err := start(l, n); err != nil {
			return fmt.Errorf("start workload %s: %w", n.Name, err)
		}
	}
	return nil
}

// startOutside starts an echo on each server outside.
func (l *Lab) startOutside() error {
	for _, n := range l.Of(Outside) {
		if err := l.startEcho(n); err != nil {
			return fmt.Errorf("start %s: %w", n.Name, err)
		}
	}
	return nil
}

func (l *Lab) startEcho(n Node) error {
	_, err := l.Start(n.Name, "weir", "lab", "echo", "--backend", n.Name, "--host", n.Host,
		"--listen", netip.AddrPortFrom(n.IPv4, EchoPort).String(),
		"--listen", netip.AddrPortFrom(n.IPv6, EchoPort).String())
	return err
}
