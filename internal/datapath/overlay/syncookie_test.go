package overlay

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
	"github.com/weirlb/weir/internal/syncookie"
)

var synSecrets = []model.SYNSecret{
	{ID: 4, Secret: [16]byte{4, 15: 1}}, {ID: 5, Secret: [16]byte{5, 15: 1}}, {ID: 6, Secret: [16]byte{6, 15: 1}},
}

// clientISN is the number of the client's SYN, serverISN of the server's.
const clientISN, serverISN = 1000, 0xffffff00

// newCookieRig is a host whose muxes may answer SYNs; its server is behind the interface, or on the host itself with 0.
func newCookieRig(t *testing.T, f family, ifindex uint32) *rig {
	t.Helper()
	r := newRig(t, f)
	r.must(r.SetSYNSecrets(synSecrets), r.setRule(ifindex, true))
	return r
}

func (r *rig) setRule(ifindex uint32, cookies bool) error {
	return r.SetRules(map[uint32]Rule{1: {
		Service: netip.MustParseAddrPort(r.service), Tunnel: netip.MustParseAddr(r.tunnel), Backend: netip.MustParseAddrPort(r.dip),
		Ifindex: ifindex, SYNCookies: cookies,
	}})
}

// cookie is what a mux answers to the client's SYN.
func (r *rig) cookie(isn, vni uint32, secret model.SYNSecret, at time.Time) uint32 {
	flow := syncookie.Flow{Client: netip.MustParseAddrPort(r.client), VIP: netip.MustParseAddrPort(r.vip), ISN: isn, VNI: vni}
	return syncookie.Make(secret, flow, syncookie.Offer{MSS: 1394, Scale: syncookie.NoScale}, at)
}

// rightCookie is one that the host takes.
func (r *rig) rightCookie(isn uint32) uint32 {
	return r.cookie(isn, testVNI, synSecrets[1], time.Now())
}

// acknowledges is the client's first segment after a cookie.
func (r *rig) acknowledges(isn, cookie uint32, changes ...func(*pkt.Packet)) []byte {
	return r.fromMux(r.segment(pkt.ACK, isn+1, cookie+1, changes...), 7, r.key)
}

// wants checks flags, numbers and the length of a segment's data.
func (r *rig) wants(what string, p pkt.Packet, flags pkt.Flags, seq, ack uint32, data int) {
	r.t.Helper()
	if p.Flags != flags || p.Seq != seq || p.Ack != ack || len(p.Payload) != data {
		r.t.Errorf("%s: flags %v, numbers %d and %d, %d bytes, want %v, %d and %d, %d", what, p.Flags, p.Seq, p.Ack, len(p.Payload), flags, seq, ack, data)
	}
}

// fromServer is a segment to the session's local address.
func (r *rig) fromServer(flags pkt.Flags, seq, ack uint32, changes ...func(*pkt.Packet)) []byte {
	r.t.Helper()
	s, err := r.session()
	if err != nil {
		r.t.Fatal(err)
	}
	p := pkt.TCP(r.dip, r.Local(s).String(), flags, changes...)
	p.Seq, p.Ack = seq, ack
	return p.Frame()
}

// A client that a mux has answered by a cookie: the server gets its SYN, and numbers are translated from then on.
func TestACookieBeginsASession(t *testing.T) {
	for name, f := range families() {
		for ifindex, verdicts := range map[uint32][3]string{
			0: {"syncookie_native", "syncookie_answer_host", "deliver_native"},
			1: {"syncookie_interface", "syncookie_answer", "deliver_interface"},
		} {
			t.Run(name+" "+verdicts[0], func(t *testing.T) {
				r := newCookieRig(t, f, ifindex)
				cookie, toServer, toClient := r.rightCookie(clientISN), next, r.objects.ToUnderlay
				if ifindex != 0 {
					toServer, toClient = forward, r.objects.FromServer
				}
				data := pkt.Payload([]byte("hello"))
				for range 2 { // the second time the server is asked again
					syn := r.decode(r.run(r.objects.FromUnderlay, r.acknowledges(clientISN, cookie, data), verdicts[0], toServer))
					r.wants("SYN", syn, pkt.SYN, clientISN, 0, 0)
					r.checkSYN(syn)
				}
				r.counts(0, 1, 1)
				r.run(r.objects.FromUnderlay, r.acknowledges(clientISN+5, cookie, data), "drop_syncookie_pending", drop)
				r.run(r.objects.FromUnderlay, r.fromMux(r.segment(pkt.SYN, clientISN, 0), 7, r.key), "drop_syncookie_pending", drop)
				synACK := r.fromServer(pkt.SYN|pkt.ACK, serverISN, clientISN+1, pkt.MSS(1460), pkt.Payload(nil))
				for range 2 { // the acknowledgement is lost
					ack := r.decode(r.run(toClient, synACK, verdicts[1], forward))
					r.wants("ACK", ack, pkt.ACK, clientISN+1, serverISN+1, 0)
					if got := netip.AddrPortFrom(ack.IP.Destination, ack.DestinationPort).String(); got != f.dip {
						t.Errorf("the handshake is acknowledged to %s", got)
					}
				}
				r.counts(0, 1, 0)
				if s, _ := r.session(); s.Events != Proxied|ServerAnswer|ClientACK || s.ServerNext != cookie+1 || s.ClientNext != clientISN+1 {
					t.Errorf("session %+v", s)
				}
				r.checkTranslation(cookie, verdicts[2], toServer, toClient)
			})
		}
	}
}

// A client whose segments have no room for an FBT acknowledges a cookie as well: the mux names its host in a header of its own.
func TestACookieBehindABypassHeader(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newCookieRig(t, f, 0)
			ack := r.segment(pkt.ACK, clientISN+1, r.rightCookie(clientISN)+1, pkt.Payload([]byte("hello")))
			syn := r.decode(r.run(r.objects.FromUnderlay, r.headed(ack, 7, r.key), "syncookie_native", next))
			r.wants("SYN", syn, pkt.SYN, clientISN, 0, 0)
			r.checkSYN(syn)
		})
	}
}

// checkSYN wants the ends and options of the SYN that the server gets.
func (r *rig) checkSYN(syn pkt.Packet) {
	r.t.Helper()
	s, err := r.session()
	if err != nil || s.Host != 7 {
		r.t.Fatalf("session %+v, %v", s, err)
	}
	if got := netip.AddrPortFrom(syn.IP.Destination, syn.DestinationPort).String(); got != r.dip || netip.AddrPortFrom(syn.IP.Source, syn.SourcePort) != r.Local(s) {
		r.t.Errorf("the SYN is from %s to %s", syn.IP.Source, got)
	}
	mss := min(clamped(r.family)+16, 1360) // of the cookie's classes, and what has room
	if len(syn.Options) != 1 || syn.Options[0].OptionType != layers.TCPOptionKindMSS ||
		int(syn.Options[0].OptionData[0])<<8|int(syn.Options[0].OptionData[1]) != int(mss) {
		r.t.Errorf("options %v, want an MSS of %d", syn.Options, mss)
	}
}

// checkTranslation sends data both ways, by a mux and straight.
func (r *rig) checkTranslation(cookie uint32, delivered string, toServer uint32, program *ebpf.Program) {
	r.t.Helper()
	data := pkt.Payload([]byte("hello"))
	in := r.segment(pkt.ACK|pkt.PSH, clientISN+1, cookie+1, data)
	for _, frame := range [][]byte{r.fromMux(in, 7, r.key), r.carry(in, r.host)} {
		got := r.decode(r.run(r.objects.FromUnderlay, frame, delivered, toServer))
		r.wants("data", got, pkt.ACK|pkt.PSH, clientISN+1, serverISN+1, 5)
	}
	out := r.run(program, r.fromServer(pkt.ACK, serverISN+1, clientISN+6, data), "reply", forward)
	v, p, err := pkt.DecodeVXLAN(out)
	if err != nil || v.Outer.Destination.String() != r.host {
		r.t.Fatalf("answer in %+v, %v", v, err)
	}
	r.wants("answer", p, pkt.ACK, cookie+1, clientISN+6, 5)
	_, p, err = pkt.DecodeVXLAN(r.run(program, r.fromServer(pkt.RST|pkt.ACK, serverISN+6, clientISN+6, pkt.Payload(nil)), "reply", forward))
	if err != nil {
		r.t.Fatal(err)
	}
	r.wants("reset", p, pkt.RST|pkt.ACK, cookie+6, clientISN+6, 0)
}

// What is no right cookie of this network, connection and time begins nothing: it is a segment of no session.
func TestWrongCookiesBeginNothing(t *testing.T) {
	now, right := time.Now(), synSecrets[1]
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newCookieRig(t, f, 0)
			refused := func(what string, frame []byte) {
				t.Helper()
				r.run(r.objects.FromUnderlay, frame, "reset_client", forward)
				if s, err := r.session(); err == nil {
					t.Fatalf("%s began %+v", what, s)
				}
			}
			cookie := r.rightCookie(clientISN)
			for bit := range 25 {
				refused("a forged cookie", r.acknowledges(clientISN, cookie^1<<(31-bit)))
			}
			refused("a cookie of another network", r.acknowledges(clientISN, r.cookie(clientISN, 200, right, now)))
			refused("a cookie of no network", r.acknowledges(clientISN, r.cookie(clientISN, 0, right, now)))
			refused("a cookie of another number", r.acknowledges(clientISN+1, cookie))
			refused("an old cookie", r.acknowledges(clientISN, r.cookie(clientISN, testVNI, right, now.Add(-2*syncookie.Tick))))
			refused("a cookie of an old secret", r.acknowledges(clientISN, r.cookie(clientISN, testVNI, model.SYNSecret{ID: 3, Secret: right.Secret}, now)))
			refused("a cookie of another secret", r.acknowledges(clientISN, r.cookie(clientISN, testVNI, model.SYNSecret{ID: 5, Secret: [16]byte{9}}, now)))
			refused("a cookie past the muxes", r.carry(r.segment(pkt.ACK, clientISN+1, cookie+1), f.host))
			r.must(r.setRule(0, false))
			refused("a cookie for an endpoint that has none", r.acknowledges(clientISN, cookie))
			r.must(r.setRule(0, true), r.SetSYNSecrets(nil))
			refused("a cookie without secrets", r.acknowledges(clientISN, cookie))
			r.must(r.SetSYNSecrets(synSecrets))
			r.run(r.objects.FromUnderlay, r.acknowledges(clientISN, cookie), "syncookie_native", next)
		})
	}
}

// The segment of a session that is over does not begin it once more; a later connection from the same port begins.
func TestAReplayedCookieIsRefused(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newCookieRig(t, f, 0)
			ack := r.acknowledges(clientISN, r.rightCookie(clientISN))
			r.run(r.objects.FromUnderlay, ack, "syncookie_native", next)
			r.run(r.objects.ToUnderlay, r.fromServer(pkt.SYN|pkt.ACK, serverISN, clientISN+1, pkt.Payload(nil)), "syncookie_answer_host", forward)
			r.run(r.objects.FromUnderlay, r.carry(r.segment(pkt.RST, clientISN+1, 0), f.host), "deliver_native", next)
			r.run(r.objects.FromUnderlay, ack, "drop_syncookie_replayed", drop)
			const later = clientISN + 100000
			syn := r.decode(r.run(r.objects.FromUnderlay, r.acknowledges(later, r.rightCookie(later)), "syncookie_native", next))
			r.wants("SYN of the next connection", syn, pkt.SYN, later, 0, 0)
			r.counts(0, 1, 1)
		})
	}
}

// A SYN was forwarded, sent again, and answered by a mux, whose answer the client got first: the server is asked again.
func TestACookieOvertakesTheServersAnswer(t *testing.T) {
	for _, answered := range []bool{false, true} {
		for name, f := range families() {
			t.Run(name, func(t *testing.T) {
				r := newCookieRig(t, f, 0)
				r.run(r.objects.FromUnderlay, r.fromMux(r.segment(pkt.SYN, clientISN, 0), 7, r.key), "deliver_native", next)
				synACK := r.fromServer(pkt.SYN|pkt.ACK, serverISN, clientISN+1, pkt.Payload(nil))
				if answered {
					r.run(r.objects.ToUnderlay, synACK, "reply", forward)
				}
				cookie := r.rightCookie(clientISN)
				r.run(r.objects.FromUnderlay, r.acknowledges(clientISN, cookie), "syncookie_native", next)
				r.counts(0, 1, 1)
				r.run(r.objects.ToUnderlay, synACK, "syncookie_answer_host", forward)
				got := r.decode(r.run(r.objects.FromUnderlay, r.acknowledges(clientISN, cookie), "deliver_native", next))
				r.wants("acknowledgement", got, pkt.ACK, clientISN+1, serverISN+1, len(got.Payload))
				r.counts(0, 1, 0)
			})
		}
	}
}

// What a server says instead of a SYN-ACK: a reset reaches the client with the number that it expects; all else is of a
// connection that was.
func TestAServerThatRefusesAHandshakeByProxy(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newCookieRig(t, f, 0)
			cookie := r.rightCookie(clientISN)
			r.run(r.objects.FromUnderlay, r.acknowledges(clientISN, cookie), "syncookie_native", next)
			for _, other := range [][]byte{
				r.fromServer(pkt.ACK, 77, 88), r.fromServer(pkt.SYN|pkt.ACK, 77, 88, pkt.Payload(nil)),
			} {
				got := r.decode(r.run(r.objects.ToUnderlay, other, "reset_server_native", forward))
				r.wants("reset of what was", got, pkt.RST, 88, 0, 0)
			}
			_, p, err := pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, r.fromServer(pkt.RST|pkt.ACK, 0, clientISN+1, pkt.Payload(nil)), "reply", forward))
			if err != nil {
				t.Fatal(err)
			}
			r.wants("reset", p, pkt.RST|pkt.ACK, cookie+1, clientISN+1, 0)
		})
	}
}

// Where all sessions of a tenant are used up, cookies are no way round that.
func TestCookiesCountAgainstTheQuota(t *testing.T) {
	f := families()["v4 over v4"]
	r := newCookieRig(t, f, 0)
	for i, want := range []string{"syncookie_native", "syncookie_native", "drop_half_open"} {
		r.client = strings.Replace(f.client, "40000", []string{"40000", "40001", "40002"}[i], 1)
		action := next
		if want == "drop_half_open" {
			action = drop
		}
		r.run(r.objects.FromUnderlay, r.acknowledges(clientISN, r.rightCookie(clientISN)), want, action)
	}
}
