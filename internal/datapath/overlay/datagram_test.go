package overlay

import (
	"bytes"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

// newDatagramRig serves UDP where others serve TCP.
func newDatagramRig(t *testing.T, f family) *rig {
	t.Helper()
	r, addr, end := newRig(t, f), netip.MustParseAddr, netip.MustParseAddrPort
	r.must(r.SetRules(map[uint32]Rule{1: {
		Service: end(f.service), IsUDP: true, Tunnel: addr(f.tunnel), Backend: end(f.dip), IdleTimeout: time.Minute,
	}}))
	return r
}

// headed is a packet with a bypass header that names a host, from a mux.
func (r *rig) headed(p pkt.Packet, host uint32, key fbt.Key) []byte {
	of := fbt.Segment{
		Outer: netip.MustParseAddr(r.tunnel), Seq: p.Seq,
		Client: netip.AddrPortFrom(p.IP.Source, p.SourcePort), VIP: netip.AddrPortFrom(p.IP.Destination, p.DestinationPort),
	}
	header := fbt.EncodeHeader(key, uint8(p.Protocol), of, fbt.Content{VNI: testVNI, Number: host})
	return r.carried(pkt.InsertHeader(p.Frame(), fbt.HeaderProtocol, header[:]), testVNI, r.mux)
}

func (r *rig) carried(frame []byte, vni uint32, from string) []byte {
	v := pkt.VXLAN{VNI: vni, SourcePort: 50000, Outer: pkt.IP{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(r.tunnel), TTL: 64,
	}}
	return v.Carry(frame)
}

// A client's datagrams come by the mux, the answers go straight; then the session is idle and ends without a word.
func TestDatagramsAreAnsweredPastTheMux(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newDatagramRig(t, f)
			in := pkt.UDP(f.client, f.vip, pkt.Payload([]byte("question")))
			got := r.decode(r.run(r.objects.FromUnderlay, r.headed(in, 7, r.key), "deliver_native", next))
			if to := netip.AddrPortFrom(got.IP.Destination, got.DestinationPort).String(); to != f.dip || string(got.Payload) != "question" {
				t.Fatalf("delivered to %s: %q", to, got.Payload)
			}
			s, err := r.session()
			if err != nil || s.Events != UDP || s.Host != 7 || !s.isHalfOpen() {
				t.Fatalf("session %+v, %v", s, err)
			}
			var key [10]uint32
			r.must(r.objects.HashKey.Get(&key))
			if r.AnyOutOfPlace(int(testConfig.Sets), func(row Session) uint64 { return Hash(key, row) }) {
				t.Error("user space does not find the set that the program has put it in")
			}
			local := netip.AddrPortFrom(got.IP.Source, got.SourcePort).String()
			answer := pkt.UDP(f.dip, local, pkt.Payload([]byte("answer")))
			v, out, err := pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer.Frame(), "reply", forward))
			if err != nil || v.VNI != testVNI || v.Reserved != [4]byte{} || v.Outer.Destination.String() != f.host || out.Destination != in.Source {
				t.Fatalf("answered in %+v to %x, %v", v, out.Destination, err)
			}
			from := netip.AddrPortFrom(out.IP.Source, out.SourcePort).String()
			if from != f.vip || string(out.Payload) != "answer" {
				t.Errorf("answered by %s: %q", from, out.Payload)
			}
			if s, _ = r.session(); s.Events != UDP|ServerAnswer|ClientACK || s.isHalfOpen() {
				t.Errorf("session %+v", s)
			}
			r.counts(0, 1, 0)
			r.run(r.objects.FromUnderlay, r.headed(in, 8, r.key), "deliver_native", next)
			if s, _ = r.session(); s.Host != 8 {
				t.Errorf("the client has moved, its session says %+v", s)
			}
			ended, err := r.Clean(Now()+uint32(2*time.Minute/Tick), 10, nil, func(Resets) error {
				t.Error("a session of datagrams was reset")
				return nil
			})
			if err != nil || ended[Idle] != 1 {
				t.Errorf("ended %v, %v", ended, err)
			}
			r.run(r.objects.FromUnderlay, r.headed(in, 7, r.key), "deliver_native", next)
			if s, _ = r.session(); s.Events != UDP {
				t.Errorf("a datagram after the end began %+v", s)
			}
		})
	}
}

// A segment of TCP whose options leave no room for the FBT begins a connection as any other.
func TestSegmentsWithoutRoomForAnFBT(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			in := r.segment(pkt.SYN, 1000, 0, pkt.NOP(40), pkt.Payload(nil))
			got := r.decode(r.run(r.objects.FromUnderlay, r.headed(in, 7, r.key), "deliver_native", next))
			if to := netip.AddrPortFrom(got.IP.Destination, got.DestinationPort).String(); to != f.dip || got.Seq != 1000 {
				t.Fatalf("delivered %+v", got)
			}
			if s, err := r.session(); err != nil || s.Host != 7 || s.ClientNext != 1001 {
				t.Errorf("session %+v, %v", s, err)
			}
		})
	}
}

// local is the server's address of the one session.
func (r *rig) local(port uint16) string {
	s, err := r.session()
	if err != nil {
		r.t.Fatal(err)
	}
	return netip.AddrPortFrom(r.Local(s).Addr(), port).String()
}

// Errors about packets of a session get to whom they tell something, in the names that they know: TCP and UDP alike.
func TestErrorsOfSessions(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newDatagramRig(t, f)
			client, vip, dip := netip.MustParseAddrPort(f.client), netip.MustParseAddrPort(f.vip), netip.MustParseAddrPort(f.dip)
			question := pkt.UDP(f.client, f.vip)
			r.run(r.objects.FromUnderlay, r.headed(question, 7, r.key), "deliver_native", next)
			local := r.local(client.Port())

			of := pkt.Error(dip.Addr(), netip.MustParseAddrPort(local).Addr(), pkt.UDP(local, f.dip), 64)
			v, inside, err := pkt.OpenVXLAN(r.run(r.objects.ToUnderlay, of, "reply", forward))
			if err != nil || v.Outer.Destination.String() != f.host {
				t.Fatalf("sent in %+v, %v", v, err)
			}
			r.wantError(inside, vip.Addr(), client.Addr(), pkt.UDP(f.client, f.vip))

			router := netip.MustParseAddr("192.168.0.1")
			if !client.Addr().Is4() {
				router = netip.MustParseAddr("fd12::1")
			}
			next4or6, about := uint8(1), pkt.UDP(f.vip, f.client)
			if !client.Addr().Is4() {
				next4or6 = 58
			}
			header := fbt.EncodeHeader(r.key, next4or6, fbt.Segment{Outer: netip.MustParseAddr(f.tunnel), Client: client, VIP: vip}, fbt.Content{VNI: testVNI, Number: 7})
			in := pkt.InsertHeader(pkt.Error(router, vip.Addr(), about, 64), fbt.HeaderProtocol, header[:])
			out := r.run(r.objects.FromUnderlay, r.carried(in, testVNI, r.mux), "deliver_native", next)
			r.wantError(out, netip.MustParseAddrPort(local).Addr(), dip.Addr(), pkt.UDP(f.dip, local))
			r.run(r.objects.FromUnderlay, r.carried(in, testVNI, f.host), "drop_fbt_forged", drop)
			if s, _ := r.session(); s.Events != UDP {
				t.Errorf("an error has changed the session: %+v", s)
			}
		})
	}
}

// wantError wants an ICMP error from and to somebody about what that one has sent, with right checksums.
func (r *rig) wantError(frame []byte, from, to netip.Addr, about pkt.Packet) {
	r.t.Helper()
	want := pkt.Error(from, to, about, 64)
	if len(frame) < len(want) {
		r.t.Fatalf("%d bytes, want %d", len(frame), len(want))
	}
	frame = frame[:len(want)]
	// Of what is quoted the transport's checksum is the sender's.
	at := 14 + 20 + 8 + 20
	if !to.Is4() {
		at = 14 + 40 + 8 + 40
	}
	got, wanted := bytes.Clone(frame[14:at+4]), bytes.Clone(want[14:at+4])
	if !equalButChecksums(got, wanted, to.Is4()) {
		r.t.Errorf("error\n%x, want\n%x", got, wanted)
	}
}

// equalButChecksums compares headers without the checksum of ICMP, which covers what differs.
func equalButChecksums(a, b []byte, v4 bool) bool {
	at := 40 + 2
	if v4 {
		at = 20 + 2
	}
	a[at], a[at+1], b[at], b[at+1] = 0, 0, 0, 0
	return bytes.Equal(a, b)
}

// Fragments of a datagram reach the server, and those of its answer the client: later ones have no ports.
func TestFragmentsOfSessions(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newDatagramRig(t, f)
			client, vip := netip.MustParseAddrPort(f.client), netip.MustParseAddrPort(f.vip)
			for _, fragment := range []func(*pkt.Packet){pkt.Fragment(0, true), pkt.Fragment(800, false)} {
				p := pkt.UDP(f.client, f.vip, fragment, pkt.Payload(make([]byte, 80)))
				of := uint8(p.Protocol)
				if !client.Addr().Is4() {
					of = 44
				}
				header := fbt.EncodeHeader(r.key, of, fbt.Segment{Outer: netip.MustParseAddr(f.tunnel), Client: client, VIP: vip}, fbt.Content{VNI: testVNI, Number: 7})
				in := pkt.InsertHeader(p.Frame(), fbt.HeaderProtocol, header[:])
				got := r.decode(r.run(r.objects.FromUnderlay, r.carried(in, testVNI, r.mux), "deliver_native", next))
				if got.IP.Destination != netip.MustParseAddrPort(f.dip).Addr() || got.IP.FragmentOffset != p.IP.FragmentOffset {
					t.Errorf("delivered %+v", got.IP)
				}
				r.run(r.objects.FromUnderlay, r.carried(p.Frame(), testVNI, r.mux), "drop_inner_fragment", drop)
				answer := pkt.UDP(f.dip, r.local(client.Port()), fragment, pkt.Payload(make([]byte, 80)))
				_, out, err := pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer.Frame(), "reply", forward))
				if err != nil || out.IP.Source != vip.Addr() || out.IP.Destination != client.Addr() {
					t.Errorf("answered %+v, %v", out.IP, err)
				}
			}
			elsewhere := pkt.UDP(f.dip, r.local(client.Port()), pkt.Fragment(800, false)).With(func(p *pkt.Packet) { p.IP.Source = p.IP.Source.Next() })
			r.run(r.objects.ToUnderlay, elsewhere.Frame(), "drop_no_session", drop)
		})
	}
}

// Datagrams with a forged header, of a stranger, of another network, past the muxes, and such that are changed in any
// place: none is delivered.
func TestForgedDatagrams(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newDatagramRig(t, f)
			in, p := r.objects.FromUnderlay, pkt.UDP(f.client, f.vip)
			wrong := fbt.Key{Secret: [16]byte{4, 5, 6}, ID: r.key.ID}
			right := r.headed(p, 7, r.key)
			_, inside, err := pkt.OpenVXLAN(right)
			if err != nil {
				t.Fatal(err)
			}
			stranger := "10.7.7.7"
			if !netip.MustParseAddr(f.tunnel).Is4() {
				stranger = "fd07::7"
			}
			r.run(in, r.headed(p, 7, wrong), "drop_fbt_forged", drop)
			r.run(in, r.headed(p, 7, fbt.Key{Secret: r.key.Secret, ID: 6}), "drop_fbt_key", drop)
			r.run(in, r.headed(p, 0, r.key), "drop_fbt_host", drop)
			r.run(in, r.carried(inside, testVNI, stranger), "drop_not_a_vtep", drop)
			r.run(in, r.carried(inside, testVNI, f.host), "drop_fbt_forged", drop)
			r.run(in, r.carried(inside, testVNI+1, f.mux), "pass_not_ours", next)
			r.run(in, r.carried(p.Frame(), testVNI, f.mux), "drop_inner_other", drop)
			r.run(in, r.carried(p.Frame(), testVNI, f.host), "drop_inner_other", drop)
			rng := rand.New(rand.NewPCG(8, 8))
			at := bytes.Index(right, inside) + 14
			for range 3000 {
				frame := bytes.Clone(right)
				frame[at+rng.IntN(min(len(inside)-14, 40+fbt.Length+8))] ^= 1 << rng.IntN(8)
				got, err := in.Run(&ebpf.RunOptions{Data: frame})
				if err != nil {
					t.Fatal(err)
				}
				if s, err := r.session(); err == nil && netip.AddrPortFrom(p.IP.Source, p.SourcePort) != s.Client {
					t.Fatalf("action %d, and a session of %s was made:\n%x", got, s.Client, frame)
				}
			}
		})
	}
}
