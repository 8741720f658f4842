package overlay

import (
	"bytes"
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/fbt"
	"github.com/weirlb/weir/internal/pkt"
)

// Answers go by the muxes to a client on a host without an agent, whose own VXLAN device learns, and over IPv6 wants UDP's
// checksum; and to one on a host with an agent, which learns nothing, where the attachment is full NAT. No mux remembers
// anything: one that dies breaks no connection.
func TestAnswersGoByMuxes(t *testing.T) {
	const each = 6
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRealMuxes(t, "rel"+name[1:2]+name[len(name)-1:], fabricFamily(f))
			r.vxlan = "learning noudp6zerocsumrx"
			attachments := r.attachments()
			for number, a := range attachments {
				a.FullNAT, a.Relay = a.VNI == fabricTenants["bolt"], a.VNI == fabricTenants["acme"]
				attachments[number] = a
			}
			for _, m := range r.muxes {
				r.must(m.SetAttachments(attachments))
			}
			host, bare, bolt := r.connect("bhost", r.bare()), r.tenant("acme"), r.tenant("bolt")
			r.joinOverlay(host, r.bare(), "acme", bare)
			r.join(r.hosts["chost"], "bolt", bolt)
			r.listen(r.hosts["server"].ns, echo)
			var connections []*tenantConnection
			for i := range each {
				one, err := r.dialFrom(bare, fabricTenants["acme"], uint16(30000+i))
				other, failed := r.dialFrom(bolt, fabricTenants["bolt"], uint16(30000+i))
				r.must(err, failed)
				connections = append(connections, one, other)
			}
			r.all(connections, 8, 1000)
			r.relaysAll(2 * each)
			r.kill(1)
			r.ip(r.core, "ip route replace %s via %s", one(f.mux), muxAddresses[netip.MustParseAddr(f.mux).Is4()][0]) // as BGP does
			r.all(connections, 8, 1000)
			r.all(connections[:2], 2, 1<<20)
			r.relaysAll(0)
			r.noDrops()
		})
	}
}

// relaysAll holds that all packets pass the muxes, both ways, and so many at least.
func (r *realMuxes) relaysAll(least uint64) {
	r.Helper()
	forwarded, dropped := r.seen()
	relayed := uint64(0)
	for _, m := range r.muxes {
		verdicts, err := m.Verdicts()
		r.must(err)
		relayed += verdicts["relay_answer"].Packets
	}
	if relayed < least || forwarded < least || len(dropped) != 0 {
		r.Errorf("muxes forwarded %d packets, relayed %d, dropped %v", forwarded, relayed, dropped)
	}
	for host, straight := range map[string]string{"shost": "reply", "chost": "send_direct"} {
		verdicts, err := r.hosts[host].Verdicts()
		r.must(err)
		if n := verdicts[straight].Packets; n != 0 {
			r.Errorf("%s: %s of %d packets", host, straight, n)
		}
	}
	verdicts, err := r.hosts["shost"].Verdicts()
	r.must(err)
	if n := verdicts["reply_by_mux"].Packets; n < least {
		r.Errorf("the server's host answered by muxes %d times", n)
	}
}

// answerOf is what the host says of an answer to the rig's first client.
func (r *rig) answerOf() fbt.Answer {
	return fbt.Answer{
		VNI: testVNI, Host: 7, Client: netip.MustParseAddrPort(r.client), VIP: netip.MustParseAddrPort(r.vip),
		ClientMAC: r.segment(pkt.ACK, 0, 0).Source,
	}
}

// A session whose last FBT says so is answered by the muxes: segments, what does not fit, and resets. Once its VIP is detached
// the muxes send nothing on, so its reset goes straight.
func TestASessionIsAnsweredByMuxes(t *testing.T) {
	for name, f := range families() {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, f)
			muxes := map[bool]string{true: "10.0.0.99", false: "fd00::99"}[netip.MustParseAddr(f.tunnel).Is4()]
			rule := r.rules[1]
			rule.IdleTimeout = time.Minute
			r.must(
				r.SetRules(map[uint32]Rule{1: rule}), r.SetTenant(1, 10, 10, 10),
				r.SetUnderlay(Underlay{Own4: at(f.tunnel, true), Own6: at(f.tunnel, false), Mux4: at(muxes, true), Mux6: at(muxes, false)}))
			r.open(0, true)
			via := func(seq uint32) []byte {
				p := r.segment(pkt.ACK, seq, 5001)
				option := fbt.Encode(r.key, fbt.Segment{
					Outer: netip.MustParseAddr(r.tunnel), Seq: p.Seq,
					Client: netip.MustParseAddrPort(r.client), VIP: netip.MustParseAddrPort(r.vip),
				}, fbt.Content{VNI: testVNI, Number: 7, Via: true})
				return r.carry(p.With(func(p *pkt.Packet) { p.Options = append(fbtOption(option), p.Options...) }), r.mux)
			}
			r.run(r.objects.FromUnderlay, via(1001), "deliver_native", next)
			s, err := r.session()
			r.must(err)
			answer := pkt.TCP(f.dip, r.Local(s).String(), pkt.ACK).With(func(p *pkt.Packet) { p.Seq, p.Ack = 5001, 1001 })
			v, sent, err := pkt.DecodeVXLAN(r.run(r.objects.ToUnderlay, answer.Frame(), "reply_by_mux", forward))
			r.must(err)
			want := r.answerOf()
			if header := want.VXLAN(r.key); v.Outer.Source.String() != f.tunnel || v.Outer.Destination.String() != muxes ||
				sent.Source != want.MAC(r.key) || sent.Destination != want.ClientMAC || v.Reserved != [4]byte{header[1], header[2], header[3], header[7]} {
				t.Errorf("answered in %+v: %+v", v, sent)
			}
			large := answer.With(pkt.Payload(make([]byte, testConfig.MTU-70)))
			r.run(r.objects.ToUnderlay, large.Frame(), "answer_too_big_native", forward)

			later := r.now() + uint32(time.Minute/Tick) + 2
			for _, reset := range r.clean(later, 10, map[End]int{Idle: 1}) {
				mac := want.MAC(r.key)
				if reset.Host.String() != muxes || reset.Tunnel.String() != f.tunnel || !bytes.Equal(reset.ToClient[:8], want.VXLAN(r.key)) ||
					!bytes.Equal(reset.ToClient[14:20], mac[:]) {
					t.Errorf("reset in %x from %s to %s", reset.ToClient[:20], reset.Tunnel, reset.Host)
				}
			}
			r.run(r.objects.FromUnderlay, via(1001), "deliver_native", next)
			r.run(r.objects.ToUnderlay, answer.Frame(), "reply_by_mux", forward) // it goes on
			r.must(r.SetAttachments(nil))
			for _, reset := range r.clean(r.now()+1, 10, map[End]int{Detached: 1}) {
				if reset.Host.String() != f.host || reset.ToClient[7] != 0 {
					t.Errorf("detached: reset in %x to %s", reset.ToClient[:8], reset.Host)
				}
			}
		})
	}
}
