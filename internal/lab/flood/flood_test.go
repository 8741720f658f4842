package flood_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"golang.org/x/sys/unix"

	"github.com/weirlb/weir/internal/lab/flood"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/pkt"
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

// sorts say how many sorts of packets a kind has, and of which one a packet is; "": of none.
var sorts = map[flood.Kind]struct {
	count int
	of    func(pkt.Packet) string
}{
	flood.SYN: {1, func(p pkt.Packet) string {
		if p.Flags == pkt.SYN && len(p.Options) == 1 && p.Options[0].OptionType == layers.TCPOptionKindMSS {
			return "SYN"
		}
		return ""
	}},
	flood.Handshake: {2, func(p pkt.Packet) string {
		switch p.Flags {
		case pkt.SYN:
			return "SYN"
		case pkt.ACK:
			return "ACK"
		}
		return ""
	}},
	flood.UDP: {1, func(p pkt.Packet) string {
		if p.Protocol == layers.IPProtocolUDP && len(p.Payload) == 16 {
			return "datagram"
		}
		return ""
	}},
	flood.Segment: {2, func(p pkt.Packet) string {
		if p.Flags != pkt.ACK || p.Ack == 0 || len(p.Payload) > 0 {
			return ""
		}
		if len(p.Options) == 1 && p.Options[0].OptionType == layers.TCPOptionKindTimestamps {
			return "stamped"
		}
		return "plain"
	}},
	flood.Fragment: {2, func(p pkt.Packet) string {
		switch ip := p.IP; {
		case p.Protocol != layers.IPProtocolUDP || len(p.Payload) != 24 || ip.DontFragment:
			return ""
		case ip.MoreFragments && ip.FragmentOffset == 0:
			return "first"
		case !ip.MoreFragments && ip.FragmentOffset == 3:
			return "later"
		}
		return ""
	}},
	flood.Ping: {1, func(p pkt.Packet) string {
		if p.Protocol == layers.IPProtocolICMPv4 || p.Protocol == layers.IPProtocolICMPv6 {
			return "ping"
		}
		return ""
	}},
}

// Each packet is one of its kind with right checksums, from another source of the right network.
func TestFloodIsOfGoodPackets(t *testing.T) {
	for _, kind := range flood.Kinds {
		for text, sources := range map[string]netip.Prefix{"10.9.1.2:80": flood.Sources4, "[fd00:91::2]:81": flood.Sources6} {
			target := netip.MustParseAddrPort(text)
			t.Run(fmt.Sprintf("%s to %s", kind, target), func(t *testing.T) { testPackets(t, kind, target, sources) })
		}
	}
}

func testPackets(t *testing.T, kind flood.Kind, target netip.AddrPort, sources netip.Prefix) {
	a, socket := ends(t)
	const sourcesEnough, runs = 100, 20 // a run may be short: the neighbour takes its part of it, and so do others of the CPU
	c := captured{seen: map[netip.Addr]bool{}, of: map[string]int{}}
	for run := 0; run < runs && len(c.seen) < sourcesEnough; run++ {
		must(t, a.Do(func() error {
			r, err := flood.Run(t.Context(), flood.Config{Targets: []netip.AddrPort{target}, Kind: kind, Duration: 300 * time.Millisecond})
			if err == nil && r.Packets == 0 {
				t.Error("nothing was sent")
			}
			return err
		}))
		c.read(t, socket, kind, target, sources)
	}
	if c.strays > c.of["ACK"]/2 { // a queue that is full takes one of both
		t.Errorf("of %d ACKs %d follow no SYN", c.of["ACK"], c.strays)
	}
	if len(c.seen) < sourcesEnough || len(c.of) != sorts[kind].count {
		t.Errorf("saw good packets of only %d sources: %v", len(c.seen), c.of)
	}
}

// captured is what arrived of a flood.
type captured struct {
	seen   map[netip.Addr]bool // sources
	of     map[string]int      // packets, by their sort
	before pkt.Packet
	strays int // that follow no packet of their source
}

// read takes what has arrived at the socket.
func (c *captured) read(t *testing.T, socket int, kind flood.Kind, target netip.AddrPort, sources netip.Prefix) {
	t.Helper()
	for buffer := make([]byte, 2000); ; {
		n, _, err := unix.Recvfrom(socket, buffer, 0)
		if err != nil {
			return
		}
		p, err := pkt.Decode(buffer[:n])
		if err != nil || p.IP.Destination != target.Addr() {
			continue // of neighbours
		}
		if !sources.Contains(p.IP.Source) {
			continue // of neighbours, likewise
		}
		if ported := kind != flood.Ping && kind != flood.Fragment; ported && p.DestinationPort != target.Port() {
			t.Fatalf("saw one for port %d", p.DestinationPort)
		}
		sort := sorts[kind].of(p)
		if sort == "" {
			t.Fatalf("saw %+v", p)
		}
		c.of[sort]++
		c.seen[p.IP.Source] = true
		if sort == "ACK" && (p.IP.Source != c.before.IP.Source || p.SourcePort != c.before.SourcePort || p.Seq != c.before.Seq+1) {
			c.strays++
		}
		c.before = p
	}
}

// A rate is kept, whatever one thread could send.
func TestFloodKeepsItsRate(t *testing.T) {
	a, _ := ends(t)
	must(t, a.Do(func() error {
		const rate, lasts = 2000, time.Second
		r, err := flood.Run(t.Context(), flood.Config{
			Targets: []netip.AddrPort{netip.MustParseAddrPort("10.9.1.2:80")}, Rate: rate, Duration: lasts,
		})
		if r.Packets == 0 || float64(r.Packets) > rate*r.Took.Seconds()+64 || time.Since(r.Began) < lasts {
			t.Errorf("%+v of %d a second", r, rate)
		}
		return err
	}))
}

func TestFloodsAreBounded(t *testing.T) {
	target := []netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:1")}
	for _, config := range []flood.Config{
		{Duration: time.Second}, {Targets: target}, {Targets: target, Duration: time.Hour}, {Targets: target, Duration: time.Second, Kind: "storm"},
	} {
		if _, err := flood.Run(t.Context(), config); err == nil {
			t.Errorf("%+v was accepted", config)
		}
	}
}
