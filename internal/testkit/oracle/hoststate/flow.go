package hoststate

import (
	"net/netip"

	"github.com/weirlb/weir/internal/testkit/oracle/inet"
)

// FlowKey is a connection of a client.
type FlowKey struct {
	Client     netip.AddrPort
	Attachment uint32
	Port       uint16 // the VIP's
	UDP        bool   // it is of datagrams
}

// Flow is what the client's host has learnt of a connection.
type Flow struct {
	State                  string     // half-open, by-mux, lost, direct
	Host                   netip.Addr // of the server
	ClientNext, ServerNext uint32

	ClientFIN, ServerFIN, Reset bool

	Ticket Ticket // of datagrams
}

// Flows are those of a client's host.
type Flows map[FlowKey]*Flow

// NoteClient remembers a client's segment, and says to which host it goes straight.
func (all Flows) NoteClient(key FlowKey, g inet.Segment) (direct netip.Addr) {
	f := all[key]
	if g.Opens() {
		next := g.Seq + 1
		if f == nil || f.State == "lost" || f.ClientNext != next {
			all[key] = &Flow{State: "half-open", ClientNext: next, ServerNext: g.Next}
		}
		return direct
	}
	if f == nil {
		if !g.RST {
			all[key] = &Flow{State: "lost", ClientNext: g.Next, ServerNext: g.Ack}
		}
		return direct
	}
	f.Reset = f.Reset || g.RST
	f.ClientFIN = f.ClientFIN || g.FIN && !g.RST
	if f.State == "direct" {
		return f.Host
	}
	if f.State == "half-open" || int32(g.Next-f.ClientNext) > 0 {
		f.ClientNext = g.Next
	}
	if g.ACK {
		f.ServerNext = g.Ack
	}
	if f.State == "half-open" {
		f.State = "lost"
	}
	return direct
}

// isContinued says whether a server's segment goes on about where both ends were.
func (f *Flow) isContinued(g inet.Segment) bool {
	near := func(number, of uint32, window int32) bool {
		d := int32(number - of)
		return d >= -window && d <= window
	}
	return g.ACK && !g.RST && near(g.Ack, f.ClientNext, 1<<16) && near(g.Seq, f.ServerNext, 1<<22)
}

// NoteServer remembers a segment for a client, or refuses it.
func (all Flows) NoteServer(key FlowKey, g inet.Segment, from netip.Addr, mux bool) (refused string) {
	f := all[key]
	if f == nil {
		return ""
	}
	answers := g.SYN && g.ACK
	acksSYN := g.Ack-f.ClientNext <= f.ServerNext-f.ClientNext // and what of its data the server took
	switch {
	case mux && f.State == "half-open" && answers && acksSYN:
		f.State = "by-mux"
	case mux:
	case f.State == "half-open" && answers:
		if !acksSYN {
			return "drop_not_acked"
		}
		f.State, f.Host = "direct", from
	case f.State == "direct" && f.Host != from:
		return "drop_other_host"
	case (f.State == "lost" || f.State == "by-mux") && f.isContinued(g):
		f.State, f.Host = "direct", from
	}
	f.Reset = f.Reset || g.RST
	f.ServerFIN = f.ServerFIN || g.FIN && !g.RST
	return ""
}
