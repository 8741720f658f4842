package overlay

import (
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

// withHeader is mostly a datagram with the bypass header, or a segment whose options leave no room for the FBT.
func (g generator) withHeader(p pkt.Packet, s hoststate.Session, vni uint32, mux bool) []byte {
	if g.in(4) {
		p.Options = g.options(40)
	} else {
		p.Protocol, p.Options, p.Seq = layers.IPProtocolUDP, nil, 0
	}
	v := pkt.VXLAN{VNI: vni, SourcePort: 50000, Outer: g.outer(mux, s)}
	if g.in(6) {
		p = p.With(pkt.Fragment(uint16(80*g.IntN(2)), g.in(2)))
	}
	if g.in(5) {
		return g.errorWithHeader(p, v)
	}
	header := g.header(p, v, g.nextOf(p))
	if g.in(2) {
		p.Destination = g.someNonce()
	}
	frame := p.Frame()
	if g.in(20) {
		return v.Carry(frame)
	}
	return v.Carry(pkt.InsertHeader(frame, fbt.HeaderProtocol, header[:]))
}

// nextOf is what the IP header of p says.
func (g generator) nextOf(p pkt.Packet) uint8 {
	if !p.IP.Is4() && p.IP.IsFragment() {
		return uint8(layers.IPProtocolIPv6Fragment)
	}
	return uint8(p.Protocol)
}

// errorWithHeader is an ICMP error of the client's network, about what the server has sent to the client that p is from.
func (g generator) errorWithHeader(p pkt.Packet, v pkt.VXLAN) []byte {
	next, router := uint8(layers.IPProtocolICMPv4), netip.MustParseAddr("192.168.0.1")
	if !p.IP.Is4() {
		next, router = uint8(layers.IPProtocolICMPv6), netip.MustParseAddr("fd12::1")
	}
	about := p
	about.IP.Source, about.IP.Destination = p.IP.Destination, p.IP.Source
	about.SourcePort, about.DestinationPort = p.DestinationPort, p.SourcePort
	if g.in(10) {
		about.IP.Source = about.IP.Source.Next()
	}
	frame := pkt.Error(pick(g, router, p.IP.Source), p.IP.Destination, about, pick(g, 28, 48, 64, 1000))
	copy(frame, append(p.Destination[:], p.Source[:]...))
	p.Seq = 0
	header := g.header(p, v, next)
	return v.Carry(pkt.InsertHeader(frame, fbt.HeaderProtocol, header[:]))
}

// errorFromServer is one of the server's network, about what p answers.
func (g generator) errorFromServer(p pkt.Packet) []byte {
	about := p
	about.IP.Source, about.IP.Destination = p.IP.Destination, p.IP.Source
	about.SourcePort, about.DestinationPort = p.DestinationPort, p.SourcePort
	router := netip.MustParseAddr("10.1.0.254")
	if !p.IP.Is4() {
		router = netip.MustParseAddr("fd01::254")
	}
	return pkt.Error(pick(g, router, p.IP.Source), p.IP.Destination, about, pick(g, 28, 48, 64, 1000))
}

// header is mostly right.
func (g generator) header(p pkt.Packet, v pkt.VXLAN, next uint8) [fbt.Length]byte {
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
		Outer:  v.Outer.Destination,
		Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	if next == uint8(layers.IPProtocolTCP) && !p.IP.IsFragment() {
		of.Seq = p.Seq
	}
	header := fbt.EncodeHeader(key, next, of, says)
	if g.in(12) {
		header[g.IntN(fbt.Length)] ^= 1 << g.IntN(8)
	}
	return header
}
