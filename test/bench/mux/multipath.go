package main

import (
	"slices"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/pkt"
)

// Lengths of options of Multipath TCP as Linux writes them (RFC 8684, section 3), and their subtypes.
const (
	mpCapableBytes = 4 // of a SYN: no key
	mpJoinBytes    = 12
	dssShortBytes  = 18 // numbers of 4 bytes, no checksum
	dssLongBytes   = 26 // numbers of 8 bytes, likewise

	mpCapable, mpJoin, dss = 0, 1, 2

	dataClass = "tcp-cookie-dss-short" // 86 bytes without its payload, as in the paper
)

// multipathTCP is an option of Multipath TCP of so many bytes. The mux reads none of them.
func multipathTCP(subtype byte, bytes int) func(*pkt.Packet) {
	data := slices.Repeat([]byte{7}, bytes-2)
	data[0] = subtype << 4
	return pkt.TCPOptions(layers.TCPOption{OptionType: 30, OptionLength: uint8(bytes), OptionData: data})
}

// multipathClasses are what clients of Multipath TCP send, from sources of their own.
func multipathClasses(from func(n int) string, to string) []class {
	body := pkt.Payload(make([]byte, 100))
	syn := func(n, bytes int, subtype byte) pkt.Packet {
		return linuxSYN(from(n), to).With(multipathTCP(subtype, bytes), body)
	}
	ack := func(n int, options ...func(*pkt.Packet)) pkt.Packet {
		return pkt.TCP(from(n), to, pkt.ACK, append(options, body)...)
	}
	first := ack(42, timestamps(2), multipathTCP(dss, dssLongBytes), pkt.NOP(2))
	short := ack(45, timestamps(2), multipathTCP(dss, dssShortBytes), pkt.NOP(2))
	behind := ack(43, multipathTCP(dss, dssLongBytes), pkt.NOP(2), timestamps(2))
	echo := func(p pkt.Packet, at int) uint32 { return uint32(p.L4() + 20 + at) }
	return []class{
		{name: "tcp-mpc", packet: syn(40, mpCapableBytes, mpCapable), action: xdpTX},
		{name: "tcp-join", packet: syn(41, mpJoinBytes, mpJoin), action: xdpTX},
		{name: dataClass, packet: short, cookieAt: echo(short, 11), action: xdpTX},
		{name: "tcp-cookie-dss", packet: first, cookieAt: echo(first, 11), action: xdpTX},
		{name: "tcp-dss-cookie", packet: behind, cookieAt: echo(behind, dssLongBytes+2+11), action: xdpTX},
		// The flows of tcp-known, which the flow table has room for.
		{name: "tcp-dss-known", packet: ack(16, multipathTCP(dss, dssLongBytes), pkt.NOP(2)), action: xdpTX},
	}
}
