package agent_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
)

// rawSocket is a packet socket at an interface.
func (w *world) rawSocket(ns *netns.NS, name string) int {
	w.t.Helper()
	index, err := ns.Index(name)
	w.must(err)
	var socket int
	w.must(ns.Do(func() (err error) {
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		return errors.Join(
			unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 50_000}),
			unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index}))
	}))
	w.t.Cleanup(func() { w.must(unix.Close(socket)) })
	return socket
}

// snatClient sends frames as the workload behind w0, and looks which of them the network gets.
type snatClient struct {
	w             *world
	out, in       int // sockets
	gateway, from pkt.MAC
	sent          int
}

func (w *world) snatClient() *snatClient {
	w.t.Helper()
	gateway, err := w.host.MAC("w0")
	w.must(err)
	from, err := w.workload.MAC("eth0")
	w.must(err)
	return &snatClient{
		w: w, out: w.rawSocket(w.workload, "eth0"), in: w.rawSocket(w.network, "host"),
		gateway: pkt.MAC(gateway), from: pkt.MAC(from),
	}
}

// leaves says whether a frame with the tags leaves the host. It sends one behind it that does.
func (l *snatClient) leaves(p pkt.Packet, tags ...uint32) bool {
	l.w.t.Helper()
	l.sent++
	mark, last := fmt.Appendf(nil, "frame %d of it.", l.sent), fmt.Appendf(nil, "behind frame %d.", l.sent)
	honest := pkt.UDP(workloadDIP4+":5000", "10.77.1.1:5000")
	for _, f := range [][]byte{l.frame(p, mark, tags...), l.frame(honest, last)} {
		_, err := unix.Write(l.out, f)
		l.w.must(err)
	}
	found := false
	l.w.eventually("the honest datagram leaves", func() bool {
		frame := make([]byte, 2048)
		for {
			n, _, err := unix.Recvfrom(l.in, frame, 0)
			if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
				return false
			}
			l.w.must(err)
			found = found || bytes.Contains(frame[:n], mark)
			if bytes.Contains(frame[:n], last) {
				return true
			}
		}
	})
	return found
}

func (l *snatClient) frame(p pkt.Packet, payload []byte, tags ...uint32) []byte {
	frame := p.With(pkt.Payload(payload), func(p *pkt.Packet) { p.Source, p.Destination = l.from, l.gateway }).Frame()
	out := append([]byte(nil), frame[:12]...)
	for _, tag := range tags {
		out = binary.BigEndian.AppendUint32(out, tag)
	}
	return append(out, frame[12:]...)
}

// forged are packets from addresses that are not the workload's.
func (l *snatClient) forged() map[string]pkt.Packet {
	all := make(map[string]pkt.Packet)
	for name, source := range map[string][2]string{
		"a VIP": {nativeVIP4, nativeVIP6}, "a mux": {"10.77.2.254", "fd77:2::254"}, "anybody": {"192.0.2.55", "2001:db8:55::1"},
	} {
		from4, from6 := netip.AddrPortFrom(netip.MustParseAddr(source[0]), 53).String(), netip.AddrPortFrom(netip.MustParseAddr(source[1]), 53).String()
		to4, to6 := "10.77.1.1:5000", "[fd77:1::1]:5000"
		tunnel := pkt.UDP(to4, nativeVIP4+":80")
		all[name+", v4"] = pkt.UDP(from4, to4)
		all[name+", v6"] = pkt.UDP(from6, to6)
		all[name+", v4, a fragment"] = pkt.UDP(from4, to4, pkt.Fragment(0, true))
		all[name+", outside of IP-in-IP, v4"] = tunnel.Inside(pkt.IP{Source: netip.MustParseAddr(source[0]), Destination: netip.MustParseAddr("10.77.1.1"), TTL: 64})
		all[name+", outside of IP-in-IP, v6"] = tunnel.Inside(pkt.IP{Source: netip.MustParseAddr(source[1]), Destination: netip.MustParseAddr("fd77:1::1"), TTL: 64})
	}
	return all
}

// tags of 802.1Q and 802.1ad that name no VLAN, of which the kernel takes each off.
var priorities = map[string][]uint32{
	"no tag": nil, "VID 0": {0x81000000}, "VID 0 of 802.1ad": {0x88a80000}, "two of VID 0": {0x88a80000, 0x81000000},
	"six of VID 0": {0x81000000, 0x81000000, 0x81000000, 0x81000000, 0x81000000, 0x81000000},
}

// TestTwoLocks has a workload forge its source on a host that forwards. It takes away one check at a time: the other
// one alone lets nothing leave. Without both it leaves, so the test sees what there is to see.
func TestTwoLocks(t *testing.T) {
	w := newWorld(t)
	w.must(
		w.host.Sysctl("net.ipv4.ip_forward", "1"), w.host.Sysctl("net.ipv6.conf.all.forwarding", "1"),
		w.host.Sysctl("net.ipv4.conf.all.rp_filter", "0"), w.host.Sysctl("net.ipv4.conf.w0.rp_filter", "0"))
	l := w.snatClient()
	none := func(what string) {
		t.Helper()
		for name, p := range l.forged() {
			for tags, words := range priorities {
				if l.leaves(p, words...) {
					t.Errorf("%s: from %s with %s leaves", what, name, tags)
				}
			}
		}
	}
	if !l.leaves(pkt.UDP(workloadDIP4+":7", "10.77.1.1:7"), 0x81000000) {
		t.Error("what is its own does not leave with a priority tag")
	}
	none("both checks")
	index, err := w.host.Index("w0")
	w.must(err)
	first := fmt.Sprintf("from_workload_%d", index)
	l.unlink(first, 1)
	none("the uplink's check alone")
	w.must(w.setWorkloads())
	l.unlink("to_uplink", 1)
	none("the workload's check alone")
	l.unlink(first, 0)
	if !l.leaves(pkt.UDP(nativeVIP4+":53", "10.77.1.1:5000"), 0x81000000) {
		t.Error("nothing leaves where nothing checks: the test sees nothing")
	}
}

// unlink takes a program away, and waits until so many are left that see what the workload sends.
func (l *snatClient) unlink(name string, left uint64) {
	l.w.t.Helper()
	l.w.must(os.Remove(filepath.Join(l.w.pins, "live", name)))
	l.w.eventually(name+" runs no more", func() bool {
		before, err := l.w.datapath.Verdicts()
		l.w.must(err)
		l.leaves(pkt.UDP(workloadDIP4+":7", "10.77.1.1:7"))
		after, err := l.w.datapath.Verdicts()
		l.w.must(err)
		return after["pass_no_session"].Packets-before["pass_no_session"].Packets == 2*left
	})
}

// TestRepliesAreNotLookedAtAgain has replies of a workload behind an interface pass the uplink as the agent's own.
func TestRepliesAreNotLookedAtAgain(t *testing.T) {
	w := newWorld(t)
	for name, way := range w.ways() {
		t.Run(name, func(t *testing.T) { w.transfer(t, way.server, way.dip, way.vip, 1<<20) })
	}
	verdicts, err := w.datapath.Verdicts()
	w.must(err)
	if verdicts["pass_ours"] != verdicts["reply_uplink"] || verdicts["pass_ours"].Packets == 0 {
		t.Errorf("of %v replies the uplink knows %v", verdicts["reply_uplink"], verdicts["pass_ours"])
	}
}
