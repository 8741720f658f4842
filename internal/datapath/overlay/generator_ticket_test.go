package overlay

import (
	"net/netip"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

// someNonce is one that a client's host may have drawn.
func (g generator) someNonce() (mac pkt.MAC) {
	for i := range mac {
		mac[i] = byte(g.Uint32())
	}
	mac[0] |= 1
	return mac
}

// tell makes an answer mostly one that has a ticket, with the nonce of the flow.
func (g generator) tell(p *pkt.Packet, v *pkt.VXLAN, client, vip netip.AddrPort) {
	number := uint32(1)
	if !vip.Addr().Is4() {
		number = 3
	}
	p.Destination, p.Source = g.w.oracle.Nonces[hoststate.FlowKey{Client: client, Attachment: number, Port: vip.Port(), UDP: true}], g.someNonce()
	if g.in(8) {
		p.Destination = g.someNonce()
	}
	if !g.in(8) {
		v.Reserved[3] = 0x5c | byte(g.IntN(4))
	}
}

// withTicket is mostly a datagram past the muxes, with the ticket of its session.
func (g generator) withTicket(p pkt.Packet, number uint32) []byte {
	client, vip := netip.AddrPortFrom(p.IP.Source, p.SourcePort), netip.AddrPortFrom(p.IP.Destination, p.DestinationPort)
	var s hoststate.Session
	for _, of := range g.w.oracle.Sessions {
		if of.UDP && of.Attachment == number && of.Client == client && of.Port == vip.Port() {
			s = *of
		}
	}
	if !g.in(25) {
		p.Protocol, p.Options = layers.IPProtocolUDP, nil
	}
	key, host := g.w.oracle.Keys[g.IntN(2)], s.Host
	if s.Host == 0 || g.in(8) {
		host = pick(g, uint32(7), 8)
	}
	if g.in(16) {
		key.ID += 2 // not valid
	}
	a := g.w.oracle.Attachments[number]
	p.Destination = fbt.Ticket{VNI: a.VNI, Host: host, Client: client, VIP: vip}.MAC(key)
	if g.in(12) {
		p.Destination[g.IntN(6)] ^= 1 << g.IntN(8)
	}
	if g.in(3) {
		p.Source = g.someNonce()
	}
	v := pkt.VXLAN{VNI: a.VNI, SourcePort: 50000, Reserved: [4]byte{3: fbt.TicketByte(key)}, Outer: g.outer(g.in(8), hoststate.Session{Host: host})}
	return v.Carry(p.Frame())
}
