package agent

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/pkt"
)

// What GUE may say of a packet: bpf/abi/shared/gue.h.
const (
	guePort        = 6080
	entropy        = 50000
	stepNone       = 0
	stepAsk        = 1
	stepChained    = 2
	stepFinal      = 3
	kindPacket     = 0
	kindFragment   = 1
	kindRelay      = 2
	host4, host6   = "10.1.0.1", "fd01::1" // of the uplink
	peer4, peer6   = "10.1.0.50", "fd01::50"
	udpHeader      = 8
	gueHeader      = 4
	ethernetHeader = 14
)

// gue is the header that a packet travels in: plain, or with what Weir says.
type gue struct {
	weir                        bool
	step, kind                  uint8
	sourcePort, destinationPort uint16
	other                       netip.Addr // not valid: none
}

func step1(step uint8, other string) gue {
	return gue{weir: true, step: step, other: netip.MustParseAddr(other)}
}

func (g gue) bytes(inner pkt.IP) []byte {
	protocol := byte(4)
	if !inner.Is4() {
		protocol = 41
	}
	rest := []byte(nil)
	if g.weir {
		rest = []byte{1, g.step, g.kind, 0}
		rest = binary.BigEndian.AppendUint16(rest, g.sourcePort)
		rest = binary.BigEndian.AppendUint16(rest, g.destinationPort)
		if g.other.IsValid() {
			rest = append(rest, g.other.AsSlice()...)
		}
	}
	return append([]byte{byte(len(rest) / 4), protocol, 0, 0}, rest...)
}

// inGUE is the packet inside GUE to a tunnel address, as one UDP datagram without a checksum.
func inGUE(inner pkt.Packet, outer pkt.IP, g gue) pkt.Packet {
	frame := inner.With(func(p *pkt.Packet) { p.Outer = nil }).Frame()
	return pkt.UDP(
		netip.AddrPortFrom(outer.Source, entropy).String(), netip.AddrPortFrom(outer.Destination, guePort).String(),
		pkt.Payload(append(g.bytes(inner.IP), frame[ethernetHeader:]...)),
		func(p *pkt.Packet) { p.IP = outer })
}

// withoutChecksum zeroes the UDP checksum of an outermost header.
func withoutChecksum(p pkt.Packet) []byte {
	frame := p.Frame()
	frame[p.L4()+6], frame[p.L4()+7] = 0, 0
	return frame
}

// fromTo is an outer header.
func fromTo(from, to string) pkt.IP {
	destination := netip.MustParseAddr(to)
	return pkt.IP{Source: netip.MustParseAddr(from), Destination: destination, TTL: 64, DontFragment: destination.Is4()}
}

// carried is a packet given to from_uplink in GUE, without a checksum as muxes send it.
func carried(inner pkt.Packet, outer pkt.IP, g gue, verdict string, want *pkt.Packet) step {
	return step{program: "from_uplink", in: withoutChecksum(inGUE(inner, outer, g)), verdict: verdict, want: want}
}

// gueCases are packets in GUE of every form, in all families.
func gueCases() []packetCase {
	var all []packetCase
	for name, g := range map[string]gue{
		"plain":               {},
		"with weir":           {weir: true},
		"with an other of v4": {weir: true, other: netip.MustParseAddr(peer4)},
		"with an other of v6": {weir: true, other: netip.MustParseAddr(peer6)},
	} {
		for _, tunnel := range []string{native4, native6} {
			tcp, udp := pkt.TCP(client4, vip4, pkt.ACK|pkt.PSH), pkt.UDP(client6, vip6)
			tcpOut, udpOut := delivered(tcp, native4), delivered(udp, native6)
			all = append(all, packetCase{"GUE " + name + " to " + tunnel, []step{
				carried(tcp, outer(tunnel), g, "deliver_native", &tcpOut),
				carried(udp, outer(tunnel), g, "deliver_native", &udpOut),
			}})
		}
	}
	const ce, ect0 = 3, 2
	congested := outer(native6)
	congested.TOS = ce
	in := pkt.TCP(client4, vip4, pkt.ACK, pkt.TOS(ect0))
	out := delivered(in, native4, pkt.TOS(ce))
	whole := delivered(pkt.UDP(client4, vip4), interface4)
	return append(all,
		packetCase{"congestion in GUE goes inside", []step{carried(in, congested, gue{}, "deliver_native", &out)}},
		packetCase{"GUE with a checksum", []step{{
			program: "from_uplink", in: inGUE(pkt.UDP(client4, vip4), outer(interface4), gue{}).Frame(),
			verdict: "deliver_interface", want: &whole,
		}}})
}

// gueRefusalCases are GUE that nobody may take, or that is not for us.
func gueRefusalCases() []packetCase {
	in := pkt.TCP(client4, vip4, pkt.ACK)
	at := ethernetHeader + 20 + udpHeader
	changed := func(g gue, change func([]byte)) []byte {
		return with(withoutChecksum(inGUE(in, outer(native4), g)), change)
	}
	drop := func(verdict string, frames ...[]byte) []step {
		var steps []step
		for _, f := range frames {
			steps = append(steps, step{program: "from_uplink", in: f, verdict: verdict})
		}
		return steps
	}
	weir, asks := gue{weir: true}, step1(stepAsk, peer4)
	merged := changed(gue{}, func(f []byte) { f[at+gueHeader+3]-- })
	return []packetCase{
		{"GUE that contradicts itself", drop("drop_gue_malformed",
			changed(gue{}, func(f []byte) { f[at] = 1 }),
			changed(gue{}, func(f []byte) { f[at] = 31 }),
			changed(weir, func(f []byte) { f[at] = 1 }),
			changed(asks, func(f []byte) { f[at] = 2 }),
			changed(asks, func(f []byte) { f[at] = 4 }),
			changed(gue{}, func(f []byte) { f[at-3] = 11 }),
			changed(gue{}, func(f []byte) { f[at-4] = 0xff }),
			changed(weir, func(f []byte) { f[at-3], f[at-4] = 19, 0 }),
			changed(gue{weir: true, step: stepAsk, other: netip.MustParseAddr(peer6)}, func(f []byte) {
				copy(f[at+12:], netip.MustParseAddr("::ffff:10.1.0.50").AsSlice())
			}))},
		{"GUE that says what we don't know", drop("drop_gue_unknown",
			changed(gue{}, func(f []byte) { f[at] = 0x40 }),
			changed(gue{}, func(f []byte) { f[at] = 0x20 }),
			changed(gue{}, func(f []byte) { f[at+1] = 6 }),
			changed(gue{}, func(f []byte) { f[at+2] = 1 }),
			changed(weir, func(f []byte) { f[at+4] = 2 }),
			changed(asks, func(f []byte) { f[at+5] = 7 }),
			changed(asks, func(f []byte) { f[at+6] = 6 }),
			changed(gue{weir: true, kind: kindRelay}, func([]byte) {}))},
		{"GUE packets merged to one", []step{
			{program: "from_uplink", in: merged, skb: gso(3, 100), verdict: "drop_gue_merged"},
		}},
		{"GUE from an outsider", []step{
			carried(in, fromTo("10.0.0.2", native4), gue{}, "drop_not_a_mux", nil),
			carried(in, fromTo(peer4, native4), step1(stepAsk, peer4), "drop_not_a_mux", nil),
		}},
		{"GUE to someone else", []step{
			carried(in, fromTo(mux4, "10.1.0.99"), gue{}, "pass_unknown_tunnel", nil),
			inbound(pkt.UDP(mux4+":50000", native4+":6081"), "pass_not_tunnel", nil),
		}},
		{"ping in GUE", []step{
			carried(pkt.ICMP("198.51.100.7", "203.0.113.10"), outer(native4), gue{}, "drop_inner_other", nil),
		}},
	}
}

// prefixCases are muxes that send from prefixes: fill accepts 10.2.0.0/24 and fd02::/64.
func prefixCases() []packetCase {
	in := pkt.TCP(client4, vip4, pkt.ACK)
	out := delivered(in, native4)
	return []packetCase{{"a mux's prefix", []step{
		carried(in, fromTo("10.2.0.77", native4), gue{}, "deliver_native", &out),
		carried(in, fromTo("fd02::77", native6), gue{}, "deliver_native", &out),
		carried(in, fromTo("10.2.1.77", native4), gue{}, "drop_not_a_mux", nil),
		carried(in, fromTo("fd02:0:0:1::77", native6), gue{}, "drop_not_a_mux", nil),
	}}}
}

// allPortsCases are endpoints on all ports of a VIP, beside those of one port: fill makes the rules.
func allPortsCases() []packetCase {
	odd := pkt.TCP(client4, "203.0.113.12:12345", pkt.SYN)
	oddOut := odd.With(func(p *pkt.Packet) { p.IP.Destination = netip.MustParseAddr(native4) })
	oddAnswer := replyTo(oddOut, pkt.SYN|pkt.ACK)
	oddDirect := oddAnswer.With(from("203.0.113.12:12345"))
	exact := pkt.TCP(client4, allPorts4+":80", pkt.SYN)
	exactOut := delivered(exact, native4)
	return []packetCase{
		{"all ports keep the port", []step{
			carried(odd, outer(native4), gue{}, "deliver_native", &oddOut),
			outbound("to_uplink", oddAnswer, "reply_native", &oddDirect),
			carried(pkt.UDP(client4, "203.0.113.12:12345"), outer(native4), gue{}, "drop_no_rule", nil),
		}},
		{"one port comes before all", []step{carried(exact, outer(native4), gue{}, "deliver_native", &exactOut)}},
	}
}
