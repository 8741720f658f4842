// Package natstate is what an oracle remembers of full NAT in a mux (NGLB, section II): sessions, whose rows are their NAT
// addresses and ports. For tests only.
package natstate

import (
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// Key is a connection of a network's client.
type Key struct {
	VNI         uint32
	Client, VIP netip.AddrPort // in that network
}

// Slot is a backend of an endpoint.
type Slot struct {
	Service netip.Addr
	Port    uint16 // of the endpoint
	Slot    model.Slot
}

// At is where a client's segment comes from.
type At struct {
	Host  uint32
	Over6 bool // VXLAN is over IPv6
}

// Session is a row of the table.
type Session struct {
	Key
	At

	Row       uint32
	Backend   netip.AddrPort
	ClientMAC [6]byte

	acked, answered, reset bool
	clientFIN, serverFIN   bool
	clientNext, serverNext uint32
}

// Table is the sessions of a mux.
type Table struct {
	Prefixes []netip.Prefix // of the NAT addresses, one of a family
	Sets     int            // of 16 sessions, a power of two

	rows     map[uint32]*Session
	sessions map[Key]*Session
}

const (
	ways      = 16
	moveRoom  = 1 << 16
	aheadRoom = 1 << 30
	ports     = 1 << 15 // the upper half of all
)

// Prefix is the family's.
func (t *Table) Prefix(v4 bool) (p netip.Prefix, ok bool) {
	for _, p := range t.Prefixes {
		if p.Addr().Is4() == v4 {
			return p, true
		}
	}
	return p, false
}

// OfFamily is the address of a family; not valid: there is none.
func OfFamily(all []netip.Addr, v6 bool) netip.Addr {
	for _, a := range all {
		if a.Is6() == v6 {
			return a
		}
	}
	return netip.Addr{}
}

// Covers says whether the address is one of the NAT addresses.
func (t *Table) Covers(a netip.Addr) bool {
	p, ok := t.Prefix(a.Is4())
	return ok && p.Contains(a)
}

// Of is the connection's session; nil: it has none.
func (t *Table) Of(k Key) *Session { return t.sessions[k] }

// AddressOf is the NAT address and port of a session.
func (t *Table) AddressOf(s *Session) netip.AddrPort {
	p, _ := t.Prefix(s.Client.Addr().Is4())
	bits := p.Addr().BitLen() - p.Bits()
	b, low := p.Addr().AsSlice(), s.Row&(1<<bits-1)
	for i := range 4 {
		b[len(b)-1-i] |= byte(low >> (8 * i))
	}
	a, _ := netip.AddrFromSlice(b)
	return netip.AddrPortFrom(a, uint16(ports+s.Row>>bits))
}

// Find is the session of a NAT address and port; nil: there is none.
func (t *Table) Find(at netip.AddrPort) *Session {
	for _, s := range t.rows {
		if s.Client.Addr().Is4() == at.Addr().Is4() && t.AddressOf(s) == at {
			return s
		}
	}
	return nil
}

// Open finds or makes the session of a client's segment, or says why there is none. Choose gives the backend of a
// connection that begins; not valid: there is none.
func (t *Table) Open(hash uint64, fresh Session, g inet.Segment, choose func() netip.AddrPort) (*Session, string) {
	s := t.sessions[fresh.Key]
	fresh.clientNext = g.Seq + 1
	switch {
	case s == nil && !g.Opens():
		return nil, "drop_no_session"
	case s == nil || g.Opens() && s.isOver():
		if fresh.Backend = choose(); !fresh.Backend.IsValid() {
			return nil, "drop_no_backend"
		}
		if s == nil {
			if s = t.put(hash, &fresh); s == nil {
				return nil, "drop_session_full"
			}
			break
		}
		fresh.Row = s.Row
		*s = fresh
	case g.Opens() && !s.acked && s.clientNext != fresh.clientNext:
		fresh.Row, fresh.Backend = s.Row, s.Backend
		*s = fresh
	}
	if s.At != fresh.At {
		if g.Seq-s.clientNext+moveRoom > 2*moveRoom {
			return nil, "drop_other_host"
		}
		s.At = fresh.At
	}
	s.noteClient(g)
	return s, ""
}

// put gives a connection its row: of its two sets the one with more free rows, the first one if they have as many.
func (t *Table) put(hash uint64, s *Session) *Session {
	var best, most uint32
	for choice := range 2 {
		set, free, last := uint32(hash>>(18*choice))&uint32(t.Sets-1)&(1<<18-1), uint32(0), uint32(0)
		for i := range uint32(ways) {
			row := set*ways + (i+uint32(hash>>32))%ways
			if t.rows[row] == nil {
				free, last = free+1, row
			}
		}
		if free > most {
			best, most = last, free
		}
	}
	if most == 0 {
		return nil
	}
	if t.rows == nil {
		t.rows, t.sessions = map[uint32]*Session{}, map[Key]*Session{}
	}
	s.Row = best
	t.rows[best], t.sessions[s.Key] = s, s
	return s
}

func (s *Session) isOver() bool { return s.reset || s.clientFIN && s.serverFIN }

func (s *Session) noteClient(g inet.Segment) {
	if g.RST {
		s.reset = s.reset || g.Seq-s.clientNext < moveRoom
		return
	}
	s.clientFIN = s.clientFIN || g.FIN
	if g.ACK && !g.SYN && s.answered && g.Ack-s.serverNext <= aheadRoom {
		s.serverNext, s.acked = g.Ack, true
	}
}

// NoteServer notes a segment of the backend.
func (s *Session) NoteServer(g inet.Segment) {
	if g.RST {
		if s.answered {
			s.reset = s.reset || g.Seq-s.serverNext < moveRoom
		} else {
			s.reset = s.reset || g.Ack == s.clientNext
		}
		return
	}
	if g.SYN && g.ACK && !s.acked {
		s.serverNext = g.Seq + 1
	}
	if g.ACK && g.Ack-s.clientNext <= aheadRoom {
		s.clientNext = g.Ack
	}
	s.answered, s.reset = true, false
	s.serverFIN = s.serverFIN || g.FIN
}
