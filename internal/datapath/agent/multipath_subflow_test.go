package agent

import (
	"encoding/binary"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/pkt"
)

// joinHere has a subflow without timestamps of another workload of this host come to the tunnel native4, and its SYN answered.
func joinHere(t *testing.T, r *rig) (ack pkt.Packet) {
	t.Helper()
	r.setMultipath(vip4, peer4, peer6)
	name := multipathWorlds["v4 interface"].name(77)
	if err := (drawn{name: name, own: interface4}).note(r); err != nil {
		t.Fatal(err)
	}
	syn := joins(client4, vip4, name.Token)
	if got := r.verdict("from_uplink", syn.Inside(outer(native4))); got != "deliver_interface" {
		t.Fatalf("join: %s", got)
	}
	answer := replyTo(delivered(syn, interface4), pkt.SYN|pkt.ACK, mptcpAnswer)
	answer.Seq, answer.Ack = 0x7000_0000, syn.Seq+1
	if got := r.verdict("from_workload", answer); got != "reply_uplink" {
		t.Fatalf("SYN/ACK: %s", got)
	}
	ack = pkt.TCP(client4, vip4, pkt.ACK)
	ack.Seq, ack.Ack = syn.Seq+1, answer.Seq+1
	return ack
}

// TestForgedSegmentsConfirmNothing has a subflow be kept by who has proven to be its client, and given up by nobody else.
func TestForgedSegmentsConfirmNothing(t *testing.T) {
	r := newRig(t)
	ack := joinHere(t, r)
	comes := func(what string, p pkt.Packet, joined, closing int) {
		t.Helper()
		if got := r.verdict("from_uplink", p.Inside(outer(native4))); got != "deliver_interface" {
			t.Fatalf("%s: %s", what, got)
		}
		rows, err := abi.ReadTable[bpf.AgentMultipathFlow, bpf.AgentMultipathJoined](r.objects.MptcpJoined)
		if err != nil {
			t.Fatal(err)
		}
		closed := 0
		for _, row := range rows {
			closed += int(row.Closing)
		}
		if len(rows) != joined || closed != closing {
			t.Errorf("%s: %d rows, %d of them closing, not %d and %d", what, len(rows), closed, joined, closing)
		}
	}
	with := func(flags pkt.Flags, seq, ack uint32) pkt.Packet {
		p := pkt.TCP(client4, vip4, flags)
		p.Seq, p.Ack = seq, ack
		return p
	}
	comes("forged", with(pkt.ACK, ack.Seq, ack.Ack+0x1000_0000), 0, 0)
	comes("forged FIN", with(pkt.FIN|pkt.ACK, ack.Seq, ack.Ack+0x1000_0000), 0, 0)
	comes("client's", ack, 1, 0)
	comes("FIN of another number", with(pkt.FIN|pkt.ACK, ack.Seq+0x1000_0000, ack.Ack), 1, 0)
	comes("RST of another number", with(pkt.RST, ack.Seq+1, 0), 1, 0)
	comes("client's FIN", with(pkt.FIN|pkt.ACK, ack.Seq, ack.Ack), 1, 1)
	comes("acknowledgement behind it", with(pkt.ACK, ack.Seq+1, ack.Ack), 1, 1)
	comes("client's RST", with(pkt.RST, ack.Seq, 0), 0, 0)
}

// TestTheHolderTellsOfSegments has the copy of a segment tell what that of a SYN does.
func TestTheHolderTellsOfSegments(t *testing.T) {
	for family, w := range multipathWorlds {
		r := newRig(t)
		r.setMultipath(w.vip, peer4, peer6)
		from := peer4
		if netip.MustParseAddr(w.tunnel).Is6() {
			from = peer6
		}
		for _, flags := range []pkt.Flags{pkt.ACK, pkt.ACK | pkt.FIN, pkt.RST} {
			comes, says := step1(stepHolder, peer4), step1(stepHolder, w.tunnel)
			comes.sourcePort, says.kind = 1, kindJoined
			p := pkt.TCP(w.client, w.vip, flags)
			got := r.run("from_uplink", withoutChecksum(inGUE(p, fromTo(from, w.tunnel), comes)), r.sealed(copyJoined))
			want := inGUE(p, fromTo(sourceFor(w.tunnel, peer4), peer4), says)
			if wrong := differs(got.frame, want.Frame()); got.verdict != "join_told" || wrong != "" {
				t.Errorf("%s, flags %x: %s, %s", family, flags, got.verdict, wrong)
			}
		}
	}
}

// TestPortsOfAClosedSubflow are for the host of the next one as soon as that one's client is there, and its segments go there before.
func TestPortsOfAClosedSubflow(t *testing.T) {
	for family, w := range multipathWorlds {
		t.Run(family, func(t *testing.T) {
			r := newRig(t)
			r.setMultipath(w.vip, peer4, peer6)
			from := peer4
			if netip.MustParseAddr(w.tunnel).Is6() {
				from = peer6
			}
			tell := func(what string, p pkt.Packet, holder, want string) {
				t.Helper()
				say := step1(stepHolder, holder)
				say.kind = kindJoined
				r.check(what, carried(p, fromTo(from, w.tunnel), say, want, nil))
			}
			goes := func(what, holder string, asks uint16) {
				t.Helper()
				on := step1(stepHolder, w.tunnel)
				on.sourcePort = asks
				ack := pkt.TCP(w.client, w.vip, pkt.ACK)
				want := inGUE(ack, fromTo(sourceFor(w.tunnel, holder), holder), on)
				got := r.run("from_uplink", ack.Inside(outer(w.tunnel)).Frame(), nil)
				if wrong := differs(got.frame, want.Frame()); got.verdict != "join_on" || wrong != "" {
					t.Errorf("%s: %s, %s", what, got.verdict, wrong)
				}
			}
			syn, ack := joins(w.client, w.vip, 77), pkt.TCP(w.client, w.vip, pkt.ACK)
			tell("SYN", syn, peer4, "join_noted")
			tell("ACK", ack, peer4, "join_noted")
			tell("SYN of another", syn, peer6, "drop_join_conflict")
			tell("RST of another", pkt.TCP(w.client, w.vip, pkt.RST), peer6, "drop_join_conflict")
			goes("open", peer4, 0)
			tell("FIN", pkt.TCP(w.client, w.vip, pkt.FIN|pkt.ACK), peer4, "join_noted")
			goes("closing", peer4, 0)
			tell("SYN of another, closing", syn, peer6, "join_noted")
			goes("begun anew", peer6, 1)
			tell("ACK of another, closing", ack, peer6, "join_noted")
			goes("of another", peer6, 0)
			tell("RST", pkt.TCP(w.client, w.vip, pkt.RST), peer6, "join_noted")
			if _, _, joined, unconfirmed := r.rowsOfMultipath(); joined+unconfirmed != 0 {
				t.Errorf("left are %d and %d rows", joined, unconfirmed)
			}
		})
	}
}

// TestMergedSegmentsOfSubflows go on in IP, which GRO leaves no other way, and are taken of peers of an endpoint with multipath alone.
func TestMergedSegmentsOfSubflows(t *testing.T) {
	for family, w := range multipathWorlds {
		t.Run(family, func(t *testing.T) {
			r := newRig(t)
			r.setMultipath(w.vip, peer4, peer6)
			peer, stranger := peer4, strange4
			if netip.MustParseAddr(w.tunnel).Is6() {
				peer, stranger = peer6, strange6
			}
			ack := pkt.TCP(w.client, w.vip, pkt.ACK)
			say := step1(stepHolder, peer)
			say.kind = kindJoined
			r.check("told", carried(joins(w.client, w.vip, 77), fromTo(peer, w.tunnel), say, "join_noted", nil))
			got := r.run("from_uplink", ack.Inside(outer(w.tunnel)).Frame(), gso(3, 100))
			if got.verdict != "join_on" {
				t.Errorf("leaves: %s", got.verdict)
			}
			r.forgetMultipath()
			comes := fromTo(peer, w.tunnel)
			comes.TTL = 32
			if got := r.verdict("from_uplink", ack.Inside(comes)); got != w.deliver {
				t.Errorf("comes from a peer: %s", got)
			}
			if got := r.verdict("from_uplink", ack.Inside(fromTo(stranger, w.tunnel))); got != "drop_not_a_mux" {
				t.Errorf("comes from a stranger: %s", got)
			}
			if err := r.Replace(multipathRules(w.vip, nil)); err != nil {
				t.Fatal(err)
			}
			if got := r.verdict("from_uplink", ack.Inside(comes)); got != "drop_not_a_mux" {
				t.Errorf("comes from a peer of an endpoint without multipath: %s", got)
			}
		})
	}
}

// TestTheLastEndpointLeavesNothing has all rows end with the last endpoint that has multipath.
func TestTheLastEndpointLeavesNothing(t *testing.T) {
	r := newRig(t)
	w := multipathWorlds["v4 native"]
	r.setMultipath(w.vip, peer4, peer6)
	if got := r.verdict("from_uplink", w.shake(r, t).Inside(outer(w.tunnel))); got != w.deliver {
		t.Fatal(got)
	}
	if got := r.run("from_uplink", tells(w.name(7), peer4, native4, peer4), nil); got.verdict != "join_noted" {
		t.Fatal(got.verdict)
	}
	say := step1(stepHolder, peer4)
	say.kind = kindJoined
	for _, p := range []pkt.Packet{joins("198.51.100.9:30000", vip4, 7), pkt.TCP("198.51.100.9:30000", vip4, pkt.ACK), joins("198.51.100.9:30001", vip4, 7)} {
		r.check("told", carried(p, fromTo(peer4, native4), say, "join_noted", nil))
	}
	if own, names, joined, unconfirmed := r.rowsOfMultipath(); own != 1 || names != 1 || joined != 1 || unconfirmed != 1 {
		t.Fatalf("at first: %d, %d, %d, %d", own, names, joined, unconfirmed)
	}
	if err := r.Replace(multipathRules(w.vip, nil)); err != nil {
		t.Fatal(err)
	}
	if own, names, joined, unconfirmed := r.rowsOfMultipath(); own+names+joined+unconfirmed != 0 {
		t.Errorf("left are %d, %d, %d, %d", own, names, joined, unconfirmed)
	}
}

// forged is a world where peer6 has told of a SYN of the five-tuple of ack, which is of another connection.
type forged struct {
	*rig
	w    multipathWorld
	say  gue // what peer6 tells
	from string
	ack  pkt.Packet
}

func newForged(t *testing.T, w multipathWorld) forged {
	f := forged{newRig(t), w, step1(stepHolder, peer6), fromPeerTo(w.tunnel), pkt.TCP(w.client, w.vip, pkt.ACK)}
	f.say.kind = kindJoined
	f.setMultipath(w.vip, peer4, peer6)
	f.tell()
	return f
}

func (f forged) tell() {
	f.t.Helper()
	f.check("forged", carried(joins(f.w.client, f.w.vip, 77), fromTo(f.from, f.w.tunnel), f.say, "join_noted", nil))
}

// halfOpen has the workload answer a SYN of the five-tuple, and returns what an acknowledgement has.
func (f forged) halfOpen() uint32 {
	f.t.Helper()
	syn := pkt.TCP(f.w.client, f.w.vip, pkt.SYN)
	if got := f.verdict("from_uplink", syn.Inside(outer(f.w.tunnel))); got != f.w.deliver {
		f.t.Fatalf("SYN: %s", got)
	}
	answer := replyTo(delivered(syn, f.w.dip), pkt.SYN|pkt.ACK)
	answer.Seq, answer.Ack = 0x7000_0000, syn.Seq+1
	if got := f.verdict(f.w.program, answer); got != f.w.reply {
		f.t.Fatalf("SYN/ACK: %s", got)
	}
	return answer.Seq + 1
}

// goes has the segment, in GUE from there, go on to peer6, which is asked whether the client is there, or not.
func (f forged) goes(what string, from pkt.IP, with gue, asks uint16) {
	f.t.Helper()
	on := step1(stepHolder, f.w.tunnel)
	on.sourcePort = asks
	want := inGUE(f.ack, fromTo(sourceFor(f.w.tunnel, peer6), peer6), on)
	got := f.run("from_uplink", withoutChecksum(inGUE(f.ack, from, with)), nil)
	if wrong := differs(got.frame, want.Frame()); got.verdict != "join_on" || wrong != "" {
		f.t.Errorf("%s: %s, %s", what, got.verdict, wrong)
	}
}

// TestAForgedSYNLeavesDrainingConnections has a segment that a SYN alone speaks for go to the backend before first, where the
// connection may be that it is of, and no segment keep such a row alive.
func TestAForgedSYNLeavesDrainingConnections(t *testing.T) {
	for family, w := range multipathWorlds {
		t.Run(family, func(t *testing.T) {
			r := newForged(t, w)
			ask, final := step1(stepAsk, peer4), step1(stepFinal, peer4)
			r.check("asks the backend before", carried(r.ack, outer(w.tunnel), ask, "chain_on", handed(r.ack, w.tunnel, peer4, stepChained)))
			seen := r.ageJoining(20 * time.Second)
			r.goes("which does not know it", fromTo(r.from, w.tunnel), final, 1)
			if got := r.ageJoining(0); got != seen {
				t.Errorf("the row was seen at %d, then at %d", seen, got)
			}
			// What the client has confirmed is its own.
			r.check("confirmed", carried(r.ack, fromTo(r.from, w.tunnel), r.say, "join_noted", nil))
			r.goes("of a subflow", outer(w.tunnel), ask, 0)
		})
	}
}

// TestAForgedSYNOfAPlainConnectionTakesNoSubflow has a session of these ports here that the segment is not of, as of another forged SYN
// that the workload has answered, not get it in place of the backend before, which may be elsewhere or here.
func TestAForgedSYNOfAPlainConnectionTakesNoSubflow(t *testing.T) {
	for family, w := range multipathWorlds {
		t.Run(family, func(t *testing.T) {
			r := newForged(t, w)
			stranger, own := r.ack, r.ack
			own.Ack = r.halfOpen()
			stranger.Ack = own.Ack + 1<<28
			r.check("of no session here", carried(stranger, outer(w.tunnel), step1(stepAsk, peer4), "chain_on", handed(stranger, w.tunnel, peer4, stepChained)))
			if got := r.verdict("from_uplink", inGUE(own, outer(w.tunnel), step1(stepAsk, peer4))); got != w.deliver {
				t.Errorf("of the session: %s", got)
			}
		})
	}
}

// TestAForgedSYNLeavesConnectionsOfThisHost has the same of a backend before that is on this host, too.
func TestAForgedSYNLeavesConnectionsOfThisHost(t *testing.T) {
	for family, w := range multipathWorlds {
		t.Run(family, func(t *testing.T) {
			r := newForged(t, w)
			before, dip, program, reply := native4, w.other(native4, native6), "to_uplink", "reply_native"
			if w.program == "to_uplink" {
				before, dip, program, reply = interface4, w.other(interface4, interface6), "from_workload", "reply_uplink"
			}
			r.goes("the backend before knows nothing", outer(w.tunnel), step1(stepAsk, before), 1)
			if err := abi.WriteTable(r.objects.MptcpJoining, map[bpf.AgentMultipathFlow]bpf.AgentMultipathJoined{}); err != nil {
				t.Fatal(err)
			}
			deliver := r.verdict("from_uplink", r.ack.Inside(outer(before)))
			if got := r.verdict(program, replyTo(delivered(r.ack, dip), pkt.ACK)); got != reply {
				t.Fatalf("answer: %s", got)
			}
			r.tell()
			r.ack.Ack = r.halfOpen() + 1<<28
			out := delivered(r.ack, dip)
			r.check("the backend before knows it", carried(r.ack, outer(w.tunnel), step1(stepAsk, before), deliver, &out))
		})
	}
}

// other is the address of the world's family.
func (w multipathWorld) other(v4, v6 string) string {
	if netip.MustParseAddrPort(w.vip).Addr().Is6() {
		return v6
	}
	return v4
}

// ageJoining lets time pass for the only subflow that a SYN alone speaks for, and returns when it was seen.
func (r *rig) ageJoining(by time.Duration) uint64 {
	r.t.Helper()
	rows, err := abi.ReadTable[bpf.AgentMultipathFlow, bpf.AgentMultipathJoined](r.objects.MptcpJoining)
	if err != nil || len(rows) != 1 {
		r.t.Fatal(rows, err)
	}
	for key, row := range rows {
		row.LastSeen -= uint64(by)
		if err := r.objects.MptcpJoining.Put(key, row); err != nil {
			r.t.Fatal(err)
		}
		return row.LastSeen
	}
	return 0
}

// TestASubflowOfPortsThatAreFree has the session of a join have its token, not that of a connection that had these ports and is over;
// one that lives keeps its own, as the SYN may be forged.
func TestASubflowOfPortsThatAreFree(t *testing.T) {
	for family, w := range multipathWorlds {
		for _, over := range []bool{true, false} {
			r := newRig(t)
			r.setMultipath(w.vip, peer4, peer6)
			ack := w.shake(r, t)
			ack.Seq = 0x1000_0000
			first := multipath.TokenOf(testKey)
			answer := replyTo(delivered(ack, w.dip), pkt.ACK)
			answer.Ack = ack.Seq
			for _, s := range []struct {
				program string
				p       pkt.Packet
				want    string
			}{
				{"from_uplink", ack.Inside(outer(w.tunnel)), w.deliver}, {w.program, answer, w.reply},
			} {
				if got := r.verdict(s.program, s.p); got != s.want {
					t.Fatalf("%s: %s, not %s", s.program, got, s.want)
				}
			}
			if over {
				reset := replyTo(delivered(ack, w.dip), pkt.RST|pkt.ACK)
				if got := r.verdict(w.program, reset); got != w.reply {
					t.Fatalf("RST: %s", got)
				}
			}
			join := joins(w.client, w.vip, 77)
			if got := r.run("from_uplink", withoutChecksum(inGUE(join, fromTo(fromPeerTo(w.tunnel), w.tunnel), step1(stepHolder, peer4))), nil); got.verdict != w.deliver {
				t.Fatalf("join: %s", got.verdict)
			}
			want := first
			if over {
				want = 77
			}
			sessions, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.Sessions)
			if err != nil || len(sessions) != 1 {
				t.Fatalf("%s: %v, %v", family, sessions, err)
			}
			for _, row := range sessions {
				if got := tokenIn(row); got != want {
					t.Errorf("%s, over: %t: the session has the token %08x, not %08x", family, over, got, want)
				}
			}
		}
	}
}

// tokenIn is the token of a session.
func tokenIn(row bpf.AgentSession) multipath.Token {
	var token [4]byte
	binary.NativeEndian.PutUint32(token[:], row.Token)
	return multipath.Token(binary.BigEndian.Uint32(token[:]))
}

// fromPeerTo is a peer of the tunnel's family.
func fromPeerTo(tunnel string) string {
	if netip.MustParseAddr(tunnel).Is6() {
		return peer6
	}
	return peer4
}
