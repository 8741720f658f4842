package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

// As in the paper there are five tenants with ten workloads each. Every tenant has two of them on each of five hosts, one
// behind an interface and one native, so that what a flood costs a host costs all tenants.
const (
	labName   = "benchflood"
	tenants   = 5
	workloads = 10
	hosts     = 5
	port      = 8080
	backlog   = "511" // of a listener, as web servers have it: more half-open connections than that have no room

	clients, attacker = "client1", "client2"
)

// vipsOf are the addresses of a tenant's service.
func vipsOf(tenant int) []netip.Addr {
	return []netip.Addr{
		netip.AddrFrom4([4]byte{203, 0, 113, byte(80 + tenant)}),
		netip.MustParseAddr(fmt.Sprintf("2001:db8:113::8%d", tenant)),
	}
}

func vips() (all []netip.Addr) {
	for tenant := range tenants {
		all = append(all, vipsOf(tenant)...)
	}
	return all
}

// world is a lab with the tenants' services.
type world struct {
	lab       *netlab.Lab
	stats     io.Closer
	server    http.Server
	listeners []io.Closer
}

func newWorld(ctx context.Context, bin string) (_ *world, err error) {
	w := &world{server: http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler:           http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}),
	}}
	if w.stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err != nil {
		return nil, fmt.Errorf("count the time of eBPF programs: %w", err)
	}
	w.lab, err = benchlab.Up(ctx, bin, netlab.Config{
		Plan:     netlab.Plan{Name: labName, Clients: 2, Muxes: 2, Hosts: hosts, Workloads: workloads},
		Workload: func(*netlab.Lab, netlab.Node) error { return nil },
	})
	if err != nil {
		return nil, errors.Join(err, w.stats.Close())
	}
	for _, n := range w.lab.Of(netlab.Workload) {
		if err := w.listen(ctx, n); err != nil {
			return nil, errors.Join(fmt.Errorf("serve on %s: %w", n.Name, err), w.close())
		}
	}
	return w, nil
}

func (w *world) close() error {
	_ = w.server.Close()
	for _, l := range w.listeners {
		_ = l.Close()
	}
	return errors.Join(w.lab.Down(), w.stats.Close())
}

// listen has a workload answer requests. Datagrams have a socket that takes them, and are never read.
func (w *world) listen(ctx context.Context, n netlab.Node) error {
	ns, err := w.lab.NS(n.Name)
	if err != nil {
		return err
	}
	if err := ns.Sysctl("net.core.somaxconn", backlog); err != nil {
		return err
	}
	var config net.ListenConfig
	config.SetMultipathTCP(false) // the kernel makes no socket of a cookie for one
	return ns.Do(func() error {
		for _, address := range []netip.Addr{n.IPv4, n.IPv6} {
			at := netip.AddrPortFrom(address, port).String()
			listener, err := config.Listen(ctx, "tcp", at)
			if err != nil {
				return err
			}
			go func() { _ = w.server.Serve(listener) }() // until it is closed
			packets, err := net.ListenPacket("udp", at)
			if err != nil {
				return err
			}
			w.listeners = append(w.listeners, packets)
		}
		return nil
	})
}

// mode is how a flood of SYNs is met.
type mode struct {
	name       string
	synCookies string // of the endpoints

	// Where workloads live: the kernel's own SYN cookies, how often it sends a SYN/ACK again, and how long what it keeps of
	// connections half open outlasts a trial.
	own, again string
	rest       time.Duration
	part       int // of the trials

	overload string // policy of the VIPs
}

// Workloads answer SYNs as Linux does by default, or, in mode unprotected, as a system does that has no SYN cookies of its
// own; there what is half open is given up early, lest a trial sees what the one before it left. A black hole lasts just longer
// than the flood of a trial.
var modes = []mode{
	{name: "cookies", synCookies: "auto", own: "1", again: "5", part: 1},
	{name: "off", synCookies: "never", own: "1", again: "5", part: 2},
	{name: "unprotected", synCookies: "never", own: "0", again: "1", rest: 3 * time.Second, part: 2},
	{
		name: "black hole", synCookies: "auto", own: "1", again: "5", part: 1,
		overload: "{triggers: [syn-flood], steps: [{action: blackhole, after: 1s}], holdDown: 4s, maxHoldDown: 4s}",
	},
}

func modeNames() (names []string) {
	for _, m := range modes {
		names = append(names, m.name)
	}
	return names
}

// apply has floods of SYNs met in the mode.
func (w *world) apply(ctx context.Context, m mode) error {
	for _, n := range w.lab.Of(netlab.Workload) {
		ns, err := w.lab.NS(n.Name)
		if err != nil {
			return err
		}
		if err := errors.Join(ns.Sysctl("net.ipv4.tcp_syncookies", m.own), ns.Sysctl("net.ipv4.tcp_synack_retries", m.again)); err != nil {
			return err
		}
	}
	var b strings.Builder
	for tenant := range tenants {
		for _, vip := range vipsOf(tenant) {
			w.write(&b, service{owner: "tenant", tenant: tenant, vip: vip, workloads: workloads}, m)
		}
	}
	return benchlab.Apply(ctx, w.lab, b.String(), vips()...)
}

// service is a VIP of a tenant of a kind, with some of the workloads that are for the tenants of that number.
type service struct {
	owner     string
	tenant    int
	vip       netip.Addr
	workloads int
}

func (w *world) write(b *strings.Builder, s service, m mode) {
	family := 4
	if s.vip.Is6() {
		family = 6
	}
	fmt.Fprintf(b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: %s-%d-%d, tenant: %[1]s-%[2]d}\nspec:\n  address: '%[4]s'\n", s.owner, s.tenant, family, s.vip)
	if m.overload != "" {
		fmt.Fprintf(b, "  overload: %s\n", m.overload)
	}
	b.WriteString("  endpoints:\n")
	for _, protocol := range []string{"TCP", "UDP"} {
		fmt.Fprintf(b, "  - protocol: %s\n    port: 80\n", protocol)
		if protocol == "TCP" {
			fmt.Fprintf(b, "    synCookies: %s\n", m.synCookies)
		}
		b.WriteString("    backends:\n")
		left := s.workloads
		for _, n := range w.lab.Of(netlab.Workload) {
			if (n.Number-1)/2 != s.tenant || left == 0 {
				continue
			}
			left--
			address := n.IPv4
			if s.vip.Is6() {
				address = n.IPv6
			}
			fmt.Fprintf(b, "    - {host: %s, address: '%s', port: %d}\n", n.Host, address, port)
		}
	}
}

func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}
