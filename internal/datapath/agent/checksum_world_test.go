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
	index, err := w.network.Index("host")
	w.must(err)
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
		vip, source, tunnel := netip.MustParseAddr(at.vip), netip.MustParseAddr(at.source), netip.MustParseAddr(at.tunnel)
		tell := w.checksums(at.ns, at.dip, at.client, vip)
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
				if c.gue {
					w.must(w.mux.SendGUE(vip, source, tunnel, netip.Addr{}, index))
				} else {
					w.must(w.mux.Send(vip, source, tunnel))
				}
				w.must(w.mux.Verify(vip, c.verified))
				tell(t, c.trusted)
			})
		}
	}
}

// checksums tells whether a workload takes a datagram to the VIP with a wrong checksum, which one with a right one follows.
func (w *world) checksums(ns *netns.NS, dip, from string, vip netip.Addr) func(t *testing.T, trusted bool) {
	w.t.Helper()
	socket, out := w.datagrams(ns, dip), w.rawSocket(w.client, "eth0")
	source, err := w.client.MAC("eth0")
	w.must(err)
	gateway, err := w.network.MAC("client")
	w.must(err)
	client := netip.AddrPortFrom(netip.MustParseAddr(from), 5000).String()
	p := pkt.UDP(client, netip.AddrPortFrom(vip, vipPort).String(), pkt.Payload([]byte("wrong")))
	p.Source, p.Destination = pkt.MAC(source), pkt.MAC(gateway)
	wrong, right := p.Frame(), p.With(pkt.Payload([]byte("right"))).Frame()
	wrong[p.L4()+6] ^= 0x10
	return func(t *testing.T, trusted bool) {
		t.Helper()
		for _, frame := range [][]byte{wrong, right} {
			if _, err := unix.Write(out, frame); err != nil {
				t.Fatal(err)
			}
		}
		first := read(t, socket)
		if (first == "wrong") != trusted {
			t.Errorf("of a wrong and a right one the workload reads first the %s one", first)
		}
		if first == "wrong" {
			first = read(t, socket)
		}
		if first != "right" {
			t.Errorf("the workload reads %q then", first)
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
