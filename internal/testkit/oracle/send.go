package oracle

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

const (
	protocolIPv4 = 4
	protocolIPv6 = 41
	protocolUDP  = 17

	gueStepAsk = 1
)

// What a GUE header of ours says of the packet: bpf/abi/shared/gue.h.
const (
	gueKindPacket   = 0
	gueKindFragment = 1
	gueKindRelay    = 2
)

// weir is what Weir has to say in GUE.
type weir struct {
	kind  byte
	ask   netip.Addr // tunnel of who may know the connection; invalid: nobody
	ports [2]uint16  // source and destination, of a fragment's datagram
}

// send encapsulates the packet for its backend's host. Only what w is for goes in GUE where the
// pool does not.
func (m *Mux) send(p *packet, tunnel netip.Addr, w *weir, verdict string) Outcome {
	hash := m.keyedHash(p.flow)
	hop, resolved := m.Hops[tunnel]
	source := m.source(tunnel.Is6(), hash)
	if !resolved || !hop.Resolved() {
		return Outcome{Verdict: "drop_no_next_hop"}
	}
	if !source.IsValid() {
		return Outcome{Verdict: "drop_no_source"}
	}
	outer := p.outer(source, tunnel, hash, m.GUE, w)
	if len(outer)+len(p.ip) > m.MTU {
		return Outcome{Verdict: "drop_too_big"}
	}
	return Outcome{Verdict: verdict, Frame: p.behind(hop, outer)}
}

// outer is all that stands between Ethernet and the packet.
func (p *packet) outer(source, tunnel netip.Addr, hash uint64, plainGUE bool, w *weir) []byte {
	inner := byte(protocolIPv6)
	if p.v4 {
		inner = protocolIPv4
	}
	header := inet.Header{
		Source: source, Destination: tunnel, TOS: p.tos, Label: uint32(hash),
		Protocol: inner, Length: len(p.ip),
	}
	var between []byte
	if plainGUE || w != nil {
		between = gue(inner, len(p.ip), hash, w)
		header.Protocol, header.Length = protocolUDP, header.Length+len(between)
	}
	return append(header.Bytes(), between...)
}

// source is the outer source of a family: the mux's address, or the prefix with the hash's upper
// half in its last bits; what a longer one needs more, the lower half gives.
func (m *Mux) source(v6 bool, hash uint64) netip.Addr {
	prefix, address := m.Prefix4, m.Source4
	if v6 {
		prefix, address = m.Prefix6, m.Source6
	}
	if !prefix.IsValid() {
		return address
	}
	fill := binary.LittleEndian.AppendUint32(nil, uint32(hash))
	fill = binary.LittleEndian.AppendUint32(fill, uint32(hash>>32))
	b := prefix.Masked().Addr().AsSlice()
	for bit := prefix.Bits(); bit < 8*len(b); bit++ {
		at := bit - 8*len(b) + 8*len(fill)
		b[bit/8] |= fill[at/8] & (0x80 >> (at % 8))
	}
	filled, _ := netip.AddrFromSlice(b)
	return filled
}

// gue is UDP and GUE before a packet.
func gue(inner byte, length int, hash uint64, w *weir) []byte {
	var private []byte
	if w != nil {
		step := byte(0)
		if w.ask.IsValid() {
			step = gueStepAsk
		}
		private = append(private, 1, step, w.kind, 0)
		private = binary.BigEndian.AppendUint16(private, w.ports[0])
		private = binary.BigEndian.AppendUint16(private, w.ports[1])
		private = append(private, w.ask.AsSlice()...)
	}
	b := binary.BigEndian.AppendUint16(nil, 49152+uint16(hash>>32%16384))
	b = binary.BigEndian.AppendUint16(b, 6080)
	b = binary.BigEndian.AppendUint16(b, uint16(8+4+len(private)+length))
	b = append(b, 0, 0) // no checksum: RFC 6935
	b = append(b, byte(len(private)/4), inner, 0, 0)
	return append(b, private...)
}

// behind is the frame to the hop with outer before its IP packet. What the frame has behind the packet stays.
func (p *packet) behind(hop model.NextHop, outer []byte) []byte {
	return append(append(p.ethernet(hop, outer[0]>>4 == 6), outer...), p.frame[p.l3:]...)
}

// ethernet is what a frame to the hop begins with. Tags stay where they are.
func (p *packet) ethernet(hop model.NextHop, v6 bool) []byte {
	out := append([]byte(nil), hop.Destination[:]...)
	out = append(out, hop.Source[:]...)
	out = append(out, p.frame[12:p.l3-2]...)
	return append(out, etherType(!v6)...)
}
