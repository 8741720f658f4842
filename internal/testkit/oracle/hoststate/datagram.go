package hoststate

import "net/netip"

// Ticket is what a client's host shows in datagrams that go past the muxes.
type Ticket struct {
	MAC  [6]byte
	Byte byte // behind the VNI; 0: it is none
}

// NoteClientDatagram remembers a client's datagram, and says to which host it goes straight, with what; else its host asks for
// a ticket.
func (all Flows) NoteClientDatagram(key FlowKey) (direct netip.Addr, shown Ticket) {
	f := all[key]
	if f == nil {
		all[key] = &Flow{State: "half-open"}
		return direct, shown
	}
	return f.Host, f.Ticket
}

// NoteTicket remembers a ticket that a server's host has sent with the right nonce.
func (all Flows) NoteTicket(key FlowKey, from netip.Addr, t Ticket) {
	if f := all[key]; f != nil {
		f.State, f.Host, f.Ticket = "direct", from, t
	}
}

// Ask remembers the nonce of a client's host that asks for a ticket.
func (s *Session) Ask(nonce [6]byte) {
	s.Nonce = nonce
	s.ClientNext = uint32(nonce[0]) | uint32(nonce[1])<<8 | uint32(nonce[2])<<16 | uint32(nonce[3])<<24
}

// Tell is the nonce of a client's host that waits for a ticket, which it gets now.
func (s *Session) Tell() (nonce [6]byte, asked bool) {
	nonce, asked = s.Nonce, s.Nonce != [6]byte{}
	if s.UDP {
		s.Nonce, s.ClientNext = [6]byte{}, 0
	}
	return nonce, asked
}
