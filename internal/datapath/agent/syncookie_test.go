package agent

import (
	"fmt"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/lab/netns"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
)

// The client's and the workload's first numbers.
const (
	clientISN   = 0xffffffd0 // wraps soon
	workloadISN = 0x80000000
)

// synSecrets are three, of which the one in the middle makes cookies.
func synSecrets(first uint32) []model.SYNSecret {
	secrets := make([]model.SYNSecret, model.SYNSecrets)
	for i := range secrets {
		secrets[i].ID = first + uint32(i)
		secrets[i].Secret = [16]byte{byte(secrets[i].ID), 's', 'e', 'c', 'r', 'e', 't'}
	}
	return secrets
}

// withSYNCookies has the rig's endpoints answered by cookies.
func (r *rig) withSYNCookies(mode model.SYNCookies) {
	r.t.Helper()
	var all []model.HostBackend
	for _, rule := range r.All() {
		if rule.Endpoint.Protocol == model.TCP {
			rule.SYNCookies = mode
			all = append(all, rule)
		}
	}
	if err := r.Apply(all, nil); err != nil {
		r.t.Fatal(err)
	}
	if err := r.SetSYNSecrets(synSecrets(7)); err != nil {
		r.t.Fatal(err)
	}
}

// begun is a connection whose SYN a mux has answered.
type begun struct {
	handshake
	offer  syncookie.Offer
	cookie uint32
	tsval  uint32 // of the mux's SYN/ACK
}

// begin has a mux answer, with a secret and at a time.
func begin(h handshake, offer syncookie.Offer, secret model.SYNSecret, at time.Time) begun {
	client, vip, _ := h.ends()
	flow := syncookie.Flow{Client: netip.MustParseAddrPort(client), VIP: netip.MustParseAddrPort(vip), ISN: clientISN}
	return begun{
		handshake: h, offer: offer,
		cookie: syncookie.Make(secret, flow, offer, at), tsval: syncookie.TSval(offer, backendSlot, at),
	}
}

// everything is what clients offer nowadays.
var everything = syncookie.Offer{MSS: 1460, Timestamps: true, Scale: 7, SACK: true}

func beginNow(h handshake, offer syncookie.Offer) begun {
	return begin(h, offer, synSecrets(7)[1], time.Now())
}

// numbers sets what a segment counts by.
func numbers(seq, ack uint32) func(*pkt.Packet) {
	return func(p *pkt.Packet) { p.Seq, p.Ack = seq, ack }
}

// timed are a segment's timestamps, if the connection has any.
func (b begun) timed(tsval, tsecr uint32) []func(*pkt.Packet) {
	if !b.offer.Timestamps {
		return nil
	}
	return []func(*pkt.Packet){pkt.NOP(2), pkt.Timestamps(tsval, tsecr)}
}

// ack is the segment by which the client ends the handshake.
func (b begun) ack(changes ...func(*pkt.Packet)) pkt.Packet {
	client, vip, _ := b.ends()
	p := pkt.TCP(client, vip, pkt.ACK, numbers(clientISN+1, b.cookie+1), pkt.Payload(nil))
	return p.Inside(outer(dipOf(b.kind, 4))).With(b.timed(clientTSval, b.tsval)...).With(changes...)
}

// syn is what the workload gets of it.
func (b begun) syn() pkt.Packet {
	_, _, dip := b.ends()
	p := delivered(b.ack(), dip, func(p *pkt.Packet) { p.Flags, p.Options, p.Payload = pkt.SYN, nil, nil }, numbers(clientISN, 0))
	_, mss := syncookie.Class(b.offer.MSS)
	p = p.With(pkt.MSS(mss))
	if b.offer.Timestamps && b.offer.SACK {
		p = p.With(sackPermitted())
	}
	if b.offer.Timestamps {
		p = p.With(pkt.Timestamps(clientTSval, 0))
	}
	if b.offer.Timestamps && b.offer.Scale >= 0 {
		p = p.With(pkt.TCPOptions(layers.TCPOption{
			OptionType: layers.TCPOptionKindWindowScale, OptionLength: 3, OptionData: []byte{byte(b.offer.Scale)},
		}))
	}
	return p
}

// answer is the workload's segment, with the numbers that it knows.
func (b begun) answer(flags pkt.Flags, seq, ack uint32, changes ...func(*pkt.Packet)) pkt.Packet {
	_, _, dip := b.ends()
	return replyTo(delivered(b.ack(), dip), flags, numbers(seq, ack), pkt.Payload(nil)).With(changes...)
}

// synAck is the workload's, as that of Linux.
func (b begun) synAck() pkt.Packet {
	p := b.answer(pkt.SYN|pkt.ACK, workloadISN, clientISN+1, pkt.MSS(1460))
	if b.offer.Timestamps {
		p = p.With(sackPermitted(), pkt.Timestamps(tsval0, clientTSval))
	}
	if b.offer.Timestamps && b.offer.Scale >= 0 {
		p = p.With(pkt.NOP(1), windowScale())
	}
	return p
}

func (b begun) verdict(native, behind string) string {
	if b.kind == "native" {
		return native
	}
	return behind
}

func (b begun) sends() string { return b.verdict("to_uplink", "from_workload") }

// acknowledged is what becomes of the SYN/ACK: turned back, with the client's numbers.
func (b begun) acknowledged() pkt.Packet {
	from := b.synAck()
	p := from.With(func(p *pkt.Packet) {
		p.Source, p.Destination = p.Destination, p.Source
		p.IP.Source, p.IP.Destination = p.IP.Destination, p.IP.Source
		p.SourcePort, p.DestinationPort = p.DestinationPort, p.SourcePort
		p.Flags, p.Options = pkt.ACK, nil
	}, numbers(clientISN+1, workloadISN+1))
	if b.offer.Timestamps {
		p = p.With(pkt.Timestamps(clientTSval, tsval0))
	}
	return p
}

// opened are the steps by which the agent leads the workload through the handshake.
func (b begun) opened() []step {
	syn, acknowledged := b.syn(), b.acknowledged()
	return []step{
		inbound(b.ack(), b.verdict("syncookie_native", "syncookie_interface"), &syn),
		outbound(b.sends(), b.synAck(), b.verdict("syncookie_answer_host", "syncookie_answer"), &acknowledged),
	}
}

// fromClient is a segment of the client, which counts by the cookie, and what the workload gets of it.
func (b begun) fromClient(seq, ack, tsval, tsecr, want uint32, changes ...func(*pkt.Packet)) step {
	_, _, dip := b.ends()
	in := b.ack(func(p *pkt.Packet) { p.Options = nil }).With(b.timed(tsval, tsecr)...).With(numbers(seq, b.cookie+ack)).With(changes...)
	out := delivered(in, dip, func(p *pkt.Packet) { p.Options = nil }).With(b.timed(tsval, want)...).With(changes...)
	out = out.With(numbers(seq, workloadISN+ack), noNOP)
	return inbound(in, b.verdict("deliver_native", "deliver_interface"), &out)
}

// fromWorkload is one of the workload, and what the client gets.
func (b begun) fromWorkload(flags pkt.Flags, seq, ack, tsval, want uint32) step {
	_, vip, _ := b.ends()
	in := b.answer(flags, workloadISN+seq, ack).With(b.timed(tsval, clientTSval)...)
	out := b.answer(flags, b.cookie+seq, ack).With(b.timed(want, clientTSval)...).With(from(vip), noNOP)
	return outbound(b.sends(), in, b.verdict("reply_native", "reply_uplink"), &out)
}

// tellsAs is what the client is told of the workload's clock, once it has begun where the mux's stood.
func (b begun) tellsAs(tsval uint32) uint32 {
	return (b.tsval>>13+(tsval-tsval0)>>3)<<13 | backendSlot
}

// TestReplayedHandshakes leads workloads through handshakes, and translates from then on.
func TestReplayedHandshakes(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	offers := map[string]syncookie.Offer{
		"everything": everything, "no scale": {MSS: 1300, Timestamps: true, Scale: syncookie.NoScale, SACK: true},
		"no SACK": {MSS: 9000, Timestamps: true, Scale: 14}, "nothing": {MSS: 1220, Scale: syncookie.NoScale},
	}
	r.inside(func() {
		for name, offer := range offers {
			for _, family := range []int{4, 6} {
				for _, kind := range []string{"native", "interface"} {
					r.forget()
					r.goThrough(fmt.Sprintf("%s v%d %s", name, family, kind), beginNow(newHandshake(family, kind, aligned), offer))
				}
			}
		}
	})
}

// inside runs fn in a namespace where nothing listens: the programs look for sockets.
func (r *rig) inside(fn func()) {
	r.t.Helper()
	ns := netns.New(r.t.(*testing.T), fmt.Sprintf("wagent%d-syn", os.Getpid()))
	if err := ns.Do(func() error { fn(); return nil }); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) goThrough(what string, b begun) {
	r.t.Helper()
	later := tsval0 + uint32(16) // two ticks
	steps := append(b.opened(),
		b.fromClient(clientISN+1, 1, clientTSval+1, b.tsval, tsval0, pkt.Payload([]byte("a question"))),
		b.fromWorkload(pkt.ACK|pkt.PSH, 1, clientISN+11, later, b.tellsAs(later)),
		b.fromWorkload(pkt.ACK|pkt.PSH, 101, clientISN+11, later, b.tellsAs(later)),
		b.fromClient(clientISN+11, 101, clientTSval+2, b.tellsAs(later), later),
		b.fromWorkload(pkt.RST, 201, 0, later, b.tellsAs(later)))
	for i, s := range steps {
		r.check(fmt.Sprintf("%s: step %d", what, i), s)
	}
}

// TestRefusedCookies has segments that no connection is known of: none with a wrong cookie gets to the
// workload, or leaves anything behind, where cookies are used; elsewhere it goes on as ever.
func TestRefusedCookies(t *testing.T) {
	flipped := func(bit uint) func(*pkt.Packet) {
		return func(p *pkt.Packet) { p.Ack = (p.Ack - 1) ^ 1<<bit + 1 }
	}
	type refusal struct {
		name    string
		b       func(handshake) begun
		change  func(*pkt.Packet)
		verdict string
	}
	right := func(h handshake) begun { return beginNow(h, everything) }
	of := func(secret uint32, ticks time.Duration) func(handshake) begun {
		return func(h handshake) begun {
			return begin(h, everything, synSecrets(secret)[0], time.Now().Add(-ticks*syncookie.Tick))
		}
	}
	cases := []refusal{
		{"another client port", right, func(p *pkt.Packet) { p.SourcePort++ }, "drop_syncookie_invalid"},
		{"another sequence number", right, func(p *pkt.Packet) { p.Seq++ }, "drop_syncookie_invalid"},
		{"other options", right, func(p *pkt.Packet) { p.Options[2].OptionData[6] ^= 0x20 }, "drop_syncookie_invalid"},
		{"no options", right, func(p *pkt.Packet) { p.Options = nil }, "drop_syncookie_invalid"},
		{"a guess", right, func(p *pkt.Packet) { p.Ack += 1 << 20 }, "drop_syncookie_invalid"},
		{"a secret of the past", of(6, 0), nil, "drop_syncookie_expired"},
		{"a tick of the past", of(8, 2), nil, "drop_syncookie_expired"},
		{"a tick of long ago", of(8, 4), nil, "drop_syncookie_invalid"},
	}
	for bit := range uint(32) {
		if bit != 3 && bit != 4 && bit != 5 && bit != 6 { // those that name tick and secret say old, or forged
			cases = append(cases, refusal{fmt.Sprintf("bit %d", bit), right, flipped(bit), "drop_syncookie_invalid"})
		}
	}
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAlways)
	r.inside(func() {
		for _, family := range []int{4, 6} {
			for _, kind := range []string{"native", "interface"} {
				for _, c := range cases {
					p := c.b(newHandshake(family, kind, aligned)).ack()
					if c.change != nil {
						p = p.With(c.change)
					}
					r.check(fmt.Sprintf("%s, v%d %s", c.name, family, kind), inbound(p, c.verdict, nil))
				}
			}
		}
	})
	if sessions, err := r.Sessions(); err != nil || len(sessions) != 0 {
		t.Errorf("refused cookies left %v (%v)", sessions, err)
	}
}

// TestSecretsRotate takes cookies of every secret that is valid, and of no other.
func TestSecretsRotate(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAlways)
	r.inside(func() {
		for first := uint32(7); first < 12; first++ {
			if err := r.SetSYNSecrets(synSecrets(first)); err != nil {
				t.Fatal(err)
			}
			for id := first - 1; id < first+4; id++ {
				r.forget()
				b := begin(newHandshake(4, "interface", aligned), everything, synSecrets(id)[0], time.Now())
				want := "syncookie_interface"
				if id < first || id >= first+model.SYNSecrets {
					want = "drop_syncookie_expired"
					if (id-first)%4 < model.SYNSecrets {
						want = "drop_syncookie_invalid"
					}
				}
				if got := r.run("from_uplink", b.ack().Frame(), nil); got.verdict != want {
					t.Errorf("secret %d of %d and on: %s, not %s", id, first, got.verdict, want)
				}
			}
		}
	})
}

// forget ends all sessions.
func (r *rig) forget() {
	r.t.Helper()
	for _, table := range r.Tables() {
		if err := abi.WriteTable(table, map[bpf.AgentSessionKey]bpf.AgentSession{}); err != nil {
			r.t.Fatal(err)
		}
	}
}

// TestAutoDropsAfterCookies hands on what it does not know until a right cookie has come.
func TestAutoDropsAfterCookies(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	b := beginNow(newHandshake(4, "interface", aligned), everything)
	stray := b.ack(numbers(5, 7), from("198.51.100.9:40000"), func(p *pkt.Packet) { p.Options = nil })
	r.inside(func() {
		want := delivered(stray, interface4)
		r.check("before", inbound(stray, "deliver_interface", &want))
		r.forget()
		syn := b.syn()
		r.check("cookie", inbound(b.ack(), "syncookie_interface", &syn))
		if got := r.run("from_uplink", stray.Frame(), nil); got.verdict != "drop_syncookie_invalid" && got.verdict != "drop_syncookie_expired" {
			t.Errorf("after a cookie a stray segment is %s", got.verdict)
		}
		reset := stray.With(func(p *pkt.Packet) { p.Flags = pkt.RST })
		want = delivered(reset, interface4)
		r.check("a reset", inbound(reset, "deliver_interface", &want))
	})
}

// TestNeverTakesNone leaves endpoints alone that have no cookies.
func TestNeverTakesNone(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesNever)
	b := beginNow(newHandshake(4, "interface", aligned), everything)
	want := delivered(b.ack(), interface4, func(p *pkt.Packet) { p.Options = nil }).With(aligned(pkt.Timestamps(clientTSval, 0))...).With(noNOP)
	r.check("cookie", inbound(b.ack(), "deliver_interface", &want))
}

// TestEarlySegments come while the workload has not answered: data waits, the cookie asks again, and a
// connection that the workload remembers from before is reset.
func TestEarlySegments(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	for _, family := range []int{4, 6} {
		b := beginNow(newHandshake(family, "interface", aligned), everything)
		steps := b.opened()
		data := b.ack(pkt.Payload([]byte("data with the cookie")))
		r.check("cookie", steps[0])
		r.check("more data", inbound(b.ack(numbers(clientISN+21, b.cookie+1)), "drop_syncookie_pending", nil))
		syn := b.syn()
		r.check("data again", inbound(data, "syncookie_interface", &syn))
		challenge := b.answer(pkt.ACK, 77, 99)
		reset := challenge.With(func(p *pkt.Packet) {
			p.Source, p.Destination = p.Destination, p.Source
			p.IP.Source, p.IP.Destination = p.IP.Destination, p.IP.Source
			p.SourcePort, p.DestinationPort = p.DestinationPort, p.SourcePort
			p.Flags = pkt.RST
		}, numbers(99, 0))
		r.check("an old connection", outbound("from_workload", challenge, "syncookie_answer", &reset))
		r.check("cookie again", steps[0])
		r.check("SYN/ACK", steps[1])
		r.check("SYN/ACK again", steps[1])
		r.check("data", b.fromClient(clientISN+1, 1, clientTSval, b.tsval, tsval0, pkt.Payload([]byte("data with the cookie"))))
	}
}

// TestSYNsAnsweredTwice has the workload answer a SYN, and then a mux the same one, which the client has sent again:
// the client goes by the answer that it got, whichever that is.
func TestSYNsAnsweredTwice(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	r.inside(func() {
		for _, family := range []int{4, 6} {
			for _, kind := range []string{"native", "interface"} {
				what := fmt.Sprintf("v%d %s", family, kind)
				b := beginNow(newHandshake(family, kind, aligned), everything)
				syn := b.ack(func(p *pkt.Packet) { p.Flags = pkt.SYN; p.Options = nil }, numbers(clientISN, 0))
				deliver, reply := b.verdict("deliver_native", "deliver_interface"), b.verdict("reply_native", "reply_uplink")
				answered := func() {
					t.Helper()
					r.forget()
					if got := r.verdict("from_uplink", syn); got != deliver {
						t.Fatalf("%s: the SYN is %s", what, got)
					}
					if got := r.verdict(b.sends(), b.synAck()); got != reply {
						t.Fatalf("%s: the workload's answer is %s", what, got)
					}
				}
				answered()
				r.goThrough(what+", by the mux's answer", b)
				answered()
				if got := r.verdict("from_uplink", b.ack(numbers(clientISN+1, workloadISN+1))); got != deliver {
					t.Errorf("%s: by the workload's answer, the client's segment is %s", what, got)
				}
			}
		}
	})
}

// TestEarlySessionsStayWhereTheyAre has a segment of the client come while another CPU notes the workload's
// SYN/ACK: what that learns must not be of a row that is gone.
func TestEarlySessionsStayWhereTheyAre(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	b := beginNow(newHandshake(4, "interface", aligned), everything)
	steps := b.opened()
	r.check("cookie", steps[0])
	r.setEvents(func(e bpf.AgentSessionEvent) bpf.AgentSessionEvent {
		return e | bpf.AgentSessionEventSESSION_WORKLOAD_ANSWER
	})
	r.check("cookie again", steps[0])
	if rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.Sessions); err != nil || len(rows) != 0 {
		t.Errorf("%d sessions have moved (%v)", len(rows), err)
	}
	r.check("SYN/ACK", steps[1])
	r.check("data", b.fromClient(clientISN+1, 1, clientTSval, b.tsval, tsval0, pkt.Payload([]byte("data"))))
	if rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](r.objects.Sessions); err != nil || len(rows) != 1 {
		t.Errorf("%d sessions have moved behind the handshake (%v)", len(rows), err)
	}
}

// TestWorkloadRefuses brings the client a reset that it believes, each time that it asks.
func TestWorkloadRefuses(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	for _, family := range []int{4, 6} {
		b := beginNow(newHandshake(family, "interface", aligned), everything)
		_, vip, _ := b.ends()
		for range 2 {
			r.check("cookie", b.opened()[0])
			refusal := b.answer(pkt.RST|pkt.ACK, 0, clientISN+1)
			want := refusal.With(from(vip), numbers(b.cookie+1, clientISN+1))
			r.check("refusal", outbound("from_workload", refusal, "reply_uplink", &want))
		}
	}
}

// TestCookiesOfWhatIsOver brings the cookie of a connection again after its end.
func TestCookiesOfWhatIsOver(t *testing.T) {
	r := newRig(t)
	r.withSYNCookies(model.SYNCookiesAuto)
	b := beginNow(newHandshake(4, "interface", aligned), everything)
	for i, s := range b.opened() {
		r.check(fmt.Sprintf("step %d", i), s)
	}
	r.check("data", b.fromClient(clientISN+1, 1, clientTSval, b.tsval, tsval0))
	r.quick("from_uplink", b.ack(numbers(77, 88), func(p *pkt.Packet) { p.Flags = pkt.RST }).Frame())
	r.check("data, with the cookie, after a forged reset", b.fromClient(clientISN+1, 1, clientTSval, b.tsval, tsval0))
	r.check("the workload resets", b.fromWorkload(pkt.RST, 1, 0, tsval0, b.tellsAs(tsval0)))
	r.check("cookie again", inbound(b.ack(), "drop_syncookie_replayed", nil))

	r.forget()
	for i, s := range b.opened() {
		r.check(fmt.Sprintf("step %d", i), s)
	}
	r.check("the client ends", b.fromClient(clientISN+1, 1, clientTSval, b.tsval, tsval0, func(p *pkt.Packet) { p.Flags |= pkt.FIN }))
	r.check("the workload ends", b.fromWorkload(pkt.FIN|pkt.ACK, 1, clientISN+2, tsval0, b.tellsAs(tsval0)))
	r.check("the client ends again", b.fromClient(clientISN+1, 1, clientTSval, b.tsval, tsval0, func(p *pkt.Packet) { p.Flags |= pkt.FIN }))
	r.check("SYN", b.in(pkt.SYN, clientTSval, 0, 0))
	if got := r.run("from_uplink", b.ack(numbers(77, 88)).Frame(), nil); got.verdict != "deliver_interface" {
		t.Errorf("in a connection that begins by a SYN a stray segment is %s", got.verdict)
	}
	r.check("SYN/ACK", b.out(pkt.SYN|pkt.ACK, tsval0, told(tsval0), clientTSval))
}
