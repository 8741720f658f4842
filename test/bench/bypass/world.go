package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/lab/overlay"
	"github.com/weirlb/weir/internal/testkit/benchlab"
)

const labName = "benchbypass"

// Names of sides.
const (
	bypass  = "bypass"
	fullNAT = "full-nat"
	device  = "vxlan-device"
)

// The VIP with mode full-nat, in the network and by its own address.
var vipFullNAT, serviceFullNAT = netip.MustParseAddr("10.99.0.2"), netip.MustParseAddr("203.0.113.91")

// learnt bounds how long a VIP takes until a client's connections leave the mux.
const learnt = time.Minute

// side is a way from a client to a server.
type side struct {
	name           string // of the JSON's fields and rows
	client, server *netns.NS
	to             netip.AddrPort
	listener       *net.TCPListener
	uplink         *netns.NS // of the server's host
}

// world is a lab with a client of a virtual network, and the ways that are compared.
//
//	bypass         acme1 ── chost1, agent ── router ── host1, agent ── workload
//	full-nat       acme1 ── chost1, agent ── router ── mux ── router ── host1, agent ── workload, and back
//	vxlan-device   acme1 ── plain1, bridge and device ── router ── plain2, likewise ── workload
type world struct {
	lab   *netlab.Lab
	stats io.Closer
	sides []*side // the first is bypass, the last the device

	muxThreads []int        // of the kernel, for what comes to the mux
	undo       func() error // what placeMux has changed of the kernel; nil: nothing
}

func newWorld(ctx context.Context, how options) (_ *world, err error) {
	w := &world{}
	if w.stats, err = ebpf.EnableStats(unix.BPF_STATS_RUN_TIME); err != nil {
		return nil, fmt.Errorf("count the time of eBPF programs: %w", err)
	}
	w.lab, err = benchlab.Up(ctx, how.bin, netlab.Config{
		Plan:     netlab.Plan{Name: labName, Clients: 1, Muxes: 1, Hosts: 1, Workloads: 1, Networks: 1},
		Workload: func(*netlab.Lab, netlab.Node) error { return nil },
	})
	if err != nil {
		return nil, errors.Join(err, w.stats.Close())
	}
	if err := errors.Join(w.addWeir(ctx), w.addDevice()); err != nil {
		return nil, errors.Join(err, w.close())
	}
	return w, nil
}

func (w *world) close() error {
	for _, s := range w.sides {
		_ = s.listener.Close()
	}
	var err error
	if w.undo != nil {
		err = w.undo()
	}
	return errors.Join(err, w.lab.Down(), w.stats.Close())
}

// addWeir adds what goes by Weir's programs, to one server.
func (w *world) addWeir(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(w.lab.Dir(), "networks.yaml"))
	if err != nil {
		return err
	}
	server := w.lab.Of(netlab.Workload)[0]
	vips := map[string]netip.Addr{bypass: overlay.VIP4, fullNAT: vipFullNAT}
	text = fmt.Appendf(text, "---\napiVersion: weir/v1\nkind: VIP\nmetadata: {name: full-nat}\nspec:\n  address: %s\n"+
		"  attachments: [{network: acme-prod, address: %s, mode: full-nat}]\n  endpoints:\n    - protocol: TCP\n      port: 80\n"+
		"      backends: [{address: %s, port: %d, host: host1}]\n", serviceFullNAT, vipFullNAT, server.IPv4, netlab.EchoPort)
	if err := benchlab.Apply(ctx, w.lab, string(text), overlay.VXLAN); err != nil {
		return err
	}
	var listener *net.TCPListener
	for _, name := range slices.Sorted(maps.Keys(vips)) {
		s := &side{name: name, to: netip.AddrPortFrom(vips[name], 80), listener: listener}
		for node, ns := range map[string]**netns.NS{"acme1": &s.client, server.Name: &s.server, "host1": &s.uplink} {
			if *ns, err = w.lab.NS(node); err != nil {
				return err
			}
		}
		if listener == nil {
			if err := s.listen(netip.AddrPortFrom(server.IPv4, netlab.EchoPort)); err != nil {
				return err
			}
			listener = s.listener
		}
		w.sides = append(w.sides, s)
		if err := s.waitConnected(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *side) waitConnected(ctx context.Context) error {
	return netlab.Poll(ctx, learnt, func() error {
		c, err := s.connect()
		if err == nil {
			c.close()
		}
		return err
	})
}

// addDevice makes two hosts without Weir, each with a bridge and a VXLAN device, and a workload. The lab takes their
// namespaces down with its own.
func (w *world) addDevice() error {
	router, err := w.lab.NS(string(netlab.Router))
	if err != nil {
		return err
	}
	network := overlay.Networks(1)[0]
	addresses := []netip.Addr{netip.MustParseAddr("10.9.1.2"), netip.MustParseAddr("10.9.2.2")}
	var hosts, workloads [2]*netns.NS
	for i, own := range addresses {
		var failed [2]error
		hosts[i], failed[0] = netns.Create(fmt.Sprintf("weir-%s-plain%d", labName, i+1))
		workloads[i], failed[1] = netns.Create(fmt.Sprintf("weir-%s-plain%d-w", labName, i+1))
		if err := errors.Join(failed[:]...); err != nil {
			return err
		}
		port, gateway := fmt.Sprintf("plain%d", i+1), own.Prev()
		for _, step := range []func() error{
			func() error { return netns.Veth(router, port, hosts[i], netlab.Uplink) },
			func() error { return router.AddAddress(port, netip.PrefixFrom(gateway, 24)) },
			func() error { return hosts[i].AddAddress(netlab.Uplink, netip.PrefixFrom(own, 24)) },
			func() error { return hosts[i].AddRoute(netip.MustParsePrefix("0.0.0.0/0"), gateway) },
			func() error { return network.Segment(hosts[i], own, []netip.Addr{addresses[1-i]}) },
			func() error {
				return network.Join(hosts[i], network.Workload(i+1), workloads[i], overlay.WorkloadAt(i+1))
			},
		} {
			if err := step(); err != nil {
				return err
			}
		}
	}
	server := netip.AddrPortFrom(overlay.WorkloadAt(2).IPv4, netlab.EchoPort)
	s := &side{name: device, client: workloads[0], server: workloads[1], uplink: hosts[1], to: server}
	if err := s.listen(server); err != nil {
		return err
	}
	w.sides = append(w.sides, s)
	return nil
}

func (s *side) listen(at netip.AddrPort) error {
	return s.server.Do(func() (err error) {
		s.listener, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(at))
		return err
	})
}

// ends are the sockets of a connection. They block.
type ends struct{ client, server *os.File }

// connect opens a connection, which nobody else does at the time.
func (s *side) connect() (ends, error) { return s.connectBy(net.Dialer{}) }

func (s *side) connectBy(dialer net.Dialer) (e ends, err error) {
	var client net.Conn
	dialer.Timeout = learnt / 4
	err = s.client.Do(func() (err error) {
		client, err = dialer.Dial("tcp4", s.to.String())
		return err
	})
	if err != nil {
		return e, fmt.Errorf("connect by %s: %w", s.name, err)
	}
	defer client.Close()
	if err := s.listener.SetDeadline(time.Now().Add(learnt / 4)); err != nil {
		return e, err
	}
	server, err := s.listener.AcceptTCP()
	if err != nil {
		return e, fmt.Errorf("accept by %s: %w", s.name, err)
	}
	defer server.Close()
	// By a reset: after FINs a session would be there for two minutes.
	if err := errors.Join(client.(*net.TCPConn).SetLinger(0), server.SetLinger(0)); err != nil {
		return e, err
	}
	if e.client, err = client.(*net.TCPConn).File(); err != nil {
		return e, err
	}
	if e.server, err = server.File(); err != nil {
		return e, errors.Join(err, e.client.Close())
	}
	return e, e.bound()
}

// bound has a socket wait only so long, as one of a connection that broke would.
func (e ends) bound() error {
	wait := unix.NsecToTimeval(int64(10 * time.Second))
	return errors.Join(
		unix.SetsockoptTimeval(int(e.client.Fd()), unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait),
		unix.SetsockoptTimeval(int(e.client.Fd()), unix.SOL_SOCKET, unix.SO_SNDTIMEO, &wait))
}

func (e ends) close() {
	_ = e.client.Close()
	_ = e.server.Close()
}

// read reads all of a message; false: the connection ends.
func read(fd int, to []byte) bool {
	for len(to) > 0 {
		n, err := unix.Read(fd, to)
		if errors.Is(err, unix.EINTR) {
			continue
		}
		if n <= 0 {
			return false
		}
		to = to[n:]
	}
	return true
}

// echo answers messages of a length until the connection ends.
func echo(fd, length int) {
	message := make([]byte, length)
	for read(fd, message) {
		if _, err := unix.Write(fd, message); err != nil {
			return
		}
	}
}
