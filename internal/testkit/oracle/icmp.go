package oracle

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

const (
	protocolICMP   = 1
	protocolTCP    = 6
	protocolICMPv6 = 58

	answerTTL = 64
)

// icmp is a packet that carries ICMP of either family.
func (m *Mux) icmp(p *packet) Outcome {
	pass := Outcome{Verdict: "pass_icmp"}
	echo, errors := byte(128), []byte{1, 2, 3, 4} // RFC 4443
	if p.v4 {
		echo, errors = 8, []byte{3, 11, 12} // RFC 792; no quench and no redirect
	}
	if !p.isICMP() || len(p.l4) < 8 {
		return pass
	}
	known, answers := m.vip(p.to)
	switch kind := p.l4[0]; {
	case !known:
		return pass
	case kind == echo && answers && isHost(p.from):
		return Outcome{Verdict: "reply_echo", Frame: p.echo()}
	case kind == echo:
		return Outcome{Verdict: "drop_echo"}
	case m.isMartian(p.from, p.to):
		return Outcome{Verdict: "drop_martian"}
	case p.isEchoReply() && m.isSNAT(p.to):
		return m.echoReply(p)
	case slices.Contains(errors, kind):
		return m.icmpError(p)
	}
	return pass
}

// echo is the reply: the request sent back, with a fresh life. What was wrong with its checksums
// still is.
func (p *packet) echo() []byte {
	out := bytes.Clone(p.frame)
	copy(out, p.frame[6:12])
	copy(out[6:], p.frame[:6])
	turn(out[p.l3:], p.v4)
	icmp, reply := out[p.at():], byte(129)
	if p.v4 {
		reply = 0
	}
	was := binary.BigEndian.Uint16(icmp)
	icmp[0] = reply
	sum := mended(binary.BigEndian.Uint16(icmp[2:]), was, binary.BigEndian.Uint16(icmp))
	binary.BigEndian.PutUint16(icmp[2:], sum)
	return out
}

// icmpError goes where the packets go that the client sends on the quoted connection.
func (m *Mux) icmpError(p *packet) Outcome {
	q, cookie := quote(p.l4[8:], p.v4)
	if q == nil || q.from != p.to {
		return Outcome{Verdict: "pass_icmp"}
	}
	p.flow = model.Flow{
		Protocol: q.flow.Protocol, Source: q.flow.Destination, Destination: q.flow.Source,
	}
	e := m.endpointOf(p.flow)
	if e == nil && !m.isSNAT(p.to) {
		return Outcome{Verdict: "pass_icmp"}
	}
	if m.isMartian(p.flow.Source.Addr(), p.to) {
		return Outcome{Verdict: "drop_martian"}
	}
	if e == nil {
		return m.snat(p, nil, "forward_icmp")
	}
	if !e.Takes(p.flow.Source.Addr(), nil) { // the client, not the router that tells
		return Outcome{Verdict: "drop_acl"}
	}
	b := e.Known(m.HashKey, p.flow, cookie)
	if b == nil {
		return Outcome{Verdict: "punt_icmp", Frame: p.frame, L3: p.l3}
	}
	return m.send(p, b.Tunnel, nil, "forward_icmp")
}

// quote reads the packet of TCP or UDP that an error quotes as far as it is there: its ports must
// be (RFC 792), TCP's options may be. What its own length says of them is not to be trusted. The
// cookie is the slot that TSval names, 0: none.
func quote(b []byte, v4 bool) (q *packet, cookie model.Slot) {
	q = &packet{frame: b, cut: true}
	parse := q.parse6
	if v4 {
		parse = q.parse4
	}
	if len(b) == 0 {
		return nil, 0
	}
	verdict := parse()
	if verdict == "pass_fragment" && q.fragment.offset == 0 {
		verdict = ""
	}
	echo := byte(128)
	if v4 {
		echo = 8
	}
	if verdict != "" || (q.protocol != protocolTCP && q.protocol != protocolUDP && !q.isICMP()) {
		return nil, 0
	}
	segment := b[q.at():]
	if len(segment) < 8 {
		return nil, 0
	}
	if q.isICMP() { // a ping: its identifier is the port that it left from
		if segment[0] != echo {
			return nil, 0
		}
		q.flow = model.Flow{
			Protocol: model.Protocol(q.protocol), Source: netip.AddrPortFrom(q.from, binary.BigEndian.Uint16(segment[4:])),
			Destination: netip.AddrPortFrom(q.to, 0),
		}
		return q, 0
	}
	q.readFlow(segment)
	if q.protocol != protocolTCP || len(segment) < 20 {
		return q, 0
	}
	header := min(int(segment[12]>>4)*4, len(segment))
	if header < 20 {
		return q, 0
	}
	value, _, _ := timestamps(segment[20:header])
	return q, model.Slot(value % (1 << 13))
}
