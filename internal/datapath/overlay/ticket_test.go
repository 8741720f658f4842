package overlay

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/dchest/siphash"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/testkit/oracle/hoststate"
)

func flowKeyOf(f Flow) hoststate.FlowKey {
	return hoststate.FlowKey{Client: f.Client, Attachment: f.Attachment, Port: f.Port, UDP: f.Events&UDP != 0}
}

// ticketOf is what a flow of datagrams has.
func ticketOf(f Flow) (t hoststate.Ticket) {
	if f.State != FlowDirect {
		return t
	}
	binary.LittleEndian.PutUint32(t.MAC[:], f.ClientNext)
	binary.LittleEndian.PutUint16(t.MAC[4:], uint16(f.ServerNext))
	t.Byte = 0x5c | byte(f.ServerNext>>16)
	return t
}

// nonces are those of flows of datagrams, by SipHash-2-4 under the last words of the hash key.
func nonces(t testing.TB, d *Datapath) map[hoststate.FlowKey][6]byte {
	t.Helper()
	rows, err := abi.ReadTable[overlayBypassFlowKey, overlayBypassFlow](d.objects.BypassFlows)
	if err != nil {
		t.Fatal(err)
	}
	var secret [10]uint32
	if err := d.objects.HashKey.Get(&secret); err != nil {
		t.Fatal(err)
	}
	k0, k1 := uint64(secret[6])|uint64(secret[7])<<32, uint64(secret[8])|uint64(secret[9])<<32
	all := map[hoststate.FlowKey][6]byte{}
	for key, row := range rows {
		f := flowOf(key, row)
		if f.Events&UDP == 0 {
			continue
		}
		client := f.Client.Addr().As16()
		b := binary.LittleEndian.AppendUint32(nil, key.Attachment)
		b = append(binary.LittleEndian.AppendUint32(b, row.Events), client[:]...)
		b = binary.BigEndian.AppendUint16(b, f.Client.Port())
		b = append(binary.BigEndian.AppendUint16(b, f.Port), 0, 0, 0, 0)
		all[flowKeyOf(f)] = [6]byte(binary.LittleEndian.AppendUint64(nil, siphash.Hash(k0, k1, b)|1))
	}
	return all
}

// readNonces gives the oracle those of all flows.
func (w *twins) readNonces() { w.oracle.Nonces = nonces(w.t, w.Datapath) }

// question is a client's datagram as its interface gives it.
func (r clientRig) question() pkt.Packet {
	p := pkt.UDP(r.client, r.vip, pkt.Payload([]byte("question")))
	p.Source, p.Destination = clientMAC, gatewayMAC
	return p
}

// reply is a server's datagram in VXLAN, with a byte behind the VNI and addresses inside.
func (r clientRig) reply(from string, behind byte, to, by [6]byte) []byte {
	p := pkt.UDP(r.vip, r.client, pkt.Payload([]byte("answer")))
	p.Source, p.Destination = by, to
	v := pkt.VXLAN{VNI: testVNI, SourcePort: 50000, Reserved: [4]byte{3: behind}, Outer: pkt.IP{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(r.host), TTL: 64,
	}}
	return v.Frame(p)
}

// nonce is that of the one flow.
func (r clientRig) nonce() [6]byte {
	r.t.Helper()
	for _, n := range nonces(r.t, r.Datapath) {
		return n
	}
	r.t.Fatal("there is no flow of datagrams")
	return [6]byte{}
}

// A flow of datagrams goes by the muxes with a nonce, and straight with the ticket that an answer has brought.
func TestDatagramsGoPastTheMuxes(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		ticket := [6]byte{1, 2, 3, 4, 5, 6}
		for range 2 {
			v, inner := r.send(r.question(), "send_mux")
			if v.Reserved != [4]byte{3: pkt.Route} || inner.Destination != r.nonce() || inner.Source != clientMAC {
				t.Errorf("asks by %+v, to %x, with nonce %x", v, inner.Destination, r.nonce())
			}
		}
		nonce := r.nonce()
		for what, frame := range map[string][]byte{
			"a plain answer":      r.reply(r.tunnel, 0, clientMAC, someMAC),
			"a nonce and no mark": r.reply(r.tunnel, 0, nonce, ticket),
			"another nonce":       r.reply(r.tunnel, 0x5d, [6]byte{nonce[0], nonce[1], nonce[2], nonce[3], nonce[4], nonce[5] ^ 1}, ticket),
			"a mark and no nonce": r.reply(r.tunnel, 0x5d, clientMAC, ticket),
			"a nonce from a mux":  r.reply(r.mux, 0x5d, nonce, ticket),
		} {
			got := r.decode(r.run(r.objects.FromUnderlay, frame, "deliver_client", forward))
			if got.Source != gatewayMAC || got.Destination != clientMAC {
				t.Errorf("%s: delivered from %x to %x", what, got.Source, got.Destination)
			}
			if f := r.flow(); f.State != FlowHalfOpen {
				t.Fatalf("learnt by %s: %+v", what, f)
			}
		}
		r.run(r.objects.FromUnderlay, r.reply(r.tunnel, 0x5d, nonce, ticket), "deliver_client", forward)
		if f := r.flow(); f.State != FlowDirect || f.Host.String() != r.tunnel || ticketOf(f) != (hoststate.Ticket{MAC: ticket, Byte: 0x5d}) {
			t.Fatalf("not learnt: %+v", f)
		}
		v, inner := r.send(r.question(), "send_direct")
		if v.Outer.Destination.String() != r.tunnel || v.Reserved != [4]byte{3: 0x5d} || inner.Destination != ticket || inner.Source != clientMAC || string(inner.Payload) != "question" {
			t.Errorf("goes by %+v as %+v", v, inner)
		}
		r.run(r.objects.FromUnderlay, r.reply(r.other, 0x5d, nonce, ticket), "deliver_client", forward)
		if f := r.flow(); f.Host.String() != r.tunnel {
			t.Errorf("a nonce was good for twice: %+v", f)
		}
		if traffic, err := r.ClientTraffic(1); err != nil || traffic.Learnt != 1 || traffic.Direct.Packets != 1 || traffic.ByMux.Packets != 2 {
			t.Errorf("traffic %+v, %v", traffic, err)
		}
	})
}

// age lets time pass for the one flow.
func (r clientRig) age(silent, learnt, waiting uint32) {
	r.t.Helper()
	rows, err := abi.ReadTable[overlayBypassFlowKey, overlayBypassFlow](r.objects.BypassFlows)
	r.must(err)
	for key, row := range rows {
		row.Seen -= silent
		row.Events -= learnt
		if row.Waiting != 0 {
			row.Waiting -= waiting
		}
		r.must(r.objects.BypassFlows.Put(key, row))
	}
}

// A flow comes back to the muxes when its host does not answer, or after a silence, and asks with another nonce; while it
// goes straight it asks now and then for another ticket.
func TestDatagramsComeBackToTheMuxes(t *testing.T) {
	const second = 60 // ticks
	eachFamily(t, func(t *testing.T, r clientRig) {
		learn := func(ticket byte) {
			r.run(r.objects.FromUnderlay, r.reply(r.tunnel, 0x5c, r.nonce(), [6]byte{ticket}), "deliver_client", forward)
		}
		r.send(r.question(), "send_mux")
		learn(1)
		r.send(r.question(), "send_direct")
		r.age(0, 0, 2*second)
		r.send(r.question(), "send_direct")
		r.age(0, 0, second)
		v, inner := r.send(r.question(), "send_mux")
		if v.Reserved[3] != pkt.Route || inner.Destination != r.nonce() || r.flow().State != FlowLost {
			t.Errorf("in vain: goes by %+v to %x, flow %+v", v, inner.Destination, r.flow())
		}
		learn(2)
		r.send(r.question(), "send_direct")
		r.run(r.objects.FromUnderlay, r.reply(r.tunnel, 0, clientMAC, someMAC), "deliver_client", forward)
		r.age(0, 0, 60*second)
		r.send(r.question(), "send_direct") // it has answered

		r.run(r.objects.FromUnderlay, r.reply(r.tunnel, 0, clientMAC, someMAC), "deliver_client", forward)
		r.age(0, 61*second, 0)
		nonce := r.nonce()
		v, inner = r.send(r.question(), "send_direct")
		if v.Reserved[3] != 0x5c || inner.Destination != [6]byte{2} || inner.Source != nonce {
			t.Errorf("asks for another ticket by %+v: from %x to %x, nonce %x", v, inner.Source, inner.Destination, nonce)
		}
		learn(3)
		if _, inner = r.send(r.question(), "send_direct"); inner.Destination != [6]byte{3} || inner.Source != clientMAC {
			t.Errorf("shows %x from %x", inner.Destination, inner.Source)
		}
		r.run(r.objects.FromUnderlay, r.reply(r.tunnel, 0, clientMAC, someMAC), "deliver_client", forward)
		r.age(31*second, 0, 0)
		r.send(r.question(), "send_mux")
		if n, err := r.SweepFlows(Now() + 20*second); err != nil || n != 1 {
			t.Errorf("%d flows are left, %v", n, err)
		}
		if n, err := r.SweepFlows(Now() + 31*second); err != nil || n != 0 {
			t.Errorf("%d flows are left, %v", n, err)
		}
	})
}

// Flows of datagrams fill half of a port's room, and no more.
func TestDatagramsLeaveRoomForConnections(t *testing.T) {
	r := newClientRig(t, families()["v4 over v4"])
	for port := range 20 {
		p := r.question()
		p.SourcePort += uint16(port)
		v, inner := r.send(p, "send_mux")
		if asks := inner.Destination != gatewayMAC; asks != (port < 5) || v.Reserved[3] != pkt.Route {
			t.Errorf("flow %d asks: %t", port, asks)
		}
	}
	for port := range 5 {
		r.send(r.sent(pkt.SYN, 1000, 0, func(p *pkt.Packet) { p.SourcePort += uint16(port) }), "send_mux")
	}
	if all, err := r.Flows(); err != nil || len(all) != 10 {
		t.Errorf("%d flows, %v", len(all), err)
	}
}

// shown is a client's datagram that goes past the muxes, from a host, with what it shows inside.
func (r *rig) shown(p pkt.Packet, from string, behind byte, ticket, by [6]byte) []byte {
	p.Source, p.Destination = by, ticket
	v := pkt.VXLAN{VNI: testVNI, SourcePort: 50000, Reserved: [4]byte{3: behind}, Outer: pkt.IP{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(r.tunnel), TTL: 64,
	}}
	return v.Frame(p)
}

// asks is a client's datagram by a mux, with a nonce.
func (r *rig) asks(p pkt.Packet, host uint32, nonce [6]byte) []byte {
	p.Destination = nonce
	return r.headed(p, host, r.key)
}

func (r *rig) ticket(host uint32) [6]byte {
	return fbt.Ticket{VNI: testVNI, Host: host, Client: netip.MustParseAddrPort(r.client), VIP: netip.MustParseAddrPort(r.vip)}.MAC(r.key)
}

// A server's host gives the ticket to the client's host that asks, once, and takes datagrams with it.
func TestAServersHostGivesTickets(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newDatagramRig(t, f)
			in, p := r.objects.FromUnderlay, pkt.UDP(f.client, f.vip, pkt.Payload([]byte("question")))
			nonce, behind := [6]byte{0x61, 2, 3, 4, 5, 6}, fbt.TicketByte(r.key)
			r.run(in, r.shown(p, f.host, behind, r.ticket(7), clientMAC), "drop_no_session", drop) // that only muxes begin
			r.run(in, r.asks(p, 7, nonce), "deliver_native", next)
			answer := pkt.UDP(f.dip, r.local(p.SourcePort)).Frame()
			v, out, err := pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer, "reply", forward))
			if err != nil || v.Reserved != [4]byte{3: behind} || out.Destination != nonce || out.Source != r.ticket(7) || v.Outer.Destination.String() != f.host {
				t.Fatalf("told in %+v: from %x to %x, %v", v, out.Source, out.Destination, err)
			}
			v, out, err = pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer, "reply", forward))
			if err != nil || v.Reserved != [4]byte{} || out.Destination != p.Source {
				t.Errorf("told twice in %+v: from %x to %x, %v", v, out.Source, out.Destination, err)
			}
			got := r.decode(r.run(in, r.shown(p, f.host, behind, r.ticket(7), clientMAC), "deliver_native", next))
			if to := netip.AddrPortFrom(got.IP.Destination, got.DestinationPort).String(); to != f.dip || string(got.Payload) != "question" {
				t.Errorf("delivered to %s: %q", to, got.Payload)
			}
			// Straight it may ask for another one; the answers' destination stays the client's.
			r.run(in, r.shown(p, f.host, behind, r.ticket(7), [6]byte{0x71, 1}), "deliver_native", next)
			_, out, err = pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer, "reply", forward))
			if err != nil || out.Destination != (pkt.MAC{0x71, 1}) || out.Source != r.ticket(7) {
				t.Errorf("told from %x to %x, %v", out.Source, out.Destination, err)
			}
			_, out, err = pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer, "reply", forward))
			if err != nil || out.Destination != p.Source {
				t.Errorf("answered to %x, %v", out.Destination, err)
			}
			// The client moves: its old host's ticket is good for nothing, and its new host gets its own.
			r.run(in, r.asks(p, 8, nonce), "deliver_native", next)
			r.run(in, r.shown(p, f.host, behind, r.ticket(7), clientMAC), "drop_other_host", drop)
		})
	}
}

// Datagrams past the muxes without the ticket, with another flow's, another host's, an old one or a guess, and tickets in
// what is no datagram: none is delivered, and none changes the session.
func TestForgedTickets(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newDatagramRig(t, f)
			in, p := r.objects.FromUnderlay, pkt.UDP(f.client, f.vip)
			right, behind := r.ticket(7), fbt.TicketByte(r.key)
			r.run(in, r.asks(p, 7, [6]byte{}), "deliver_native", next)
			before, err := r.session()
			r.must(err)
			other := p.With(func(p *pkt.Packet) { p.SourcePort++ })
			stranger := "10.7.7.7"
			if !netip.MustParseAddr(f.tunnel).Is4() {
				stranger = "fd07::7"
			}
			tcp := pkt.TCP(f.client, f.vip, pkt.ACK)
			r.run(in, r.shown(p, f.host, 0, right, clientMAC), "drop_inner_other", drop)
			r.run(in, r.shown(p, f.host, behind, clientMAC, clientMAC), "drop_fbt_forged", drop)
			r.run(in, r.shown(p, f.host, behind, r.ticket(8), clientMAC), "drop_fbt_forged", drop)
			r.run(in, r.shown(other, f.host, behind, right, clientMAC), "drop_fbt_forged", drop)
			r.run(in, r.shown(p, f.host, 0x5c|(behind+1)&3, right, clientMAC), "drop_fbt_key", drop)
			r.run(in, r.shown(p, stranger, behind, right, clientMAC), "drop_not_a_vtep", drop)
			r.run(in, r.shown(p, f.mux, behind, right, clientMAC), "drop_fbt_forged", drop)
			r.run(in, r.shown(tcp, f.host, behind, right, clientMAC), "drop_fbt_forged", drop)
			fragment := p.With(pkt.Fragment(0, true))
			r.run(in, r.shown(fragment, f.host, behind, right, clientMAC), "drop_inner_fragment", drop)
			rng := rand.New(rand.NewPCG(9, 9))
			frame := r.shown(p, f.host, behind, right, [6]byte{1, 1, 1, 1, 1, 1})
			at := bytes.Index(frame, right[:])
			for range *forgeries / len(families()) {
				guess := rng.Uint64()
				copy(frame[at:], binary.LittleEndian.AppendUint64(nil, guess)[:6])
				if got, err := in.Run(&ebpf.RunOptions{Data: frame}); err != nil || got != drop {
					t.Fatalf("action %d, %v\n%x", got, err, frame)
				}
			}
			if after, err := r.session(); err != nil || after != before {
				t.Errorf("the session was %+v, is %+v, %v", before, after, err)
			}
		})
	}
}

// Answers that are forged in a server's name, with guesses of the nonce, teach nothing.
func TestForgedNoncesAreNotLearnt(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		r.send(r.question(), "send_mux")
		rng := rand.New(rand.NewPCG(10, 10))
		to := [6]byte{0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
		frame := r.reply(r.other, 0x5d, to, someMAC)
		at := bytes.Index(frame, to[:])
		for range *forgeries / len(families()) {
			copy(frame[at:], binary.LittleEndian.AppendUint64(nil, rng.Uint64()|1)[:6])
			if _, err := r.objects.FromUnderlay.Run(&ebpf.RunOptions{Data: frame}); err != nil {
				t.Fatal(err)
			}
		}
		if f := r.flow(); f.State != FlowHalfOpen || f.Host.IsValid() {
			t.Errorf("learnt: %+v", f)
		}
	})
}
