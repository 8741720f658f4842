package overlay

import (
	"encoding/binary"
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

// clientEnds are those of a connection of the port's client, and what is known of it.
func (g generator) clientEnds() (client, vip netip.AddrPort, f hoststate.Flow) {
	number, addr := uint32(1), pick(g, "192.168.0.9", "192.168.0.9", "192.168.0.9", "192.168.0.9", "192.168.0.8")
	if g.in(3) {
		number, addr = 3, "fd12::9"
	}
	a := g.w.oracle.Attachments[number]
	client = netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(40000+g.IntN(4)))
	vip = netip.AddrPortFrom(a.VIP, pick(g, uint16(80), 443))
	known := g.w.oracle.Flows[hoststate.FlowKey{Client: client, Attachment: number, Port: vip.Port()}]
	if known != nil {
		return client, vip, *known
	}
	return client, vip, hoststate.Flow{ClientNext: 1<<32 - 3, ServerNext: 1 << 31}
}

// fromClient is mostly a segment of a connection; sometimes a question for a VIP's Ethernet address.
func (g generator) fromClient() []byte {
	if g.in(12) {
		return g.question()
	}
	client, vip, f := g.clientEnds()
	if g.in(20) {
		vip = netip.AddrPortFrom(vip.Addr().Next(), vip.Port())
	}
	flags := g.flags()
	p := pkt.TCP(client.String(), vip.String(), flags, pkt.Payload(make([]byte, pick(g, 0, 0, 1, 7, 100, 1380, 1400, 1440))))
	p.Source, p.Destination = clientMAC, gatewayMAC
	if g.in(20) {
		p.Source[5]++
	}
	p.Seq, p.Ack = g.number(f.ClientNext), g.number(f.ServerNext)
	if flags&pkt.SYN != 0 && !g.in(4) {
		p.Seq = f.ClientNext - 1
	}
	g.decorate(&p)
	p.Options = g.options(40)
	if g.in(5) {
		p.Protocol, p.Options = layers.IPProtocolUDP, nil
	}
	if g.in(25) {
		p.VLANs = pick(g, []uint16{0}, []uint16{5}, []uint16{5, 6})
	}
	return p.Frame()
}

// question is ARP or a neighbor solicitation, for a VIP or for none.
func (g generator) question() []byte {
	frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, clientMAC[:]...)
	if g.in(2) {
		frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4, 0, pick(g, byte(1), 1, 1, 2))
		frame = append(append(frame, clientMAC[:]...), 192, 168, 0, 9, 0, 0, 0, 0, 0, 0)
		return append(frame, 10, 99, 0, pick(g, byte(1), 1, 1, 2))
	}
	target := netip.MustParseAddr(pick(g, "fd12::99", "fd12::99", "fd12::98"))
	from := netip.MustParseAddr(pick(g, "fd12::9", "fe80::9", "::"))
	to := netip.MustParseAddr(pick(g, "ff02::1:ff00:99", "fd12::99"))
	body := append([]byte{pick(g, byte(135), 135, 135, 136), 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
	if from.IsGlobalUnicast() {
		body = append(append(body, 1, 1), clientMAC[:]...)
	}
	frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(len(body)))
	frame = append(frame, 58, pick(g, byte(255), 255, 255, 254))
	return append(append(append(frame, from.AsSlice()...), to.AsSlice()...), body...)
}

// toClient is mostly an answer of the connection's server.
func (g generator) toClient() []byte {
	client, vip, f := g.clientEnds()
	flags := pick(g, pkt.SYN|pkt.ACK, pkt.SYN|pkt.ACK, pkt.ACK, pkt.ACK, pkt.ACK|pkt.FIN, pkt.RST, pkt.Flags(g.Uint32()))
	p := pkt.TCP(vip.String(), client.String(), flags, pkt.Payload(make([]byte, pick(g, 0, 0, 1, 100))))
	p.Seq, p.Ack = g.number(f.ServerNext), g.number(f.ClientNext)
	g.decorate(&p)
	p.Options = g.options(40)
	if g.in(25) {
		p.Protocol, p.Options = pick(g, layers.IPProtocolUDP, layers.IPProtocolICMPv4), nil
	}
	outer := g.outer(g.in(6), hoststate.Session{})
	servers := []string{"fd02::2"}
	if outer.Source.Is4() {
		servers = []string{"10.2.0.2", "10.2.0.4"}
	}
	if !g.in(4) {
		outer.Source = netip.MustParseAddr(pick(g, servers...))
	}
	if f.Host.IsValid() && f.Host.Is4() == outer.Source.Is4() && !g.in(4) {
		outer.Source = f.Host
	}
	if outer.Source.Is4() && g.in(12) {
		outer.Source = g.w.oracle.Mux // all muxes have it
	}
	vni := uint32(100)
	if g.in(25) {
		vni = 200
	}
	v := pkt.VXLAN{VNI: vni, SourcePort: 50000, Outer: outer}
	if g.in(4) {
		p.Protocol, p.Options = layers.IPProtocolUDP, nil
		g.tell(&p, &v, client, vip)
	}
	return v.Carry(p.Frame())
}
