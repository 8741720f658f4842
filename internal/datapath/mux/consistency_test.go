package mux

import (
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// cookie is a TSecr that names the slot.
func cookie(slot model.Slot) uint32 { return 0x12345<<13 | uint32(slot) }

// stamped puts timestamps into a segment as Linux writes them, behind two paddings.
func stamped(slot model.Slot, others ...layers.TCPOption) func(*pkt.Packet) {
	return func(p *pkt.Packet) {
		pkt.NOP(2)(p)
		pkt.Timestamps(99, cookie(slot))(p)
		p.Options = append(p.Options, others...)
	}
}

// altered applies what becomes of the TCP endpoint of vip4, or of another.
func altered(edit func(*model.MuxEndpoint)) func(*testing.T, *Datapath) {
	return alteredOf(newEndpoint(vip4, model.TCP, tunnel4, second), edit)
}

func alteredOf(e model.MuxEndpoint, edit func(*model.MuxEndpoint)) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		edit(&e)
		apply(t, d, e)
	}
}

// allTo sends every bucket to a slot.
func allTo(e *model.MuxEndpoint, slot model.Slot) {
	for i := range e.Buckets {
		e.Buckets[i] = slot
	}
}

// moved sends every bucket to slot 1, and says that slot 2 was there before.
func movedFrom2(e *model.MuxEndpoint) {
	allTo(e, 1)
	e.Previous = make([]model.Slot, len(e.Buckets))
	for i := range e.Previous {
		e.Previous[i] = 2
	}
}

func withCookies(e *model.MuxEndpoint) {
	allTo(e, 1)
	e.Cookies = model.CookiesOn
}

// consistencyCases are the ways in which a packet finds its backend again.
func consistencyCases() []packetCase {
	cases := cookieCases()
	cases = append(cases, chainCases()...)
	crowded := func(t *testing.T, d *Datapath) {
		altered(func(e *model.MuxEndpoint) { allTo(e, 1); e.FlowLimit = 1 })(t, d)
		run(t, d, pkt.TCP("198.51.100.9:9", vip4, pkt.ACK).Frame())
	}
	return append(cases, packetCase{
		name: "no room", packet: pkt.TCP(client4, vip4, pkt.ACK), change: crowded,
		verdict: "forward_untracked", tunnel: tunnel4,
	})
}

func cookieCases() []packetCase {
	ack := func(changes ...func(*pkt.Packet)) pkt.Packet { return pkt.TCP(client4, vip4, pkt.ACK, changes...) }
	sack := layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionLength: 10, OptionData: make([]byte, 8)}
	with := func(edit func(*model.MuxEndpoint)) func(*testing.T, *Datapath) {
		return altered(func(e *model.MuxEndpoint) { withCookies(e); edit(e) })
	}
	nothing := func(*model.MuxEndpoint) {}
	settlingAfter := func(t *testing.T, d *Datapath) {
		altered(func(e *model.MuxEndpoint) { allTo(e, 1) })(t, d)
		remember(t, d)
		with(func(e *model.MuxEndpoint) { e.Cookies = model.CookiesSettling })(t, d)
	}
	return []packetCase{
		{name: "aligned", packet: ack(stamped(2)), change: with(nothing), verdict: "forward_cookie", tunnel: second},
		{name: "with SACK behind", packet: ack(stamped(2, sack)), change: with(nothing), verdict: "forward_cookie", tunnel: second},
		{name: "with SACK before", packet: ack(func(p *pkt.Packet) { p.Options = append(p.Options, sack) }, stamped(2)), change: with(nothing), verdict: "forward_cookie", tunnel: second},
		{name: "without padding", packet: ack(pkt.Timestamps(99, cookie(2))), change: with(nothing), verdict: "forward_cookie", tunnel: second},
		{name: "in a FIN", packet: pkt.TCP(client4, vip4, pkt.ACK|pkt.FIN, stamped(2)), change: with(nothing), verdict: "forward_cookie", tunnel: second},
		{name: "settling, not remembered", packet: ack(stamped(2)), change: with(func(e *model.MuxEndpoint) { e.Cookies = model.CookiesSettling }), verdict: "forward_cookie", tunnel: second},
		{name: "settling, remembered", packet: ack(stamped(2)), change: settlingAfter, verdict: "forward_flow", tunnel: tunnel4},
		{name: "not in a SYN", packet: pkt.TCP(client4, vip4, pkt.SYN, stamped(2)), change: with(nothing), verdict: "forward_syn", tunnel: tunnel4},
		{name: "not in a SYN and ACK", packet: pkt.TCP(client4, vip4, pkt.SYN|pkt.ACK, stamped(2)), change: with(nothing), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "not when off", packet: ack(stamped(2)), change: altered(func(e *model.MuxEndpoint) { allTo(e, 1) }), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "no timestamps", packet: ack(), change: with(nothing), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "no such slot", packet: ack(stamped(3)), change: with(nothing), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "slot beyond the slice", packet: ack(stamped(8191)), change: with(nothing), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "slot 0", packet: ack(stamped(0)), change: with(nothing), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "slot that is down", packet: ack(stamped(2)), change: with(func(e *model.MuxEndpoint) { e.Backends[1].Down = true }), verdict: "forward_bucket", tunnel: tunnel4},
	}
}

func chainCases() []packetCase {
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	mixed := newEndpoint(vip6, model.TCP, tunnel6, second)
	guePool := func(t *testing.T, d *Datapath) {
		p := testSettings()
		p.Encapsulation = pool.GUE
		if err := d.SetSettings(p); err != nil {
			t.Fatal(err)
		}
	}
	return []packetCase{
		{name: "not a SYN", packet: ack, change: altered(movedFrom2), verdict: "forward_chained", tunnel: tunnel4, gue: true, other: second},
		{name: "two VLANs", packet: pkt.TCP(client4, vip4, pkt.ACK, pkt.VLANs(5, 6)), change: altered(movedFrom2), verdict: "forward_chained", tunnel: tunnel4, gue: true, other: second},
		{name: "UDP in 4 names 6", packet: pkt.UDP(client4, vip4), change: alteredOf(newEndpoint(vip4, model.UDP, tunnel4, tunnel6), movedFrom2), verdict: "forward_chained", tunnel: tunnel4, gue: true, other: tunnel6},
		{name: "6 in 6 names 4", packet: pkt.TCP(client6, vip6, pkt.ACK, pkt.TOS(0xbb)), change: alteredOf(mixed, movedFrom2), verdict: "forward_chained", tunnel: tunnel6, gue: true, other: second},
		{name: "previous is down", packet: ack, change: altered(func(e *model.MuxEndpoint) { movedFrom2(e); e.Backends[1].Down = true }), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "previous is gone", packet: ack, change: altered(func(e *model.MuxEndpoint) { movedFrom2(e); e.Backends = e.Backends[:1] }), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "previous is the same", packet: ack, change: altered(func(e *model.MuxEndpoint) { movedFrom2(e); allTo(e, 2) }), verdict: "forward_bucket", tunnel: second},
		{name: "a SYN is plain", packet: pkt.TCP(client4, vip4, pkt.SYN), change: altered(movedFrom2), verdict: "forward_syn", tunnel: tunnel4},
		{name: "a cookie is plain", packet: pkt.TCP(client4, vip4, pkt.ACK, stamped(2)), change: altered(func(e *model.MuxEndpoint) { movedFrom2(e); e.Cookies = model.CookiesOn }), verdict: "forward_cookie", tunnel: second},
		{name: "GUE, 4 in 4", packet: pkt.TCP(client4, vip4, pkt.SYN), change: guePool, verdict: "forward_syn", tunnel: tunnel4, gue: true},
		{name: "GUE, 6 in 4", packet: pkt.UDP(client6, vip6, pkt.TOS(0x2e)), change: guePool, verdict: "forward_bucket", tunnel: tunnel4, gue: true},
		{name: "GUE, 4 in 6", packet: pkt.UDP(client4, vip4, pkt.VLANs(5)), change: guePool, verdict: "forward_bucket", tunnel: tunnel6, gue: true},
		{name: "GUE, 6 in 6", packet: pkt.TCP(client6, vip6, pkt.SYN), change: guePool, verdict: "forward_syn", tunnel: tunnel6, gue: true},
	}
}
