package oracle

import "github.com/weirlb/weir/internal/testkit/oracle/inet"

// The largest headers that a packet may get: IP, UDP, GUE, what Weir says, and another backend.
const (
	room4 = 20 + 8 + 4 + 8 + 16
	room6 = 40 + 8 + 4 + 8 + 16
)

// tooBig is a packet that does not fit once it is in a tunnel of the family.
func (m *Mux) tooBig(p *packet, tunnel6 bool) Outcome {
	if tunnel6 {
		return tooBigBy(m.MTU, p, room6)
	}
	return tooBigBy(m.MTU, p, room4)
}

// tooBigBy is a packet that does not fit with so many bytes more.
func tooBigBy(most int, p *packet, room int) Outcome {
	mtu := most - room
	switch {
	case len(p.ip) > most: // several that the kernel merged
		return Outcome{Verdict: "drop_merged"}
	case p.v4 && !p.df: // RFC 791: it may be fragmented
		return Outcome{Verdict: "punt_split", Frame: p.frame, L3: p.l3}
	case p.v4 && p.fragment != nil && p.fragment.offset > 0: // RFC 1122, section 3.2.2
		return Outcome{Verdict: "drop_too_big"}
	case !isHost(p.from):
		return Outcome{Verdict: "drop_too_big"}
	case p.v4:
		return Outcome{Verdict: "reply_too_big", Frame: p.answer(inet.FragmentationNeeded(p.ip, max(mtu, 0)))}
	}
	return Outcome{Verdict: "reply_too_big", Frame: p.answer(inet.PacketTooBig(p.ip, max(mtu, 1280)))} // RFC 8200
}

// answer is a frame back to where this one came from, with another packet.
func (p *packet) answer(ip []byte) []byte {
	out := append([]byte(nil), p.frame[6:12]...)
	out = append(out, p.frame[:6]...)
	out = append(out, p.frame[12:p.l3]...)
	return append(out, ip...)
}
