package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

const (
	labName = "benchfast"
	port    = 9000
	each    = 10 // workloads of each client service, and of each host
)

// VIPs of the two client services and of the one that they upload to.
var (
	clientVIPs = []netip.Addr{netip.MustParseAddr("203.0.113.70"), netip.MustParseAddr("203.0.113.71")}
	serverVIP  = netip.MustParseAddr("203.0.113.72")
)

// The client services are on a host each, the server on the other two.
var clientHosts, serverHosts = []string{"host1", "host2"}, []string{"host3", "host4"}

// world is a lab with the three services.
type world struct {
	lab       *netlab.Lab
	stats     io.Closer
	listeners []net.Listener
}

func newWorld(ctx context.Context, bin string) (_ *world, err error) {
	w := &world{}
	if w.stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err != nil {
		return nil, fmt.Errorf("count the time of eBPF programs: %w", err)
	}
	w.lab, err = benchlab.Up(ctx, bin, netlab.Config{
		Plan:     netlab.Plan{Name: labName, Clients: 1, Muxes: 2, Hosts: 4, Workloads: each},
		Workload: func(*netlab.Lab, netlab.Node) error { return nil },
	})
	if err != nil {
		return nil, errors.Join(err, w.stats.Close())
	}
	if err := w.listen(); err != nil {
		return nil, errors.Join(err, w.close())
	}
	if err := w.apply(ctx, false); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) close() error {
	for _, l := range w.listeners {
		_ = l.Close()
	}
	return errors.Join(w.lab.Down(), w.stats.Close())
}

// on lists the workloads of a host.
func (w *world) on(host string) (nodes []netlab.Node) {
	for _, n := range w.lab.Of(netlab.Workload) {
		if n.Host == host {
			nodes = append(nodes, n)
		}
	}
	return nodes
}

// listen has each workload of the server take what is uploaded, and answer with one byte.
func (w *world) listen() error {
	for _, host := range serverHosts {
		for _, n := range w.on(host) {
			ns, err := w.lab.NS(n.Name)
			if err != nil {
				return err
			}
			err = ns.Do(func() error {
				l, err := net.Listen("tcp4", netip.AddrPortFrom(n.IPv4, port).String())
				if err == nil {
					w.listeners = append(w.listeners, l)
				}
				return err
			})
			if err != nil {
				return err
			}
			go serve(w.listeners[len(w.listeners)-1])
		}
	}
	return nil
}

func serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		if err != nil {
			return // closed
		}
		go func() {
			defer conn.Close()
			if _, err := io.Copy(io.Discard, conn); err == nil {
				_, _ = conn.Write([]byte{1}) // the client tells if it is missing
			}
		}()
	}
}

// apply lets the connections to the server leave the muxes, or not.
func (w *world) apply(ctx context.Context, fastpath bool) error {
	var b strings.Builder
	for i, vip := range clientVIPs {
		fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: client-%d}\nspec:\n  address: %s\n  snat:\n    preallocate: 64\n    maxPorts: 8192\n    workloads:\n", i+1, vip)
		for _, n := range w.on(clientHosts[i]) {
			fmt.Fprintf(&b, "    - {address: %s, host: %s}\n", n.IPv4, n.Host)
		}
	}
	fmt.Fprintf(&b, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: server}\nspec:\n  address: %s\n", serverVIP)
	if fastpath {
		fmt.Fprintf(&b, "  fastpath: {sources: [%s, %s]}\n", clientVIPs[0], clientVIPs[1])
	}
	fmt.Fprintf(&b, "  endpoints:\n  - protocol: TCP\n    port: %d\n    backends:\n", port)
	for _, host := range serverHosts {
		for _, n := range w.on(host) {
			fmt.Fprintf(&b, "    - {address: %s, host: %s, port: %d}\n", n.IPv4, n.Host, port)
		}
	}
	return benchlab.Apply(ctx, w.lab, b.String(), append([]netip.Addr{serverVIP}, clientVIPs...)...)
}
