package hoststate

import (
	"net/netip"

	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// Session is a connection that a host with servers knows.
type Session struct {
	Client                 netip.AddrPort
	Port                   uint16 // the VIP's
	Attachment, Rule, Host uint32
	MAC                    [6]byte
	ClientNext, ServerNext uint32

	ClientACK, ServerAnswer, ClientFIN, ServerFIN, Reset, Via bool

	UDP   bool    // it is of datagrams
	Nonce [6]byte // likewise: of the client's host, which waits for a ticket
}

// IsOver says whether neither end has more to say.
func (s *Session) IsOver() bool { return s.Reset || s.ClientFIN && s.ServerFIN }

// moveWindow is how near a segment's number is to what is expected of the client, to be the same client's.
const moveWindow = 1 << 16

// BeginsAnew says whether a SYN takes the place of the session: of one that is over, or of another try.
func (s *Session) BeginsAnew(seq uint32) bool {
	return s.IsOver() || !s.ClientACK && s.ClientNext != seq+1
}

// Locate has the session follow its client to another host, if a mux says so of a segment whose number fits.
func (s *Session) Locate(host uint32, fromMux, via bool, seq uint32) (refused string) {
	near := int32(seq - s.ClientNext)
	if s.Host != host && (!fromMux || near < -moveWindow || near > moveWindow) {
		return "drop_other_host"
	}
	s.Host = host
	if fromMux {
		s.Via = via
	}
	return ""
}

// follows says whether a number is one that may come next: at most 2^30 further on.
func follows(number, from uint32) bool { return number-from <= 1<<30 }

// NoteClient remembers a client's segment.
func (s *Session) NoteClient(g inet.Segment) {
	switch {
	case g.RST:
		if g.Seq-s.ClientNext < moveWindow {
			s.Reset = true
		}
	case g.FIN:
		s.ClientFIN = true
	}
	if g.ACK && !g.SYN && !g.RST && s.ServerAnswer && follows(g.Ack, s.ServerNext) {
		s.ServerNext, s.ClientACK = g.Ack, true
	}
}

// NoteServer remembers a server's segment.
func (s *Session) NoteServer(g inet.Segment) {
	if g.RST {
		s.Reset = true
		return
	}
	if g.SYN && g.ACK && !s.ClientACK {
		s.ServerNext = g.Seq + 1
	}
	if g.ACK && follows(g.Ack, s.ClientNext) {
		s.ClientNext = g.Ack
	}
	s.ServerAnswer, s.Reset = true, false
	s.ServerFIN = s.ServerFIN || g.FIN
}

// NoteDatagram remembers that a server has answered.
func (s *Session) NoteDatagram() { s.ServerAnswer, s.ClientACK, s.Reset = true, true, false }
