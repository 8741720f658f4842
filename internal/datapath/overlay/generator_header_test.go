package overlay

import (
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle"
)

// withHeader is mostly a datagram with the bypass header, or a segment whose options leave no room for the FBT.
func (g generator) withHeader(p pkt.Packet, s oracle.OverlaySession, vni uint32, mux bool) []byte {
	if g.in(4) {
		p.Options = g.options(40)
	} else {
		p.Protocol, p.Options, p.Seq = layers.IPProtocolUDP, nil, 0
	}
	v := pkt.VXLAN{VNI: vni, SourcePort: 50000, Outer: g.outer(mux, s)}
	header := g.header(p, v)
	frame := p.Frame()
	if g.in(20) {
		return v.Carry(frame)
	}
	return v.Carry(pkt.InsertHeader(frame, fbt.HeaderProtocol, header[:]))
}

// header is mostly right.
func (g generator) header(p pkt.Packet, v pkt.VXLAN) [fbt.Length]byte {
	key, vni := g.w.oracle.Keys[g.IntN(2)], v.VNI
	switch g.IntN(16) {
	case 0:
		key.ID += 2 // not valid
	case 1:
		key.Secret[g.IntN(16)] ^= 1
	case 2:
		vni++
	}
	says := fbt.Content{VNI: vni, Number: pick(g, uint32(7), 7, 7, 7, 7, 7, 8, 8, 9, 0, 77), Via: g.in(3)}
	if g.in(3) {
		says = fbt.Content{VNI: vni, Via: g.in(3), Host: netip.MustParseAddr(pick(g, "10.2.0.1", "10.2.0.1", "10.2.0.2", "10.7.7.7"))}
	}
	of := fbt.Segment{
		Outer: v.Outer.Destination, Seq: p.Seq,
		Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	header := fbt.EncodeHeader(key, uint8(p.Protocol), of, says)
	if g.in(12) {
		header[g.IntN(fbt.Length)] ^= 1 << g.IntN(8)
	}
	return header
}
