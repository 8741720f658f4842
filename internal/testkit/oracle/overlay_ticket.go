package oracle

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

// identifyByTicket says whether what came past the muxes may: a datagram with the ticket of its flow and its sender, and all
// else without one.
func (v *vxlanSegment) identifyByTicket(o *Overlay) string {
	switch {
	case v.header != nil, v.ticket != 0 && !v.isUDP():
		return "drop_fbt_forged"
	case v.ticket == 0:
		return ""
	}
	key := slices.IndexFunc(o.Keys, func(k fbt.Key) bool { return fbt.TicketByte(k) == v.ticket })
	if key < 0 {
		return "drop_fbt_key"
	}
	of := fbt.Ticket{VNI: v.attachment.VNI, Host: v.host, Client: v.inner.flow.Source, VIP: v.inner.flow.Destination}
	if of.MAC(o.Keys[key]) != v.to {
		return "drop_fbt_forged"
	}
	return ""
}

// straight is a client's datagram past the muxes, which begins no session.
func (v *vxlanSegment) straight(o *Overlay, row uint32, s *hoststate.Session) Outcome {
	switch {
	case s == nil || s.IsOver():
		return Outcome{Verdict: "drop_no_session"}
	case s.Host != v.host:
		return Outcome{Verdict: "drop_other_host"}
	}
	return v.delivered(o, row, s, v.mac)
}

// delivered is a datagram for the server. Its session remembers a nonce.
func (v *vxlanSegment) delivered(o *Overlay, row uint32, s *hoststate.Session, nonce [6]byte) Outcome {
	out := o.deliver(v, row, s)
	if nonce[0]&1 == 1 && !v.via && v.inner.fragment == nil && strings.HasPrefix(out.Verdict, "deliver_") {
		s.Ask(nonce)
	}
	return out
}

// tellTicket puts the ticket of a session into an answer, if the client's host asks for it.
func tellTicket(o *Overlay, sent []byte, s *hoststate.Session) {
	key := fbt.MakesOf(o.Keys)
	nonce, asked := s.Tell()
	if !asked {
		return
	}
	a := o.Attachments[s.Attachment]
	t := fbt.Ticket{VNI: a.VNI, Host: s.Host, Client: s.Client, VIP: netip.AddrPortFrom(a.VIP, s.Port)}
	mark(sent, nonce, t.MAC(key), fbt.TicketByte(key))
}

// mark sets the addresses of the frame inside VXLAN, and the byte behind the VNI, of a packet from its IP header on.
func mark(sent []byte, to, from [6]byte, behind byte) {
	front := sent[20:]
	if sent[0]>>4 == 6 {
		front = sent[40:]
	}
	front[15] = behind
	copy(front[16:], to[:])
	copy(front[22:], from[:])
}

// datagramFromClient notes a client's datagram, and says where it goes straight and with what addresses inside.
func (o *Overlay) datagramFromClient(p *packet, number uint32) (direct netip.Addr, marked func(sent []byte)) {
	key := hoststate.FlowKey{Client: p.flow.Source, Attachment: number, Port: p.flow.Destination.Port(), UDP: true}
	to, shown := o.Flows.NoteClientDatagram(key)
	from := [6]byte(p.frame[6:])
	if to.IsValid() {
		return to, func(sent []byte) { mark(sent, shown.MAC, from, shown.Byte) }
	}
	return to, func(sent []byte) { mark(sent, o.Nonces[key], from, 0x57) }
}

// datagramToClient notes a datagram that a server's host has sent, from the frame inside VXLAN on.
func (o *Overlay) datagramToClient(p *packet, number uint32, from netip.Addr, front []byte) {
	if p.parseTransport() != "" {
		return
	}
	key := hoststate.FlowKey{Client: p.flow.Destination, Attachment: number, Port: p.flow.Source.Port(), UDP: true}
	nonce, drawn := o.Nonces[key]
	if front[15] != 0 && drawn && bytes.Equal(nonce[:], front[16:22]) {
		o.Flows.NoteTicket(key, from, hoststate.Ticket{MAC: [6]byte(front[22:]), Byte: front[15]})
	}
}
