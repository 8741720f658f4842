package flood_test

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/testkit/flood"
	"github.com/weirlb/weir/internal/testkit/netns"
	"github.com/weirlb/weir/internal/testkit/pkt"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// ends is two joined namespaces, the second with a socket that sees what arrives.
func ends(t *testing.T) (a *netns.NS, socket int) {
	t.Helper()
	a = netns.New(t, "nst-flood-a")
	b := netns.New(t, "nst-flood-b")
	must(t, netns.Veth(a, "va", b, "vb"))
	must(t, a.AddAddress("va", netip.MustParsePrefix("10.9.1.1/24"), netip.MustParsePrefix("fd00:91::1/64")))
	must(t, b.AddAddress("vb", netip.MustParsePrefix("10.9.1.2/24"), netip.MustParsePrefix("fd00:91::2/64")))
	must(t, b.Do(func() (err error) {
		index, err := b.Index("vb")
		if err != nil {
			return err
		}
		if socket, err = unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
			return err
		}
		all := binary.NativeEndian.Uint16(binary.BigEndian.AppendUint16(nil, unix.ETH_P_ALL))
		return unix.Bind(socket, &unix.SockaddrLinklayer{Protocol: all, Ifindex: index})
	}))
	t.Cleanup(func() { unix.Close(socket) })
	must(t, unix.SetsockoptTimeval(socket, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &unix.Timeval{Usec: 100_000}))
	return a, socket
}

// Each packet is a SYN or a datagram with right checksums, from another source of the right network.
func TestFloodIsOfGoodPackets(t *testing.T) {
	for _, c := range []struct {
		target  string
		sources netip.Prefix
		udp     bool
	}{
		{"10.9.1.2:80", flood.Sources4, false},
		{"10.9.1.2:82", flood.Sources4, true},
		{"[fd00:91::2]:81", flood.Sources6, false},
		{"[fd00:91::2]:83", flood.Sources6, true},
	} {
		target, sources := netip.MustParseAddrPort(c.target), c.sources
		a, socket := ends(t)
		must(t, a.Do(func() error {
			r, err := flood.Run(t.Context(), flood.Config{
				Targets: []netip.AddrPort{target}, UDP: c.udp, Duration: 300 * time.Millisecond, // of which the neighbour takes its part
			})
			if err == nil && r.Packets == 0 {
				t.Errorf("%s: nothing was sent", target)
			}
			return err
		}))
		seen := map[netip.Addr]bool{}
		for buffer := make([]byte, 2000); ; {
			n, _, err := unix.Recvfrom(socket, buffer, 0)
			if err != nil {
				break
			}
			p, err := pkt.Decode(buffer[:n])
			if err != nil || netip.AddrPortFrom(p.IP.Destination, p.DestinationPort) != target {
				continue // of neighbours
			}
			if udp := p.Protocol == layers.IPProtocolUDP; udp != c.udp || !udp && p.Flags != pkt.SYN {
				t.Fatalf("%s saw a packet of protocol %v, with flags %v", target, p.Protocol, p.Flags)
			}
			if !sources.Contains(p.IP.Source) {
				t.Errorf("%s saw %s, which is not of %s", target, p.IP.Source, sources)
			}
			seen[p.IP.Source] = true
		}
		if len(seen) < 100 {
			t.Errorf("%s saw good packets of only %d sources", target, len(seen))
		}
	}
}

func TestFloodsAreBounded(t *testing.T) {
	target := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}
	for _, config := range []flood.Config{{Duration: time.Second}, {Targets: target}, {Targets: target, Duration: time.Hour}} {
		if _, err := flood.Run(t.Context(), config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}
