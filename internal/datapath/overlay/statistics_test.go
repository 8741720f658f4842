package overlay

import (
	"net/netip"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/pkt"
)

// handshake is one of the client with that port above 40000, in steps.
type handshake struct {
	*rig
	port  func(*pkt.Packet)
	local string
}

func (r *rig) handshake(n uint16) *handshake {
	return &handshake{rig: r, port: func(p *pkt.Packet) { p.SourcePort += n }}
}

func (h *handshake) syn() {
	h.t.Helper()
	got := h.decode(h.run(h.objects.FromUnderlay, h.fromMux(h.segment(pkt.SYN, 1000, 0, h.port), 7, h.key), "deliver_native", next))
	h.local = netip.AddrPortFrom(got.IP.Source, got.SourcePort).String()
}

func (h *handshake) synACK() {
	h.t.Helper()
	p := pkt.TCP(h.dip, h.local, pkt.SYN|pkt.ACK).With(func(p *pkt.Packet) { p.Seq, p.Ack = 5000, 1001 })
	h.run(h.objects.ToUnderlay, p.Frame(), "reply", forward)
}

func (h *handshake) client(flags pkt.Flags, seq, ack uint32) {
	h.t.Helper()
	h.run(h.objects.FromUnderlay, h.carry(h.segment(flags, seq, ack, h.port), h.host), "deliver_native", next)
}

// counted has the rig's attachment and backend have counters, number 3.
func counted(t *testing.T, family string) *rig {
	t.Helper()
	r := newRig(t, families()[family])
	r.must(r.SetTenant(1, 8, 8, 8), r.ForgetBackend(3), r.SetBackends(map[Backend]uint32{{Attachment: 1, Rule: 1}: 3}))
	return r
}

func (r *rig) statistics() (BackendTraffic, Handshakes) {
	r.t.Helper()
	b, err := r.BackendTraffic(3)
	r.must(err)
	h, err := r.Handshakes(1)
	r.must(err)
	return b, h
}

// The RTT of a handshake lies between what the test's own clock says from inside and from outside of it.
func TestHandshakeRTTs(t *testing.T) {
	r := counted(t, "v4 over v4")
	var least, most time.Duration
	for n, wait := range []time.Duration{0, 3 * Tick} {
		h := r.handshake(uint16(n))
		h.syn()
		before := time.Now()
		h.synACK()
		after := time.Now()
		for time.Since(after) < wait {
			time.Sleep(time.Millisecond)
		}
		least += time.Since(after)
		h.client(pkt.ACK, 1001, 5001)
		most += time.Since(before)
		h.client(pkt.ACK, 1001, 5001) // is none of the handshake
	}
	_, got := r.statistics()
	if got.Count() != 2 || got.Sum < least-2*256 || got.Sum > most+2*256 {
		t.Errorf("RTTs of %s altogether in %v, want %s to %s", got.Sum, got.Buckets, least, most)
	}
	slow := uint64(0)
	for bucket := range got.Buckets {
		if RTTBound(bucket) > 3*Tick {
			slow += got.Buckets[bucket]
		}
	}
	if slow == 0 {
		t.Errorf("none took 50 ms: %v", got.Buckets)
	}
}

// Of a segment that was sent again nobody knows which one is answered (Karn).
func TestRepeatedHandshakesHaveNoRTT(t *testing.T) {
	r := counted(t, "v6 over v4")
	again := r.handshake(0)
	again.syn()
	again.syn()
	again.synACK()
	again.synACK()
	again.client(pkt.ACK, 1001, 5001)
	late := r.handshake(1)
	late.syn()
	late.synACK()
	late.syn()
	late.client(pkt.ACK, 1001, 5001)
	b, h := r.statistics()
	if h.Count() != 0 || b.Confirmed != 2 || b.Repeated != 2 {
		t.Errorf("handshakes %+v, backend %+v", h, b)
	}
	clean := r.handshake(2)
	clean.syn()
	clean.syn() // its SYN-ACK is not sent yet
	clean.synACK()
	clean.client(pkt.ACK, 1001, 5001)
	if _, h := r.statistics(); h.Count() != 1 {
		t.Errorf("handshakes %+v", h)
	}
}

func TestTrafficIsCountedByBackend(t *testing.T) {
	r := counted(t, "v4 over v6")
	h := r.handshake(0)
	h.syn()
	h.synACK()
	h.client(pkt.ACK, 1001, 5001)
	h.client(pkt.RST, 1001, 0)
	h.client(pkt.RST, 1001, 0)
	r.handshake(1).syn()
	b, _ := r.statistics()
	whole, err := r.Traffic(1)
	r.must(err)
	if b.In != whole.In || b.Out != whole.Out || b.In.Packets != 5 || b.Out.Packets != 1 || b.Opened != 2 || b.Confirmed != 1 || b.Reset != 1 {
		t.Errorf("of the backend %+v, of the attachment %+v", b, whole)
	}

	r.must(r.SetTenant(1, 2, 2, 8)) // and has two
	refused := r.fromMux(r.segment(pkt.SYN, 1000, 0, func(p *pkt.Packet) { p.SourcePort += 2 }), 7, r.key)
	r.run(r.objects.FromUnderlay, refused, "drop_quota", drop)
	r.must(r.SetRules(nil)) // sessions of no backend are ended
	r.clean(r.now(), 8, map[End]int{Removed: 1})
	b, _ = r.statistics()
	if whole, err = r.Traffic(1); err != nil || b.Refused != 1 || whole.Refused != 1 || b.Cleaned != 1 || b.Opened != 2 {
		t.Errorf("of the backend %+v, of the attachment %+v, %v", b, whole, err)
	}
	r.must(r.ForgetBackend(3))
	if b, _ := r.statistics(); b != (BackendTraffic{}) {
		t.Errorf("forgotten, and still %+v", b)
	}
}

// What has no counters of its own is counted by attachment; what is detached has no handshakes.
func TestCountersFollowTheirPair(t *testing.T) {
	r := counted(t, "v6 over v6")
	r.must(r.SetBackends(map[Backend]uint32{{Attachment: 1, Rule: 2}: 3}))
	r.open(0, true)
	b, h := r.statistics()
	if whole, err := r.Traffic(1); err != nil || whole.Opened != 1 || b != (BackendTraffic{}) || h.Count() != 1 {
		t.Errorf("attachment %+v, backend %+v, handshakes %+v, %v", whole, b, h, err)
	}
	if got, err := r.Backends(); err != nil || len(got) != 1 || got[Backend{Attachment: 1, Rule: 2}] != 3 {
		t.Errorf("backends %v, %v", got, err)
	}
	attachments := r.Attachments()
	r.must(r.SetAttachments(nil))
	r.must(r.SetAttachments(attachments))
	if _, h := r.statistics(); h.Count() != 0 {
		t.Errorf("the number was another one's meanwhile: %+v", h)
	}
}
