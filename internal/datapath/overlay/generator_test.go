package overlay

import (
	"bytes"
	"encoding/binary"
	"maps"
	"math/rand/v2"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

// generator makes packets of few connections, so that they meet again, and spoils some.
type generator struct {
	*rand.Rand
	w *twins
}

func pick[T any](g generator, from ...T) T { return from[g.IntN(len(from))] }

// in says yes once in n times.
func (g generator) in(n int) bool { return g.IntN(n) == 0 }

func (g generator) next() (program string, frame []byte) {
	switch g.IntN(10) {
	case 0, 1:
		program, frame = pick(g, toUnderlay, "from_server"), g.fromServer()
	case 2, 3:
		program, frame = "from_client", g.fromClient()
	case 4, 5:
		program, frame = fromUnderlay, g.toClient()
	default:
		program, frame = fromUnderlay, g.fromUnderlay()
	}
	if g.in(6) {
		frame = g.spoil(frame)
	}
	return program, frame
}

// spoil changes bits, mostly of headers, or cuts the end off.
func (g generator) spoil(frame []byte) []byte {
	frame = bytes.Clone(frame)
	for range 1 + g.IntN(3) {
		at := g.IntN(len(frame))
		if g.in(2) {
			at = g.IntN(min(len(frame), 120))
		}
		frame[at] ^= 1 << g.IntN(8)
	}
	if g.in(4) {
		frame = frame[:max(len(frame)/2, len(frame)-g.IntN(40))]
	}
	return frame
}

// options are any that TCP has, of any length, in any order, and random bytes that are none.
func (g generator) options(room int) []layers.TCPOption {
	var all []layers.TCPOption
	length := 0
	add := func(kind uint8, data []byte) {
		o := layers.TCPOption{OptionType: layers.TCPOptionKind(kind), OptionLength: uint8(2 + len(data)), OptionData: data}
		size := 2 + len(data)
		if kind < 2 {
			o.OptionLength, o.OptionData, size = 1, nil, 1
		}
		if length+size <= room {
			all, length = append(all, o), length+size
		}
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(g.Uint32())
		}
		return b
	}
	kinds := []func(){
		func() { add(2, []byte{byte(g.IntN(12)), byte(g.Uint32())}) },
		func() { add(2, []byte{5, 180}) },
		func() { add(3, random(1)) },
		func() { add(4, nil) },
		func() { add(8, random(8)) },
		func() { add(1, nil) },
		func() { add(1, nil) },
		func() { add(uint8(2+g.IntN(253)), random(g.IntN(16))) },
	}
	g.Shuffle(len(kinds), func(i, j int) { kinds[i], kinds[j] = kinds[j], kinds[i] })
	for _, kind := range kinds[:g.IntN(len(kinds)+1)] {
		kind()
	}
	if g.in(10) {
		add(0, nil)
	}
	for length%4 != 0 { // explicit: what serialises would end the list
		all, length = append(all, layers.TCPOption{OptionType: 1, OptionLength: 1}), length+1
	}
	return all
}

// number is what is expected, or near it on either side, or anything.
func (g generator) number(expected uint32) uint32 {
	switch g.IntN(6) {
	case 0:
		return expected + uint32(g.IntN(1<<18)) - 1<<17
	case 1:
		return g.Uint32()
	}
	return expected
}

func (g generator) flags() pkt.Flags {
	return pick(g, pkt.SYN, pkt.SYN, pkt.SYN, pkt.ACK, pkt.ACK, pkt.ACK, pkt.ACK, pkt.ACK|pkt.FIN, pkt.RST,
		pkt.RST|pkt.ACK, pkt.SYN|pkt.ACK, pkt.Flags(g.Uint32()))
}

// ends are those of a session, or any of a network's.
func (g generator) ends() (number uint32, client, vip netip.AddrPort) {
	if rows := g.rows(); len(rows) > 0 && g.in(2) {
		s := g.w.oracle.Sessions[rows[g.IntN(len(rows))]]
		return s.Attachment, s.Client, netip.AddrPortFrom(g.w.oracle.Attachments[s.Attachment].VIP, s.Port)
	}
	number = pick(g, uint32(1), 1, 2, 3, 4)
	a := g.w.oracle.Attachments[number]
	addr := pick(g, "192.168.0.5", "192.168.0.6")
	if !a.VIP.Is4() {
		addr = pick(g, "fd12::5", "fd12:1:2:3:4:5:6:7")
	}
	client = netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(40000+g.IntN(4)))
	return number, client, netip.AddrPortFrom(a.VIP, pick(g, uint16(80), 80, 443, 8080, 22, 23))
}

// session is what the oracle knows of a connection; zero: nothing.
func (g generator) session(number uint32, client, vip netip.AddrPort) hoststate.Session {
	for _, s := range g.w.oracle.Sessions {
		if !s.UDP && s.Attachment == number && s.Client == client && s.Port == vip.Port() {
			return *s
		}
	}
	return hoststate.Session{ClientNext: 1<<32 - 3} // numbers wrap
}

func (g generator) fromUnderlay() []byte {
	number, client, vip := g.ends()
	s, a := g.session(number, client, vip), g.w.oracle.Attachments[number]
	flags := g.flags()
	p := pkt.TCP(client.String(), vip.String(), flags, pkt.Payload(make([]byte, pick(g, 0, 0, 1, 7, 100))))
	p.Source = [6]byte{2, 0, 0, 0, byte(number), byte(g.IntN(2))}
	p.Seq, p.Ack = g.number(s.ClientNext), g.number(s.ServerNext)
	if flags&pkt.SYN != 0 && !g.in(8) {
		p.Seq = s.ClientNext - 1
	}
	g.decorate(&p)
	mux := !g.in(3)
	if g.in(3) {
		return g.withHeader(p, s, a.VNI, mux)
	}
	if g.in(6) {
		return g.withTicket(p, number)
	}
	p.Options = g.options(40)
	v := pkt.VXLAN{VNI: a.VNI, SourcePort: 50000, Outer: g.outer(mux, s)}
	if mux && !g.in(20) {
		p.Options = append(fbtOption(g.fbt(p, v)), g.options(24)...)
	}
	if g.in(40) {
		v.Reserved[g.IntN(4)] = pkt.Route
	}
	if g.in(40) {
		p.Protocol, p.Options = layers.IPProtocolUDP, nil
	}
	frame := p.Frame()
	return v.Carry(frame)
}

// decorate gives the inner packet what is rare.
func (g generator) decorate(p *pkt.Packet) {
	p.IP.TOS, p.IP.TTL = pick(g, uint8(0), 0, 1, 2, 3, 0xb8), uint8(1+g.IntN(255))
	if g.in(25) && p.IP.Is4() {
		*p = p.With(pkt.IPOptions(4 * (1 + g.IntN(10))))
	}
	if g.in(40) {
		*p = p.With(pkt.Fragment(uint16(8*g.IntN(3)), g.in(2)))
	}
	if g.in(10) {
		p.Padding = 1 + g.IntN(20)
	}
}

func (g generator) outer(mux bool, s hoststate.Session) pkt.IP {
	v4 := g.in(2)
	to, from := "fd01::5", pick(g, "fd02::1", "fd02::1", "fd07::7")
	if v4 {
		to, from = pick(g, "10.1.0.5", "10.1.0.5", "10.1.0.5", "10.1.0.77"), pick(g, "10.2.0.1", "10.2.0.1", "10.2.0.2", "10.2.0.3", "10.7.7.7")
	}
	if s.Host != 0 && !g.in(4) {
		for _, a := range g.w.oracle.Hosts[s.Host] {
			if a.Is4() == v4 {
				from = a.String()
			}
		}
	}
	if mux {
		if from = "fd00::1"; v4 {
			from = "10.0.0.1"
		}
	}
	return pkt.IP{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(to), TTL: 64, TOS: pick(g, uint8(0), 0, 0, 0, 1, 1, 2, 3),
	}
}

// fbt is mostly right.
func (g generator) fbt(p pkt.Packet, v pkt.VXLAN) [fbt.Length]byte {
	key, vni := g.w.oracle.Keys[g.IntN(2)], v.VNI
	switch g.IntN(12) {
	case 0:
		key.ID += 2 // not valid
	case 1:
		key.Secret[g.IntN(16)] ^= 1
	case 2:
		vni++
	}
	says := fbt.Content{VNI: vni, Number: pick(g, uint32(7), 7, 7, 7, 7, 7, 8, 8, 9, 0, 77), Via: g.in(3)}
	if g.in(3) {
		says = fbt.Content{VNI: vni, Via: g.in(3), Host: netip.MustParseAddr(pick(g, "10.2.0.1", "10.2.0.1", "10.2.0.1", "10.2.0.1", "10.2.0.2", "10.0.0.1", "10.7.7.7"))}
	}
	return fbt.Encode(key, fbt.Segment{
		Outer: v.Outer.Destination, Seq: p.Seq,
		Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}, says)
}

// rows are those that have sessions.
func (g generator) rows() []uint32 { return slices.Sorted(maps.Keys(g.w.oracle.Sessions)) }

// fromServer is mostly an answer in a session.
func (g generator) fromServer() []byte {
	rows := g.rows()
	from, to := "10.1.0.5:8080", pick(g, "100.64.3.4:40000", "100.127.255.255:40000", "192.0.2.1:80")
	if g.in(3) {
		from, to = "[fd01::5]:8080", pick(g, "[fd99::9]:40000", "[fd99:0:1::9]:40000")
	}
	var s hoststate.Session
	if len(rows) > 0 && !g.in(8) {
		row := rows[g.IntN(len(rows))]
		s = *g.w.oracle.Sessions[row]
		r := g.w.oracle.Rules[s.Rule]
		port := r.Backend.Port()
		if port == 0 {
			port = s.Port
		}
		if r.Backend.Addr().Is4() == s.Client.Addr().Is4() {
			from = netip.AddrPortFrom(r.Backend.Addr(), port).String()
			to = netip.AddrPortFrom(g.w.local(row, s), s.Client.Port()).String()
		}
	}
	flags := pick(g, pkt.SYN|pkt.ACK, pkt.SYN|pkt.ACK, pkt.ACK, pkt.ACK, pkt.ACK|pkt.FIN, pkt.RST, pkt.Flags(g.Uint32()))
	p := pkt.TCP(from, to, flags, pkt.Payload(make([]byte, pick(g, 0, 0, 1, 100, 1300, 1440))))
	p.Seq, p.Ack = g.number(s.ServerNext), g.number(s.ClientNext)
	g.decorate(&p)
	p.Options = g.options(40)
	if s.UDP && !g.in(20) || g.in(60) {
		p.Protocol, p.Options = layers.IPProtocolUDP, nil
	}
	switch g.IntN(12) {
	case 0:
		return g.errorFromServer(p)
	case 1:
		p = p.With(pkt.Fragment(uint16(80*g.IntN(2)), g.in(2)))
	}
	return p.Frame()
}

// local is the address of a row, as design 2.4 has it.
func (w *twins) local(row uint32, s hoststate.Session) netip.Addr {
	if s.Client.Addr().Is4() {
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, 100<<24|64<<16|row)))
	}
	return w.oracle.Local(row, &s)
}
