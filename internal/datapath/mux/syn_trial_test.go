package mux

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux/endpoint"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Handshakes of a watched endpoint are looked at, whether its SYNs are answered, forwarded, or answered for a trial,
// and of no other.
func TestHandshakesAreFollowed(t *testing.T) {
	for name, state := range map[string]endpoint.SYNState{
		"answered": {Answers: true, Watches: true}, "tried": {Watches: true, Tries: true}, "forwarded": {Watches: true}, "not watched": {Answers: true},
	} {
		for _, vip := range []string{vip4, vip6} {
			t.Run(name+" "+vip, func(t *testing.T) {
				d, key := trying(t, vip, state)
				const connections = 800
				for i := range connections {
					shakeHands(t, d, vip, i, []handshake{real, reset}[i%2])
				}
				before := wantTried(t, d, key, 2*connections, connections)
				if state.Watches && (before.Completed*3 < before.Tried || before.Completed*3 > before.Tried*2) {
					t.Errorf("%+v: half of them went on", before)
				}
				answered := map[endpoint.SYNState]uint64{{Watches: true, Tries: true}: 2 * before.Tried, {Watches: true}: 0}
				if want, some := answered[state]; some && before.Answered != want || !some && before.Answered != before.SYNs {
					t.Errorf("%+v: so many SYNs are not to be answered", before)
				}
				// What is damaged is part of a flood as well, though it is not answered.
				for i := range connections {
					frame := pkt.TCP(clientOf(vip, connections+i), vip, pkt.SYN).Frame()
					wrongly(frame, len(frame)-1, 1)
					run(t, d, frame)
				}
				after := wantTried(t, d, key, 3*connections, 2*connections)
				if after.Answered != before.Answered || after.Completed != before.Completed {
					t.Errorf("%+v, and then %+v", before, after)
				}
			})
		}
	}
}

// Who forges a client's SYN can forge what follows it, but not bring back a cookie that went to the client. The
// endpoint has one backend, so its slot is known.
func TestForgedHandshakesAreNotCompleted(t *testing.T) {
	forgeries := []handshake{forgedACK, forgedSlot, forgedCookie, forgedSYNACK}
	for _, state := range []endpoint.SYNState{{Watches: true, Tries: true}, {Watches: true, Answers: true}} {
		for _, vip := range []string{vip4, vip6} {
			t.Run(fmt.Sprint(vip, " ", state), func(t *testing.T) {
				d, key := trying(t, vip, state)
				const connections = 400
				for i := range connections * len(forgeries) {
					shakeHands(t, d, vip, i, forgeries[i/connections])
				}
				counters, err := d.SYNCounters()
				if err != nil {
					t.Fatal(err)
				}
				if c := counters[key]; c.Completed != 0 || c.Tried < connections/4 {
					t.Errorf("%+v: a forged handshake was completed, or few were tried", c)
				}
			})
		}
	}
}

// trying has an endpoint of one backend in the state.
func trying(t *testing.T, vip string, state endpoint.SYNState) (*Datapath, model.EndpointKey) {
	t.Helper()
	auto := inMode(newEndpoint(vip, model.TCP, tunnel4), model.SYNCookiesAuto)
	auto.Cookies = model.CookiesOn
	d := newFilled(t, auto)
	if err := d.SetSYNSecrets(synSecrets(1)); err != nil {
		t.Fatal(err)
	}
	if err := d.SetSYNState(auto.Key, state); err != nil {
		t.Fatal(err)
	}
	return d, auto.Key
}

// clientOf is the i-th client, of the VIP's family.
func clientOf(vip string, i int) string {
	address := netip.MustParseAddrPort(client6).Addr()
	if netip.MustParseAddrPort(vip).Addr().Is4() {
		address = netip.MustParseAddr("198.51.100.9")
	}
	return netip.AddrPortFrom(address, uint16(1024+i)).String()
}

// handshake is what follows a SYN.
type handshake int

const (
	real         handshake = iota // the ACK of who got the SYN-ACK
	reset                         // of a host whose address was forged
	forgedACK                     // of who did not get the SYN-ACK
	forgedSlot                    // likewise, with timestamps that name the backend
	forgedCookie                  // likewise, with what was sent to another client
	forgedSYNACK
)

// shakeHands sends a SYN, once more the same, and what follows it twice. Every other client has timestamps.
func shakeHands(t *testing.T, d *Datapath, vip string, i int, how handshake) {
	t.Helper()
	syn := pkt.TCP(clientOf(vip, i), vip, pkt.SYN, pkt.MSS(1460), pkt.Payload(nil))
	syn.Seq = 4_000_000_000 + uint32(i)
	if i/2%2 == 0 {
		syn = syn.With(pkt.Timestamps(7, 0))
	}
	run(t, d, syn.Frame())
	_, out := run(t, d, syn.Frame())
	then := pkt.TCP(clientOf(vip, i), vip, pkt.ACK, pkt.Payload(nil))
	then.Seq, then.Ack = syn.Seq+1, uint32(i)<<16
	switch how {
	case real:
		acknowledge(&then, out)
	case reset:
		then.Flags = pkt.RST
	case forgedSlot:
		then = then.With(pkt.NOP(2), pkt.Timestamps(8, 1))
	case forgedCookie:
		other := syn.With()
		other.SourcePort += 10_000
		_, out = run(t, d, other.Frame())
		acknowledge(&then, out)
	case forgedSYNACK:
		acknowledge(&then, out)
		then.Flags = pkt.SYN | pkt.ACK
	case forgedACK:
	}
	run(t, d, then.Frame())
	run(t, d, then.Frame())
}

// acknowledge has the segment acknowledge the SYN-ACK, if that is what came out.
func acknowledge(then *pkt.Packet, out []byte) {
	answer, err := pkt.Decode(out)
	if err != nil || answer.Flags != pkt.SYN|pkt.ACK {
		return
	}
	then.Ack = answer.Seq + 1
	for _, option := range answer.Options {
		if option.OptionType == layers.TCPOptionKindTimestamps {
			*then = then.With(pkt.NOP(2), pkt.Timestamps(8, binary.BigEndian.Uint32(option.OptionData)))
		}
	}
}

// wantTried wants so many SYNs, and an eighth of the connections to have been tried, or none if the endpoint is not
// watched.
func wantTried(t *testing.T, d *Datapath, key model.EndpointKey, syns, connections uint64) endpoint.SYNCounter {
	t.Helper()
	counters, err := d.SYNCounters()
	if err != nil {
		t.Fatal(err)
	}
	least, most := connections/14, connections/5
	if !d.SYNStates()[key].Watches {
		least, most = 0, 0
	}
	c := counters[key]
	if c.SYNs != syns || c.Tried < least || c.Tried > most || c.Completed > c.Tried {
		t.Errorf("%+v, want %d SYNs, and %d to %d connections tried", c, syns, least, most)
	}
	return c
}
