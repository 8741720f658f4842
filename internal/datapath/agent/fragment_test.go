package agent

import (
	"net/netip"

	"github.com/weirlb/weir/internal/pkt"
)

// piece is a datagram's fragment; a later one has no ports.
func piece(p pkt.Packet, offset uint16, more bool) pkt.Packet {
	return p.With(pkt.Fragment(offset, more), func(p *pkt.Packet) {
		if offset != 0 {
			p.SourcePort, p.DestinationPort = 0, 0
		}
	})
}

// fragmentCases are datagrams in pieces, inward and outward.
func fragmentCases() []packetCase {
	var all []packetCase
	for _, kind := range []string{"native", "interface"} {
		all = append(all,
			fragmented("v4", client4, vip4, dipOf(kind, 4), dipOf(kind, 6), kind),
			fragmented("v6", client6, vip6, dipOf(kind, 6), dipOf(kind, 4), kind))
	}
	first := piece(pkt.UDP(client4, vip4), 0, true)
	lying := gue{weir: true, kind: kindFragment, sourcePort: 40001, destinationPort: 80}
	return append(all,
		packetCase{"a first fragment whose ports are others", []step{
			carried(first, outer(native4), lying, "drop_inner_malformed", nil),
		}},
		packetCase{"a fragment that no mux kept", []step{
			carried(first, outer(native4), gue{weir: true}, "drop_inner_fragment", nil),
			carried(first, outer(native4), gue{}, "drop_inner_fragment", nil),
		}},
		packetCase{"a fragment of something else", []step{
			carried(pkt.ICMP("198.51.100.7", "203.0.113.10", pkt.Fragment(3, false)), outer(native4), ports(client4, vip4), "drop_inner_other", nil),
		}})
}

// ports is how a mux sends a fragment.
func ports(client, vip string) gue {
	return gue{
		weir: true, kind: kindFragment,
		sourcePort: netip.MustParseAddrPort(client).Port(), destinationPort: netip.MustParseAddrPort(vip).Port(),
	}
}

func fragmented(name, client, vip, dip, tunnel, kind string) packetCase {
	whole := pkt.UDP(client, vip)
	first, last := piece(whole, 0, true), piece(whole, 5, false)
	firstOut := delivered(first, dip)
	lastOut := last.With(func(p *pkt.Packet) { p.IP.Destination = netip.MustParseAddr(dip) })

	answer := replyTo(delivered(whole, dip), 0)
	answerFirst, answerLast := piece(answer, 0, true), piece(answer, 5, false)
	directFirst := answerFirst.With(from(vip))
	directLast := answerLast.With(func(p *pkt.Packet) { p.IP.Source = netip.MustParseAddrPort(vip).Addr() })
	other := answerLast.With(func(p *pkt.Packet) { p.IP.ID++ })
	program, reply := "to_uplink", "reply_native"
	if kind == "interface" {
		program, reply = "from_workload", "reply_uplink"
	}
	asks := ports(client, vip)
	asks.step, asks.other = stepAsk, netip.MustParseAddr(peer4)
	chained := inGUE(last, fromTo(handedFrom(tunnel), peer4), func() gue {
		g := asks
		g.step, g.other = stepChained, netip.MustParseAddr(tunnel)
		return g
	}())
	return packetCase{"fragments of " + name + " to " + kind, []step{
		// Unknown flows are handed on, ports and all.
		carried(last, outer(tunnel), asks, "chain_on", &chained),
		// The last one first: the ports come with each.
		carried(last, outer(tunnel), ports(client, vip), "deliver_"+kind, &lastOut),
		carried(first, outer(tunnel), ports(client, vip), "deliver_"+kind, decodedFrame(firstOut.Frame()[ethernetHeader:])),
		outbound(program, answerFirst, reply, decodedFrame(directFirst.Frame()[ethernetHeader:])),
		outbound(program, answerLast, reply, &directLast),
		outbound(program, other, "pass_fragment", nil),
	}}
}

// handedFrom is the outer source of what goes on to a backend of IPv4.
func handedFrom(own string) string {
	if netip.MustParseAddr(own).Is4() {
		return own
	}
	return host4
}
