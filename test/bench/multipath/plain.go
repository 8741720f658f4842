package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/mptcp"
	"github.com/weirlb/weir/internal/lab/netlab"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/testkit/benchlab"
	"github.com/weirlb/weir/internal/testkit/mptcplab"
	"github.com/weirlb/weir/internal/testkit/turns"
)

// plainWorld is a lab with one workload, whose server is in this process, and two VIPs: one with Multipath TCP, one without.
//
//	client1 ── router ── mux1 ── router ── host1, agent ── workload
//	   └─────────── directly, to its own address ────────────┘
type plainWorld struct {
	lab              *netlab.Lab
	client, server   *netns.NS
	listener         *net.TCPListener
	with, without    netip.AddrPort
	direct           netip.AddrPort
	clientName, name string // of the nodes
}

func withPlainWorld(ctx context.Context, how options, measure func(*plainWorld) error) (err error) {
	lab, err := benchlab.Up(ctx, how.bin, netlab.Config{
		Plan:     netlab.Plan{Name: labName, Clients: 1, Muxes: 1, Hosts: 1, Workloads: 1},
		Workload: func(*netlab.Lab, netlab.Node) error { return nil },
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, lab.Down()) }()
	w := &plainWorld{lab: lab, clientName: mptcpClient, name: lab.Of(netlab.Workload)[0].Name}
	if w.client, err = lab.NS(w.clientName); err != nil {
		return err
	}
	if w.server, err = lab.NS(w.name); err != nil {
		return err
	}
	w.direct = netip.AddrPortFrom(lab.Of(netlab.Workload)[0].IPv4, netlab.EchoPort)
	err = w.server.Do(func() (err error) {
		w.listener, err = net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(w.direct))
		return err
	})
	if err != nil {
		return err
	}
	defer w.listener.Close()
	for i, to := range []*netip.AddrPort{&w.with, &w.without} {
		vip := netip.AddrFrom4([4]byte{203, 0, 113, vips + byte(i)})
		*to = netip.AddrPortFrom(vip, 80)
		s := mptcp.Service{Name: fmt.Sprintf("plain%d", i), VIPs: []netip.Addr{vip}, Without: i == 1}
		if err := s.Serve(ctx, lab, time.Minute); err != nil {
			return err
		}
	}
	return measure(w)
}

const mptcpClient = "client1"

// connect opens a connection of plain TCP, which nobody else does at the time, but the agent's checks.
func (w *plainWorld) connect(to netip.AddrPort) (client, server *net.TCPConn, err error) {
	err = w.client.Do(func() error {
		dialer := net.Dialer{Timeout: time.Minute}
		dialer.SetMultipathTCP(false)
		opened, err := dialer.Dial("tcp4", to.String())
		if err == nil {
			client = opened.(*net.TCPConn)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	for {
		if err := w.listener.SetDeadline(time.Now().Add(time.Minute)); err != nil {
			return nil, nil, err
		}
		server, err = w.listener.AcceptTCP()
		if err != nil || server.RemoteAddr().String() == client.LocalAddr().String() {
			return client, server, err
		}
		_ = server.Close() // a check's
	}
}

const (
	tripBytes = 128
	tripBurst = 200
	tripCPU   = 1
)

// measurePlain has bursts of round trips of plain TCP take turns: to an endpoint with Multipath TCP, and to one without. All is
// on one CPU.
func measurePlain(ctx context.Context, how options, to *report) error {
	return withPlainWorld(ctx, how, func(w *plainWorld) error {
		var clients []*net.TCPConn
		for _, vip := range []netip.AddrPort{w.with, w.without} {
			client, server, err := w.connect(vip)
			if err != nil {
				return err
			}
			defer client.Close()
			defer server.Close()
			clients = append(clients, client)
			fd, err := blocking(server)
			if err != nil {
				return err
			}
			go func() {
				runtime.LockOSThread() // for good: the thread ends with its priority
				if turns.TakeCPU(tripCPU) == nil {
					echo(fd)
				}
			}()
		}
		done := make(chan error, 1)
		go func() {
			runtime.LockOSThread()
			done <- takeTrips(ctx, how.pairs, clients, to)
		}()
		return <-done
	})
}

// blocking is a socket's descriptor, by which calls wait.
func blocking(conn *net.TCPConn) (int, error) {
	file, err := conn.File()
	if err != nil {
		return 0, err
	}
	fd, err := unix.Dup(int(file.Fd()))
	return fd, errors.Join(err, unix.SetNonblock(fd, false), file.Close())
}

func takeTrips(ctx context.Context, pairs int, clients []*net.TCPConn, to *report) error {
	if err := turns.TakeCPU(tripCPU); err != nil {
		return err
	}
	var fds []int
	for _, c := range clients {
		fd, err := blocking(c)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		fds = append(fds, fd)
	}
	var ratios []float64
	var medians [2][]float64
	for pair := -1; pair < pairs && ctx.Err() == nil; pair++ {
		var took [2]float64
		for i := range fds {
			which := (i + pair + 1) % len(fds) // each is first as often
			var err error
			if took[which], err = trips(fds[which]); err != nil {
				return err
			}
			medians[which] = append(medians[which], took[which])
		}
		if pair >= 0 { // the first is for warmth
			ratios = append(ratios, took[1]/took[0])
		}
		time.Sleep(time.Millisecond) // for who else has work on this CPU
	}
	to.add("plain_tcp_to_before", median(ratios))
	to.add("plain_tcp_rtt_multipath_us", median(medians[0]))
	to.add("plain_tcp_rtt_before_us", median(medians[1]))
	return ctx.Err()
}

// trips is the median of a burst of round trips, in µs.
func trips(fd int) (float64, error) {
	message := make([]byte, tripBytes)
	took := make([]float64, tripBurst)
	for i := range took {
		began := time.Now()
		if _, err := unix.Write(fd, message); err != nil {
			return 0, err
		}
		if !readAll(fd, message) {
			return 0, errors.New("a connection broke")
		}
		took[i] = float64(time.Since(began).Nanoseconds()) / 1e3
	}
	return median(took), nil
}

func median(of []float64) float64 {
	if len(of) == 0 {
		return math.NaN()
	}
	return slices.Sorted(slices.Values(of))[len(of)/2]
}

// readAll reads a whole message; false: the connection ends.
func readAll(fd int, to []byte) bool {
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

// echo answers messages until the connection ends.
func echo(fd int) {
	message := make([]byte, tripBytes)
	for readAll(fd, message) {
		if _, err := unix.Write(fd, message); err != nil {
			break
		}
	}
	_ = unix.Close(fd)
}

// bulk is how many bytes a turn of measurePAWS takes.
const bulk = 60_000_000

// measurePAWS has clients download and upload by VIPs, and directly, and counts the segments that each end refused because their
// timestamp is older than one that it has seen (RFC 7323, PAWS): those that came late.
func measurePAWS(ctx context.Context, how options, to *report) error {
	var byVIP, direct float64 // the most in 10 MB
	note := func(way string, to *float64, t transfer) {
		fmt.Printf("  %-36s refused %6.2f, reordered %6.2f, in 10 MB\n", way, t.per10MB(t.refused), t.per10MB(t.reordered))
		*to = max(*to, t.per10MB(t.refused))
	}
	err := withPlainWorld(ctx, how, func(w *plainWorld) error {
		for _, upload := range []bool{false, true} {
			vip, dip, err := w.transfers(ctx, how.turns, upload)
			if err != nil {
				return err
			}
			note(fmt.Sprintf("by a VIP, upload %v", upload), &byVIP, vip)
			note(fmt.Sprintf("directly, upload %v", upload), &direct, dip)
		}
		return nil
	})
	if err != nil {
		return err
	}
	err = withWorld(ctx, how, 3, 2, 2, func(w *mptcplab.World) error {
		backend := w.Of(netlab.Workload)[0] // behind an interface
		var vip, dip transfer
		for range how.turns {
			if err := errors.Join(download(ctx, w, netip.AddrPortFrom(w.Service.VIPs[0], mptcp.Port), &vip),
				download(ctx, w, netip.AddrPortFrom(backend.IPv4, netlab.EchoPort), &dip)); err != nil {
				return err
			}
		}
		note("by a VIP, two subflows", &byVIP, vip)
		note("directly, two subflows", &direct, dip)
		return nil
	})
	to.add("paws_refusals_per_10_mb", byVIP)
	to.add("direct_paws_refusals_per_10_mb", direct)
	return err
}

// transfer is what was moved, and what both ends have counted meanwhile.
type transfer struct{ bytes, refused, reordered int }

func (t transfer) per10MB(of int) float64 { return float64(of) / float64(t.bytes) * 10e6 }

func (t *transfer) add(bytes int, before, after map[string]int) {
	t.bytes += bytes
	for _, name := range []string{mptcp.PAWSRefused, mptcp.PAWSOldAcks} {
		t.refused += after[name] - before[name]
	}
	t.reordered += after[mptcp.Reordered] - before[mptcp.Reordered]
}

// download has a client get bytes by two paths.
func download(ctx context.Context, w *mptcplab.World, from netip.AddrPort, to *transfer) error {
	nodes := append(mptcp.Servers(w.Lab), mptcplab.Modern)
	before, err := mptcp.Counters(w.Lab, nodes...)
	if err != nil {
		return err
	}
	ns, err := w.NS(mptcplab.Modern)
	if err != nil {
		return err
	}
	d, err := mptcp.StartDownload(ns, from)
	if err != nil {
		return err
	}
	var came int64
	err = netlab.Poll(ctx, time.Minute, func() error {
		if came, _ = d.Seen(); came < bulk {
			return fmt.Errorf("%d bytes came", came)
		}
		return nil
	})
	if err := errors.Join(err, d.Stop()); err != nil {
		return err
	}
	after, err := mptcp.Counters(w.Lab, nodes...)
	to.add(int(came), before, after)
	return err
}

// transfers moves bytes one way, in turns by the VIP and directly.
func (w *plainWorld) transfers(ctx context.Context, count int, upload bool) (vip, dip transfer, err error) {
	for range count {
		if err := errors.Join(w.transfer(ctx, w.with, upload, &vip), w.transfer(ctx, w.direct, upload, &dip)); err != nil {
			return vip, dip, err
		}
	}
	return vip, dip, nil
}

// transfer moves bytes one way, by a connection of its own.
func (w *plainWorld) transfer(ctx context.Context, at netip.AddrPort, upload bool, to *transfer) error {
	client, server, err := w.connect(at)
	if err != nil {
		return err
	}
	defer client.Close()
	defer server.Close()
	before, err := mptcp.Counters(w.lab, w.clientName, w.name)
	if err != nil {
		return err
	}
	from, into := server, client
	if upload {
		from, into = client, server
	}
	if err := errors.Join(from.SetDeadline(time.Now().Add(time.Minute)), into.SetDeadline(time.Now().Add(time.Minute))); err != nil {
		return err
	}
	sent := make(chan error, 1)
	go func() {
		chunk := make([]byte, 128<<10)
		var err error
		for left := bulk; left > 0 && err == nil; left -= len(chunk) {
			_, err = from.Write(chunk[:min(left, len(chunk))])
		}
		sent <- err
	}()
	_, err = io.CopyN(io.Discard, into, bulk)
	if err := errors.Join(err, <-sent, ctx.Err()); err != nil {
		return err
	}
	after, err := mptcp.Counters(w.lab, w.clientName, w.name)
	to.add(bulk, before, after)
	return err
}
