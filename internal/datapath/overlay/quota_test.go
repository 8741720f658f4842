package overlay

import (
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/pkt"
)

// counts fails unless tenants 0 and 1 have so many rows, and tenant 1 so many half-open ones.
func (r *rig) counts(borrowed, rows, halfOpen int) {
	r.t.Helper()
	all, one := r.Usage(0), r.Usage(1)
	if all.Rows != borrowed || one.Rows != rows || one.HalfOpen != halfOpen {
		r.t.Errorf("borrowed %d, of tenant 1 %d rows, %d half-open; want %d, %d, %d",
			all.Rows, one.Rows, one.HalfOpen, borrowed, rows, halfOpen)
	}
}

// open has a client's SYN taken, and the connection confirmed if it is to be. The client's port is 40000 and n.
func (r *rig) open(n uint16, confirmed bool) {
	r.t.Helper()
	port := func(p *pkt.Packet) { p.SourcePort += n }
	syn := r.decode(r.run(r.objects.FromUnderlay, r.fromMux(r.segment(pkt.SYN, 1000, 0, port), 7, r.key), "deliver_native", next))
	if !confirmed {
		return
	}
	answer := pkt.TCP(r.dip, netip.AddrPortFrom(syn.IP.Source, syn.SourcePort).String(), pkt.SYN|pkt.ACK).
		With(func(p *pkt.Packet) { p.Seq, p.Ack = 5000, 1001 })
	r.run(r.objects.ToUnderlay, answer.Frame(), "reply", forward)
	ack := r.carry(r.segment(pkt.ACK, 1001, 5001, port), r.host)
	r.run(r.objects.FromUnderlay, ack, "deliver_native", next)
	r.run(r.objects.FromUnderlay, ack, "deliver_native", next) // counts once
}

func TestTenantsHaveQuotas(t *testing.T) {
	r := newRig(t, families()["v4 over v4"])
	refused := func(n uint16, verdict string) {
		t.Helper()
		syn := r.segment(pkt.SYN, 1000, 0, func(p *pkt.Packet) { p.SourcePort += n })
		r.run(r.objects.FromUnderlay, r.fromMux(syn, 7, r.key), verdict, drop)
	}
	r.open(0, false)
	r.open(1, false)
	r.counts(0, 2, 2)
	refused(2, "drop_half_open")
	r.must(r.SetTenant(1, 2, 4, 100), r.SetTenant(0, 1, 0, 0))
	r.open(2, true)
	r.counts(1, 3, 2)
	refused(3, "drop_quota") // all have borrowed one already
	r.counts(1, 3, 2)
	if got := r.Usage(1).Refused; got != 2 {
		t.Errorf("%d refused", got)
	}
	r.must(r.SetTenant(1, 1, 4, 100))
	r.counts(2, 3, 2)
	r.must(r.SetTenant(1, 3, 4, 100))
	r.counts(0, 3, 2)
}

// Rows that the sweep frees, or another connection takes, are counted down once, as what they were at their end.
func TestRowsThatEndAreCountedDown(t *testing.T) {
	r := newRig(t, families()["v4 over v4"])
	r.must(r.SetTenant(1, 1, 8, 8), r.SetTenant(0, 8, 0, 0))
	r.open(0, true)
	r.open(1, true)
	r.open(2, false)
	r.counts(2, 3, 1)
	reset := r.segment(pkt.RST, 1001, 0)
	r.run(r.objects.FromUnderlay, r.carry(reset, r.host), "deliver_native", next)
	var now uint32
	for s := range r.All() {
		now = s.Seen
	}
	r.Sweep(now+596, nil)
	r.counts(2, 3, 1)
	r.Sweep(now+700, nil)
	r.counts(1, 2, 1)
	r.Sweep(now+1800, nil)
	r.counts(0, 1, 0)

	// A SYN in a session that is over begins it anew, half-open.
	r.run(r.objects.FromUnderlay, r.carry(r.segment(pkt.RST, 1001, 0, func(p *pkt.Packet) { p.SourcePort++ }), r.host), "deliver_native", next)
	r.open(1, false)
	r.counts(0, 1, 1)
}

// Under a flood of SYNs the oldest half-open sessions make way, after a second, until half of them are left.
func TestOldestHalfOpenSessionsMakeWay(t *testing.T) {
	r := newRig(t, families()["v4 over v6"])
	r.must(r.SetTenant(1, 40, 40, 16))
	r.open(100, true)
	for n := range uint16(16) {
		r.open(n, false)
	}
	for s := range r.All() { // as if they had begun one after the other
		r.sets[s.Row/Ways].rows[s.Row%Ways].seen += uint32(s.Client.Port())
	}
	syn := r.segment(pkt.SYN, 1000, 0, func(p *pkt.Packet) { p.SourcePort += 50 })
	r.run(r.objects.FromUnderlay, r.fromMux(syn, 7, r.key), "drop_half_open", drop)
	now := r.now()
	if got := r.Sweep(now-100, nil); got.Dropped != 0 {
		t.Errorf("%d were dropped within their second", got.Dropped)
	}
	if got := r.Sweep(now+61, nil); got.Dropped != 8 {
		t.Errorf("%d were dropped", got.Dropped)
	}
	for s := range r.All() {
		if s.Client.Port() < 40008 {
			t.Errorf("the session of port %d was younger than others that were dropped", s.Client.Port())
		}
	}
	r.counts(0, 9, 8)
	r.run(r.objects.FromUnderlay, r.fromMux(syn, 7, r.key), "deliver_native", next)
}

// What a process has left wrong is mended by the next one.
func TestCountsAreMended(t *testing.T) {
	r := newRig(t, families()["v4 over v4"])
	r.must(r.SetTenant(1, 1, 8, 8), r.SetTenant(0, 8, 0, 0))
	r.open(0, true)
	r.open(1, false)
	for s := range r.All() {
		r.Free(s) // and not counted down
		break
	}
	r.Recount()
	r.counts(0, 1, r.Usage(1).HalfOpen)
	halfOpen := 0
	for s := range r.All() {
		if s.Events&ClientACK == 0 {
			halfOpen++
		}
	}
	r.counts(0, 1, halfOpen)
}

func TestTrafficIsCounted(t *testing.T) {
	r := newRig(t, families()["v6 over v6"])
	r.open(0, true)
	r.run(r.objects.FromUnderlay, r.carry(r.segment(pkt.ACK, 1, 1, func(p *pkt.Packet) { p.SourcePort = 9 }), r.host), "reset_client", forward)
	got, err := r.Traffic(1)
	if err != nil || got.In.Packets != 3 || got.Out.Packets != 1 || got.Opened != 1 || got.Confirmed != 1 || got.Resets != 1 || got.Refused != 0 {
		t.Errorf("traffic %+v, %v", got, err)
	}
	if got.In.Bytes == 0 || got.Out.Bytes == 0 {
		t.Errorf("no bytes: %+v", got)
	}
}
