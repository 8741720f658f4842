package oracle

import (
	"encoding/binary"
)

// The largest headers that a packet may get: IP, UDP, GUE, what Weir says, and another backend.
const (
	room4 = 20 + 8 + 4 + 8 + 16
	room6 = 40 + 8 + 4 + 8 + 16
)

// tooBig is a packet that does not fit once it is in a tunnel of the family.
func (m *Mux) tooBig(p *packet, tunnel6 bool) Outcome {
	mtu := m.MTU - room4
	if tunnel6 {
		mtu = m.MTU - room6
	}
	switch {
	case len(p.ip) > m.MTU: // several that the kernel merged
		return Outcome{Verdict: "drop_merged"}
	case p.v4 && !p.df: // RFC 791: it may be fragmented
		return Outcome{Verdict: "punt_split", Frame: p.frame, L3: p.l3}
	case p.v4 && p.fragment != nil && p.fragment.offset > 0: // RFC 1122, section 3.2.2
		return Outcome{Verdict: "drop_too_big"}
	case !isHost(p.from):
		return Outcome{Verdict: "drop_too_big"}
	case p.v4:
		return Outcome{Verdict: "reply_too_big", Frame: p.answer(p.fragmentationNeeded(max(mtu, 0)))}
	}
	return Outcome{Verdict: "reply_too_big", Frame: p.answer(p.packetTooBig(max(mtu, 1280)))} // RFC 8200
}

// answer is a frame back to where this one came from, with another packet.
func (p *packet) answer(ip []byte) []byte {
	out := append([]byte(nil), p.frame[6:12]...)
	out = append(out, p.frame[:6]...)
	out = append(out, p.frame[12:p.l3]...)
	return append(out, ip...)
}

const networkControl = 0xc0 // RFC 1812, section 4.3.2.5

// fragmentationNeeded is RFC 792's message of type 3 and code 4, with RFC 1191's MTU, of no more than
// 576 bytes (RFC 1812, section 4.3.2.3).
func (p *packet) fragmentationNeeded(mtu int) []byte {
	icmp := []byte{3, 4, 0, 0, 0, 0}
	icmp = binary.BigEndian.AppendUint16(icmp, uint16(mtu))
	icmp = append(icmp, p.ip[:min(len(p.ip), 576-20-8)]...)
	binary.BigEndian.PutUint16(icmp[2:], checksum(icmp))

	ip := binary.BigEndian.AppendUint16([]byte{0x45, networkControl}, uint16(20+len(icmp)))
	ip = append(ip, 0, 0, 0, 0, answerTTL, protocolICMP, 0, 0)
	ip = append(ip, p.to.AsSlice()...)
	ip = append(ip, p.from.AsSlice()...)
	binary.BigEndian.PutUint16(ip[10:], checksum(ip))
	return append(ip, icmp...)
}

// packetTooBig is RFC 4443's message of type 2, of no more than 1280 bytes (section 3.2).
func (p *packet) packetTooBig(mtu int) []byte {
	icmp := []byte{2, 0, 0, 0}
	icmp = binary.BigEndian.AppendUint32(icmp, uint32(mtu))
	icmp = append(icmp, p.ip[:min(len(p.ip), 1280-40-8)]...)

	addresses := append(p.to.AsSlice(), p.from.AsSlice()...)
	pseudo := binary.BigEndian.AppendUint32(addresses[:32:32], uint32(len(icmp)))
	pseudo = append(pseudo, 0, 0, 0, protocolICMPv6)
	binary.BigEndian.PutUint16(icmp[2:], checksum(pseudo, icmp))

	ip := binary.BigEndian.AppendUint32(nil, 6<<28|networkControl<<20)
	ip = binary.BigEndian.AppendUint16(ip, uint16(len(icmp)))
	ip = append(ip, protocolICMPv6, answerTTL)
	return append(append(ip, addresses...), icmp...)
}
