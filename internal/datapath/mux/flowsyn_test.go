package mux

import (
	"testing"

	"github.com/weirlb/weir/internal/pkt"
)

// conn makes segments of one five-tuple.
type conn struct{ client, vip string }

func (c conn) segment(flags pkt.Flags, seq uint32) pkt.Packet {
	return pkt.TCP(c.client, c.vip, flags, func(p *pkt.Packet) { p.Seq = seq })
}

// eachFamily runs the test with a connection at the first backend whose bucket names the second one by now.
func eachFamily(t *testing.T, test func(t *testing.T, d *Datapath, c conn)) {
	for _, c := range []conn{{client4, vip4}, {client6, vip6}} {
		t.Run(c.vip, func(t *testing.T) {
			d := newFilled(t, onlyOf(c.vip, 1))
			for range 2 { // it is trusted then
				wantChosen(t, d, c.segment(pkt.ACK, 5000), first)
			}
			apply(t, d, onlyOf(c.vip, 2))
			wantChosen(t, d, c.segment(pkt.ACK, 6000), first)
			test(t, d, c)
		})
	}
}

func wantOneCell(t *testing.T, d *Datapath) {
	t.Helper()
	for vip, usage := range vipsHave(t, d) {
		if n := usage.Flows.Untrusted + usage.Flows.Trusted; n != 1 {
			t.Errorf("%s has %d cells, want one", vip, n)
		}
	}
}

// A client that uses a port again gets a new connection, not the backend of the old one, whichever of its first
// segments comes first.
func TestNewConnectionForgetsTheOldOne(t *testing.T) {
	const initial = 0xfffffffe
	for name, seq := range map[string]uint32{"its ACK": 1, "its last early segment": 1 + 9*8960, "an ACK of data in the SYN": 1 + 1460} {
		t.Run(name, func(t *testing.T) {
			eachFamily(t, func(t *testing.T, d *Datapath, c conn) {
				wantChosen(t, d, c.segment(pkt.SYN, initial), second)
				wantChosen(t, d, c.segment(pkt.SYN, initial), second) // sent again
				next := uint32(initial)
				next += seq
				wantChosen(t, d, c.segment(pkt.ACK, next), second)
				wantChosen(t, d, c.segment(pkt.ACK, next+1<<30), second)
				apply(t, d, onlyOf(c.vip, 1))
				wantChosen(t, d, c.segment(pkt.ACK, next+1<<30), second) // it is remembered
				wantOneCell(t, d)
			})
		})
	}
}

// A SYN that an outsider sends with a client's five-tuple takes nothing from its connection.
func TestForgedSYNLeavesTheConnection(t *testing.T) {
	eachFamily(t, func(t *testing.T, d *Datapath, c conn) {
		for i := range uint32(16) {
			wantChosen(t, d, c.segment(pkt.SYN, 1<<30+i<<26), second)
			wantChosen(t, d, c.segment(pkt.SYN, 1<<31+i<<26), second)
			wantChosen(t, d, c.segment(pkt.ACK, 7000+1000*i), first)
			wantChosen(t, d, c.segment(pkt.ACK, 7500+1000*i), first)
		}
		// A number that was noted once means nothing later.
		wantChosen(t, d, c.segment(pkt.SYN, 1<<30), second)
		wantChosen(t, d, c.segment(pkt.ACK, 30000), first)
		wantChosen(t, d, c.segment(pkt.ACK, 1<<30+1), first)
	})
}

// The bucket comes back before a segment follows the SYN: all are of the backend that is remembered.
func TestSYNToTheRememberedBackendIsNotNoted(t *testing.T) {
	eachFamily(t, func(t *testing.T, d *Datapath, c conn) {
		wantChosen(t, d, c.segment(pkt.SYN, 1<<30), second)
		apply(t, d, onlyOf(c.vip, 1))
		wantChosen(t, d, c.segment(pkt.SYN, 1<<29), first)
		apply(t, d, onlyOf(c.vip, 2))
		wantChosen(t, d, c.segment(pkt.ACK, 1<<29+1), first)
		wantChosen(t, d, c.segment(pkt.ACK, 1<<30+1), first)
	})
}

// A backend that goes down keeps no flow, whether its cell notes a SYN or not.
func TestDownBackendsFlowsMoveAfterASYN(t *testing.T) {
	eachFamily(t, func(t *testing.T, d *Datapath, c conn) {
		wantChosen(t, d, c.segment(pkt.SYN, 1<<30), second)
		down := onlyOf(c.vip, 2)
		down.Backends[0].Down = true
		apply(t, d, down)
		wantChosen(t, d, c.segment(pkt.ACK, 7000), second)
		apply(t, d, onlyOf(c.vip, 2))
		wantChosen(t, d, c.segment(pkt.ACK, 8000), second)
		wantOneCell(t, d)
	})
}
