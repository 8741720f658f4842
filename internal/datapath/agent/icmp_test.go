package agent

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/pkt"
)

// Types of ICMP messages.
const (
	unreachable4, timeExceeded4, parameterProblem4            = 3, 11, 12
	unreachable6, tooBig6, timeExceeded6, parameterBad6       = 1, 2, 3, 4
	echo4, echo6                                              = 8, 128
	protocolICMP4, protocolICMP6, protocolFragment      uint8 = 1, 58, 44
)

// message is an ICMP message in an IP packet of its own, with right checksums.
func message(from, to string, kind uint8, body []byte) []byte {
	source, destination := netip.MustParseAddr(from), netip.MustParseAddr(to)
	icmp := append([]byte{kind, 0, 0, 0, 0, 0, 5, 0xdc}, body...) // next hop's MTU: 1500
	if source.Is4() {
		binary.BigEndian.PutUint16(icmp[2:], sumOf(icmp))
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, 64, protocolICMP4, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(icmp)))
		ip = append(append(ip, source.AsSlice()...), destination.AsSlice()...)
		binary.BigEndian.PutUint16(ip[10:], sumOf(ip))
		return append(ip, icmp...)
	}
	ip := []byte{0x60, 0, 0, 0, 0, 0, protocolICMP6, 64}
	binary.BigEndian.PutUint16(ip[4:], uint16(len(icmp)))
	ip = append(append(ip, source.AsSlice()...), destination.AsSlice()...)
	pseudo := append(append([]byte(nil), ip[8:]...), 0, 0, ip[4], ip[5], 0, 0, 0, protocolICMP6)
	binary.BigEndian.PutUint16(icmp[2:], sumOf(append(pseudo, icmp...)))
	return append(ip, icmp...)
}

func sumOf(data []byte) uint16 {
	var sum uint32
	for i, b := range data {
		sum += uint32(b) << (8 * (1 - i%2))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// quote is what an error shows of a packet: its first bytes.
func quote(p pkt.Packet, bytes int) []byte {
	all := p.Frame()[ethernetHeader:]
	return all[:min(bytes, len(all))]
}

// quotes is the same quote after its source or destination became another; the transport's checksum
// is that of before.
func quotes(quoted []byte, source bool, to string) []byte {
	q := append([]byte(nil), quoted...)
	target := netip.MustParseAddrPort(to)
	at, size, header := 12, 4, 20
	if target.Addr().Is6() {
		at, size, header = 8, 16, 40
		if q[6] == protocolFragment {
			header += 8
		}
	}
	port := header
	if !source {
		at, port = at+size, port+2
	}
	copy(q[at:], target.Addr().AsSlice())
	binary.BigEndian.PutUint16(q[port:], target.Port())
	if target.Addr().Is4() {
		q[10], q[11] = 0, 0
		binary.BigEndian.PutUint16(q[10:], sumOf(q[:20]))
	}
	return q
}

// asFrame puts an IP packet behind an Ethernet header.
func asFrame(ip []byte) []byte {
	frame := pkt.UDP(client4, vip4).Frame()[:ethernetHeader]
	if ip[0]>>4 == 6 {
		frame = pkt.UDP(client6, vip6).Frame()[:ethernetHeader]
	}
	return append(append([]byte(nil), frame...), ip...)
}

// decodedFrame is what an IP packet must come out as.
func decodedFrame(ip []byte) *pkt.Packet {
	p, err := pkt.Decode(asFrame(ip))
	if err != nil {
		panic(err)
	}
	return &p
}

// carriedRaw is any IP packet in GUE.
func carriedRaw(ip []byte, outer pkt.IP, verdict string, want *pkt.Packet) step {
	family := pkt.IP{Source: netip.MustParseAddr(mux6)}
	if ip[0]>>4 == 4 {
		family.Source = netip.MustParseAddr(mux4)
	}
	datagram := inGUE(pkt.UDP(client4, vip4), outer, gue{}).With(pkt.Payload(append(gue{}.bytes(family), ip...)))
	return step{program: "from_uplink", in: withoutChecksum(datagram), verdict: verdict, want: want}
}

// icmpWorld is one family's names in the cases.
type icmpWorld struct {
	client, vip, router, dip, tunnel string
	errors                           []uint8
	least                            int // bytes of a quote with ports
}

// icmpCases are errors about connections, inward and outward.
func icmpCases() []packetCase {
	v4 := icmpWorld{client4, vip4, "192.0.2.1", native4, native6, []uint8{unreachable4, timeExceeded4, parameterProblem4}, 28}
	v6 := icmpWorld{client6, vip6, "2001:db8:9::1", native6, native4, []uint8{unreachable6, tooBig6, timeExceeded6, parameterBad6}, 44}
	var all []packetCase
	for _, kind := range []string{"native", "interface"} {
		for _, w := range []icmpWorld{v4, v6} {
			if kind == "interface" {
				w.dip, w.tunnel = interface4, interface6
				if netip.MustParseAddrPort(w.client).Addr().Is6() {
					w.dip, w.tunnel = interface6, interface4
				}
			}
			all = append(all, w.inward(kind), w.outward(kind))
		}
	}
	return append(all, v4.unknown(), v6.unknown(), v4.laterFragment(), v4.firstFragment(), v6.firstFragment())
}

// firstFragment is errors about the first fragment of a datagram, which has its ports: a router with a smaller MTU says so of a
// long answer to the client, and a workload of what a client sent.
func (w icmpWorld) firstFragment() packetCase {
	vip, client := w.addresses()
	connection := pkt.UDP(w.client, w.vip)
	out := delivered(connection, w.dip)
	first := func(p *pkt.Packet) {
		p.IP.MoreFragments, p.IP.DontFragment, p.Payload = true, false, make([]byte, 1200)
	}
	quoted := quote(replyTo(out, 0).With(from(w.vip)).With(first), 1000)
	sent := quote(out.With(first), 1000)
	dipPort := netip.AddrPortFrom(netip.MustParseAddr(w.dip), backendPort).String()
	later := append([]byte(nil), quoted...)
	bare, at := w.least-8, 7
	if netip.MustParseAddr(vip).Is6() {
		bare, at = bare+8, 43
	}
	later[at] |= 0x18
	return packetCase{"error about a first fragment of " + w.vip, []step{
		carried(connection, outer(w.tunnel), gue{}, "deliver_native", &out),
		carriedRaw(message(w.router, vip, w.errors[1], quoted), outer(w.tunnel), "deliver_native",
			decodedFrame(message(w.router, w.dip, w.errors[1], quotes(quoted, true, dipPort)))),
		{
			program: "to_uplink", in: asFrame(message(w.dip, client, w.errors[0], sent)), verdict: "reply_native",
			want: decodedFrame(message(vip, client, w.errors[0], quotes(sent, false, w.vip))),
		},
		carriedRaw(message(w.router, vip, w.errors[1], quoted[:bare]), outer(w.tunnel), "drop_icmp_unknown", nil),
		carriedRaw(message(w.router, vip, w.errors[1], later), outer(w.tunnel), "drop_icmp_unknown", nil),
	}}
}

// laterFragment is an error about a fragment behind the first one, whose bytes happen to look like the ports of
// a connection.
func (w icmpWorld) laterFragment() packetCase {
	vip, _ := w.addresses()
	connection := pkt.UDP(w.client, w.vip)
	out := delivered(connection, native4)
	quoted := quote(replyTo(connection, 0), 1000)
	later := append([]byte(nil), quoted...)
	binary.BigEndian.PutUint16(later[6:], 100)
	return packetCase{"error about a later fragment", []step{
		carried(connection, outer(w.tunnel), gue{}, "deliver_native", &out),
		carriedRaw(message(w.router, vip, w.errors[0], later), outer(w.tunnel), "drop_icmp_unknown", nil),
	}}
}

func (w icmpWorld) addresses() (vip, client string) {
	return netip.MustParseAddrPort(w.vip).Addr().String(), netip.MustParseAddrPort(w.client).Addr().String()
}

// inward is errors about replies of the VIP, quoted in full and with no more than the ports.
func (w icmpWorld) inward(kind string) packetCase {
	vip, _ := w.addresses()
	dipPort := netip.AddrPortFrom(netip.MustParseAddr(w.dip), backendPort).String()
	program := map[string]string{"native": "to_uplink", "interface": "from_workload"}[kind]
	reply := map[string]string{"native": "reply_native", "interface": "reply_uplink"}[kind]
	var steps []step
	for _, connection := range []pkt.Packet{pkt.TCP(w.client, w.vip, pkt.ACK), pkt.UDP(w.client, w.vip)} {
		out := delivered(connection, w.dip)
		answer := replyTo(out, connection.Flags)
		direct := answer.With(from(w.vip))
		steps = append(steps, carried(connection, outer(w.tunnel), gue{}, "deliver_"+kind, &out),
			outbound(program, answer, reply, &direct))
		for _, kindOfError := range w.errors {
			for _, bytes := range []int{w.least, 1000} {
				quoted := quote(direct, bytes)
				steps = append(steps, carriedRaw(message(w.router, vip, kindOfError, quoted), outer(w.tunnel), "deliver_"+kind,
					decodedFrame(message(w.router, w.dip, kindOfError, quotes(quoted, true, dipPort)))))
			}
		}
	}
	return packetCase{"error about a reply to " + w.client + " of " + kind, steps}
}

// outward is a workload's errors about what the client sent.
func (w icmpWorld) outward(kind string) packetCase {
	vip, client := w.addresses()
	program := map[string]string{"native": "to_uplink", "interface": "from_workload"}[kind]
	reply := map[string]string{"native": "reply_native", "interface": "reply_uplink"}[kind]
	in := pkt.UDP(w.client, w.vip)
	out := delivered(in, w.dip)
	quoted := quote(out, 1000)
	said := asFrame(message(w.dip, client, w.errors[0], quoted))
	return packetCase{"error of " + kind + " about a packet of " + w.client, []step{
		{program: program, in: said, verdict: "pass_no_session"},
		carried(in, outer(w.tunnel), gue{}, "deliver_"+kind, &out),
		{program: program, in: said, verdict: reply, want: decodedFrame(message(vip, client, w.errors[0], quotes(quoted, false, w.vip)))},
		{program: program, in: asFrame(message(w.dip, w.router, w.errors[0], quoted)), verdict: "pass_other"},
		{program: program, in: asFrame(message(w.dip, client, w.errors[0], quoted[:w.least-8])), verdict: "pass_other"},
	}}
}

// unknown are errors about nothing that this host has to do with.
func (w icmpWorld) unknown() packetCase {
	vip, _ := w.addresses()
	reply := replyTo(pkt.TCP(w.client, w.vip, pkt.ACK), pkt.ACK)
	other := reply.With(func(p *pkt.Packet) { p.SourcePort = 81 })
	foreign := reply.With(func(p *pkt.Packet) { p.IP.Source = netip.MustParseAddr(w.dip) })
	echo := map[bool]uint8{true: echo4, false: echo6}[netip.MustParseAddr(vip).Is4()]
	return packetCase{"error about no connection of " + w.vip, []step{
		carriedRaw(message(w.router, vip, w.errors[0], quote(reply, 1000)), outer(w.tunnel), "drop_icmp_unknown", nil),
		carriedRaw(message(w.router, vip, w.errors[0], quote(foreign, 1000)), outer(w.tunnel), "drop_icmp_unknown", nil),
		carriedRaw(message(w.router, vip, w.errors[0], quote(reply, w.least-8)), outer(w.tunnel), "drop_icmp_unknown", nil),
		carriedRaw(message(w.router, vip, w.errors[0], nil), outer(w.tunnel), "drop_icmp_unknown", nil),
		carriedRaw(message(w.router, vip, w.errors[0], quote(other, 1000)), outer(w.tunnel), "drop_no_rule", nil),
		carriedRaw(message(w.router, vip, echo, nil), outer(w.tunnel), "drop_inner_other", nil),
	}}
}
