package mux

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// otherMACCases are frames that a flooded or promiscuous link brings: for VIPs, but not for this mux.
func otherMACCases() []packetCase {
	broadcast, foreign, group := pkt.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, pkt.MAC{2, 0, 0, 0, 0, 3}, pkt.MAC{1, 0, 0x5e, 0, 0, 1}
	to := func(mac pkt.MAC) func([]byte) []byte {
		return func(frame []byte) []byte { copy(frame, mac[:]); return frame }
	}
	return []packetCase{
		{name: "broadcast", packet: pkt.TCP(client4, vip4, pkt.SYN), damage: to(broadcast), verdict: "pass_other_mac"},
		{name: "a group", packet: pkt.TCP(client4, vip4, pkt.SYN), damage: to(group), verdict: "pass_other_mac"},
		{name: "another host", packet: pkt.TCP(client4, vip4, pkt.ACK), damage: to(foreign), verdict: "pass_other_mac"},
		{name: "another first byte", packet: pkt.TCP(client4, vip4, pkt.ACK), damage: to(pkt.MAC{6, 0, 0, 0, 0, 2}), verdict: "pass_other_mac"},
		{name: "another host, v6", packet: pkt.UDP(client6, vip6), damage: to(foreign), verdict: "pass_other_mac"},
		{name: "another host, tagged", packet: pkt.UDP(client6, vip6, pkt.VLANs(5)), damage: to(foreign), verdict: "pass_other_mac"},
		{name: "ping", packet: pkt.ICMP("198.51.100.7", "203.0.113.10"), damage: to(broadcast), verdict: "pass_other_mac"},
		{name: "fragment", packet: pkt.UDP(client4, vip4, pkt.Fragment(0, true)), damage: to(foreign), verdict: "pass_other_mac"},
		{name: "SYN that would be answered", packet: pkt.TCP(client4, vip4, pkt.SYN), damage: to(broadcast), change: answering, verdict: "pass_other_mac"},
	}
}

// martianCases are packets from addresses that no host has (RFC 1812, section 5.3.7).
func martianCases() []packetCase {
	var cases []packetCase
	add := func(name string, packet pkt.Packet) {
		cases = append(cases, packetCase{name: name, packet: packet, verdict: "drop_martian"})
	}
	for _, from := range []string{
		"127.0.0.1:40000", "127.255.255.255:40000", "0.0.0.0:40000", "0.0.0.1:40000", "224.0.0.1:40000",
		"239.255.255.255:40000", "240.0.0.1:40000", "255.255.255.255:40000", "203.0.113.10:40000",
	} {
		add("SYN from "+from, pkt.TCP(from, vip4, pkt.SYN))
		add("ACK from "+from, pkt.TCP(from, vip4, pkt.ACK))
		add("datagram from "+from, pkt.UDP(from, vip4))
		add("first fragment from "+from, pkt.UDP(from, vip4, pkt.Fragment(0, true)))
		add("later fragment from "+from, pkt.UDP(from, vip4, pkt.Fragment(9, false)))
	}
	for _, from := range []string{"[::]:40000", "[::1]:40000", "[ff02::1]:40000", "[ff0e::1]:40000", "[2001:db8:1::10]:40000"} {
		add("SYN from "+from, pkt.TCP(from, vip6, pkt.SYN))
		add("datagram from "+from, pkt.UDP(from, vip6))
		add("fragment from "+from, pkt.UDP(from, vip6, pkt.Fragment(9, false)))
	}
	cases = append(cases,
		packetCase{name: "with a cookie", packet: pkt.TCP("127.0.0.1:40000", vip4, pkt.ACK, stamped(1)), change: altered(withCookies), verdict: "drop_martian"},
		packetCase{name: "SYN that would be answered", packet: pkt.TCP("127.0.0.1:40000", vip4, pkt.SYN), change: answering, verdict: "drop_martian"},
		packetCase{name: "ICMP error", packet: pkt.UDP(client4, vip4), damage: func([]byte) []byte { return errorFrom(vip4, client4, []byte{127, 0, 0, 1}) }, verdict: "drop_martian"},
		packetCase{name: "ICMP error about a packet to one", packet: pkt.UDP(client4, vip4), damage: func([]byte) []byte { return icmpError(vip4, "127.0.0.1:40000", 28) }, verdict: "drop_martian"},
	)
	return cases
}

// errorFrom is an ICMP error about a packet of the VIP's, from an address of IPv4.
func errorFrom(vip, client string, source []byte) []byte {
	frame := icmpError(vip, client, 28)
	copy(frame[14+12:], source)
	return frame
}

// Addresses that border on those of nobody are hosts' all the same.
func TestHostsNextToMartiansMayCome(t *testing.T) {
	d := newFilled(t, world()...)
	for _, from := range []string{
		"1.0.0.0:1", "126.255.255.255:1", "128.0.0.0:1", "223.255.255.255:1", "100.64.0.1:1", "203.0.113.11:1",
	} {
		if action, out := run(t, d, pkt.TCP(from, vip4, pkt.SYN).Frame()); action != xdpTX || len(out) == 0 {
			t.Errorf("action %d for a SYN from %s, want it forwarded", action, from)
		}
	}
	for _, from := range []string{"[::2]:1", "[0:1::]:1", "[fe00::1]:1", "[2001:db8:1::11]:1", "[::1:0:0:1]:1"} {
		if action, _ := run(t, d, pkt.TCP(from, vip6, pkt.SYN).Frame()); action != xdpTX {
			t.Errorf("action %d for a SYN from %s, want it forwarded", action, from)
		}
	}
}

// A workload that leaves as a VIP may ask the same VIP for something.
func TestWorkloadAsksItsOwnVIP(t *testing.T) {
	d := newFilled(t, newEndpoint(vip4, model.TCP, tunnel4))
	leaving(t, d)
	for _, packet := range []pkt.Packet{
		pkt.TCP("203.0.113.10:5000", vip4, pkt.SYN), pkt.TCP("203.0.113.10:5000", vip4, pkt.ACK),
	} {
		action, out := run(t, d, bytes.Clone(packet.Frame()))
		checkAction(t, action, xdpTX)
		if got, err := pkt.Decode(out); err != nil || got.Protocol != layers.IPProtocolTCP {
			t.Errorf("sent %+v, %v", got, err)
		}
	}
}
