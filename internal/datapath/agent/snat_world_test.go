package agent_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
)

const (
	outVIP4                = "203.0.113.20"
	clientHost4, wellKnown = "10.77.1.1", ":7000"
)

// leave has the workload leave as a VIP, with these ranges.
func (w *world) leave(ranges ...model.Range) {
	w.t.Helper()
	s := model.HostSNAT{
		Key:    model.SNATKey{VIP: netip.MustParseAddr(outVIP4), Address: netip.MustParseAddr(workloadDIP4)},
		Tunnel: netip.MustParseAddr(workloadDIP4), Ranges: ranges, Filtering: model.FilterAddressAndPort,
		Exhausted: model.ExhaustedReject, MaxPorts: 64, Written: 7, Cluster: 1 << 63,
	}
	w.must(w.datapath.SetSNAT([]model.HostSNAT{s}, prefixes("10.77.3.0/24")),
		w.mux.Send(netip.MustParseAddr(outVIP4), netip.MustParseAddr("10.77.2.254"), netip.MustParseAddr(workloadDIP4)))
}

// listenUDP is a socket in a namespace.
func (w *world) listenUDP(ns *netns.NS, address string) (socket net.PacketConn) {
	w.t.Helper()
	w.must(ns.Do(func() (err error) {
		socket, err = net.ListenPacket("udp", address)
		return err
	}))
	w.t.Cleanup(func() { socket.Close() })
	return socket
}

// A datagram that finds no port waits, and so does what follows it; then all arrive in order, from one port
// of the VIP, with right checksums, and the answer finds its way back.
func TestSNATHoldsInOrder(t *testing.T) {
	const packets, before = 200, 5
	w := newWorld(t)
	w.leave()
	notices, err := w.datapath.Notices()
	w.must(err)
	defer notices.Close()
	var sender *snat.Sender
	w.must(w.host.Do(func() (err error) { sender, err = w.datapath.NewSender(); return err }))
	defer sender.Close()
	server, workload := w.listenUDP(w.client, clientHost4+wellKnown), w.listenUDP(w.workload, workloadDIP4+":5000")
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(clientHost4 + wellKnown))
	send := func(i int) {
		_, err := workload.WriteTo([]byte(fmt.Sprint(i)), to)
		w.must(err)
	}
	for i := range before {
		send(i)
	}
	sent := make(chan struct{})
	var held []snat.Notice
	for len(held) < before {
		n, err := notices.Read(time.Now().Add(10 * time.Second))
		w.must(err)
		held = append(held, n)
	}
	w.leave(500, 501)
	external, found, err := w.datapath.AssignPort(held[0].Flow)
	w.must(err)
	if !found {
		t.Fatal("no port is found")
	}
	go func() {
		defer close(sent)
		for i := before; i < packets; i++ {
			send(i)
		}
	}()
	w.sendHeld(notices, sender, held, external)
	<-sent
	w.arriveInOrder(server, workload, packets, external)
}

// sendHeld sends what waits in a flow, and what comes to wait meanwhile, until the flow is open.
func (w *world) sendHeld(notices *snat.Notices, sender *snat.Sender, held []snat.Notice, external netip.AddrPort) {
	w.t.Helper()
	for {
		for _, n := range held {
			packet, err := n.Packet(external, w.datapath.MSS(external.Addr().Is6()))
			w.must(err, sender.Transmit(n.Flow.Remote.Addr(), packet))
		}
		last := held[len(held)-1]
		opened, err := w.datapath.OpenFlow(last.Flow, last.Order)
		w.must(err)
		if opened {
			return
		}
		n, err := notices.Read(time.Now().Add(10 * time.Second))
		w.must(err)
		held = []snat.Notice{n}
	}
}

// arriveInOrder reads numbered datagrams, and answers the last.
func (w *world) arriveInOrder(server, workload net.PacketConn, packets int, external netip.AddrPort) {
	w.t.Helper()
	buffer := make([]byte, 64)
	var from net.Addr
	for i := range packets {
		w.must(server.SetReadDeadline(time.Now().Add(10 * time.Second)))
		n, sender, err := server.ReadFrom(buffer)
		w.must(err)
		if got := string(buffer[:n]); got != fmt.Sprint(i) || sender.String() != external.String() {
			w.t.Fatalf("datagram %d is %s from %s, not from %s", i, got, sender, external)
		}
		from = sender
	}
	_, err := server.WriteTo([]byte("back"), from)
	w.must(err, workload.SetReadDeadline(time.Now().Add(10*time.Second)))
	n, remote, err := workload.ReadFrom(buffer)
	w.must(err)
	if string(buffer[:n]) != "back" || remote.String() != server.LocalAddr().String() {
		w.t.Errorf("the answer is %q from %s", buffer[:n], remote)
	}
}

// A workload's own TCP connections leave as the VIP, with whatever offloads; a refusal ends them at once.
func TestSNATConnects(t *testing.T) {
	w := newWorld(t)
	w.leave(500, 501)
	var listener net.Listener
	w.must(w.client.Do(func() (err error) {
		listener, err = net.Listen("tcp4", clientHost4+":80")
		return err
	}))
	defer listener.Close()
	seen := make(chan string, 1)
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer connection.Close()
				seen <- connection.RemoteAddr().String()
				_, _ = io.Copy(connection, connection)
			}()
		}
	}()
	for _, on := range []bool{true, false} {
		w.offloads(on)
		w.must(w.workload.Do(func() error { return sendsBack(clientHost4+":80", 1<<20) }))
		if got := netip.MustParseAddrPort(<-seen); got.Addr().String() != outVIP4 || model.RangeOf(got.Port()) < 500 || model.RangeOf(got.Port()) > 501 {
			t.Errorf("the server sees %s", got)
		}
	}
	w.refuses(listener.Addr().String())
}

// sendsBack sends so many bytes to a server that sends them back.
func sendsBack(server string, bytes int) error {
	connection, err := net.DialTimeout("tcp", server, 10*time.Second)
	if err != nil {
		return err
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		return err
	}
	failed := make(chan error, 1)
	go func() {
		_, err := connection.Write(make([]byte, bytes))
		failed <- errors.Join(err, connection.(*net.TCPConn).CloseWrite())
	}()
	n, err := io.Copy(io.Discard, connection)
	if err == nil && n != int64(bytes) {
		err = fmt.Errorf("%d bytes came back of %d", n, bytes)
	}
	return errors.Join(err, <-failed)
}

// refuses has no ports any more, and tells the workload.
func (w *world) refuses(server string) {
	w.t.Helper()
	w.leave()
	w.must(w.datapath.RefusePorts(netip.MustParseAddr(workloadDIP4), session.Now()+time.Hour))
	notices, err := w.datapath.Notices()
	w.must(err)
	defer notices.Close()
	var sender *snat.Sender
	w.must(w.host.Do(func() (err error) { sender, err = w.datapath.NewSender(); return err }))
	defer sender.Close()
	failed := make(chan error, 1)
	go func() { failed <- w.workload.Do(func() error { return sendsBack(server, 1) }) }()
	for {
		n, err := notices.Read(time.Now().Add(10 * time.Second))
		w.must(err)
		if n.Kind == snat.NoticeRefused {
			w.must(sender.Reject(n.Workload, n.Refusal()))
			break
		}
	}
	if err := <-failed; err == nil || !errors.Is(err, syscall.ECONNREFUSED) {
		w.t.Errorf("without ports the connection fails with %v", err)
	}
}

// A restart adopts ports, flows and what is left alone; nobody notices.
func TestSNATOutlivesTheDaemon(t *testing.T) {
	w := newWorld(t)
	w.leave(500, 501)
	server, workload := w.listenUDP(w.client, clientHost4+wellKnown), w.listenUDP(w.workload, workloadDIP4+":5000")
	to := net.UDPAddrFromAddrPort(netip.MustParseAddrPort(clientHost4 + wellKnown))
	buffer := make([]byte, 16)
	arrives := func() string {
		_, err := workload.WriteTo([]byte("hello"), to)
		w.must(err, server.SetReadDeadline(time.Now().Add(10*time.Second)))
		_, from, err := server.ReadFrom(buffer)
		w.must(err)
		return from.String()
	}
	before := arrives()
	w.must(w.datapath.Close())
	if got := arrives(); got != before {
		t.Errorf("without the daemon it leaves from %s, not %s", got, before)
	}
	w.start()
	live := w.datapath.LiveSNAT()
	if len(live) != 1 || live[0].Key.VIP.String() != outVIP4 || len(live[0].Ranges) != 2 || len(live[0].Except) == 0 ||
		live[0].Written != 7 || live[0].Cluster != 1<<63 {
		t.Errorf("after the restart it has %+v", live)
	}
	w.leave(500, 501)
	if got := arrives(); got != before {
		t.Errorf("after the restart it leaves from %s, not %s", got, before)
	}
	flows, err := w.datapath.Flows()
	w.must(err)
	if len(flows) != 1 {
		t.Errorf("flows are %v", flows)
	}
}
