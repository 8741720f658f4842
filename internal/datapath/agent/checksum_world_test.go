package agent_test

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// What the host's NIC has verified is not summed again behind the outer header, and all else is: a datagram whose checksum
// is wrong tells, for the NIC of this test verifies without looking.
func TestVerifiedChecksums(t *testing.T) {
	w := newWorld(t)
	gateway, err := w.network.MAC("client")
	w.must(err)
	from, err := w.client.MAC("eth0")
	w.must(err)
	out := w.rawSocket(w.client, "eth0")
	for _, at := range []struct {
		ns                  *netns.NS
		dip, client         string
		vip, source, tunnel string
	}{
		{w.host, hostDIP4, "10.77.1.1", nativeVIP4, "10.77.2.254", hostDIP4},
		{w.host, hostDIP6, "fd77:1::1", nativeVIP6, "10.77.2.254", hostDIP4},
		{w.workload, workloadDIP4, "10.77.1.1", interfaceVIP4, "fd77:2::254", workloadDIP6},
		{w.workload, workloadDIP6, "fd77:1::1", interfaceVIP6, "fd77:2::254", workloadDIP6},
	} {
		socket := w.datagrams(at.ns, at.dip)
		for _, c := range []struct {
			gue      bool
			verified int
			trusted  bool
		}{
			{gue: false, verified: 0, trusted: false},
			{gue: false, verified: 1, trusted: true},
			{gue: true, verified: 0, trusted: false},
			{gue: true, verified: 1, trusted: false}, // UDP's outside
			{gue: true, verified: 2, trusted: true},
		} {
			t.Run(fmt.Sprintf("to %s, GUE %v, %d verified", at.vip, c.gue, c.verified), func(t *testing.T) {
				w.t = t
				vip, source, tunnel := netip.MustParseAddr(at.vip), netip.MustParseAddr(at.source), netip.MustParseAddr(at.tunnel)
				if c.gue {
					index, err := w.network.Index("host")
					w.must(err, w.mux.SendGUE(vip, source, tunnel, netip.Addr{}, index))
				} else {
					w.must(w.mux.Send(vip, source, tunnel))
				}
				w.must(w.mux.Verify(vip, c.verified))
				client := netip.AddrPortFrom(netip.MustParseAddr(at.client), 5000).String()
				p := pkt.UDP(client, netip.AddrPortFrom(vip, vipPort).String(), pkt.Payload([]byte("wrong")))
				p.Source, p.Destination = pkt.MAC(from), pkt.MAC(gateway)
				wrong := p.Frame()
				wrong[p.L4()+6] ^= 0x10
				for _, frame := range [][]byte{wrong, p.With(pkt.Payload([]byte("right"))).Frame()} {
					_, err := unix.Write(out, frame)
					w.must(err)
				}
				first := read(t, socket)
				if (first == "wrong") != c.trusted {
					t.Errorf("of a wrong and a right one the workload reads first the %s one", first)
				}
				if first == "wrong" {
					first = read(t, socket)
				}
				if first != "right" {
					t.Errorf("the workload reads %q then", first)
				}
			})
		}
	}
}

// datagrams is a UDP socket of a workload.
func (w *world) datagrams(ns *netns.NS, dip string) (socket net.PacketConn) {
	w.t.Helper()
	w.must(ns.Do(func() (err error) {
		socket, err = net.ListenPacket("udp", netip.AddrPortFrom(netip.MustParseAddr(dip), dipPort).String())
		return err
	}))
	w.t.Cleanup(func() { socket.Close() })
	return socket
}

func read(t *testing.T, socket net.PacketConn) string {
	t.Helper()
	buffer := make([]byte, 100)
	if err := socket.SetReadDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	n, _, err := socket.ReadFrom(buffer)
	if err != nil {
		t.Fatal(err)
	}
	return string(buffer[:n])
}
