package xdp

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/hardware/drivertest"
	"github.com/weirlb/weir/internal/pkt"
)

// tips holds the switch to what it does with packets to TIPs: what comes out is as if the packet inside had come.
func (w *world) tips() {
	for tip, vip := range map[string]netip.Addr{"203.0.113.200": vip44, "203.0.113.201": vip64, "2001:db8:7::c8": vip46, "2001:db8:7::c9": vip66} {
		e := hardware.Entry{VIP: netip.MustParseAddr(tip), Inner: netip.MustParseAddr("203.0.113.77"), Source: drivertest.Source(false)}
		e.Members = []hardware.Member{{Tunnel: drivertest.Tunnel(false, 3), Entries: 1}}
		w.must(w.driver.Program(w.Context(), e))
		whole, _ := w.driver.tables.inventory.Get(vip)
		e.Inner, e.Source, e.Members, e.Sources = vip, whole.Source, whole.Members, []netip.Addr{drivertest.Source(e.VIP.Is6())}
		w.must(w.driver.Program(w.Context(), e))
		outer := pkt.IP{Source: drivertest.Source(e.VIP.Is6()), Destination: e.VIP, TTL: 9}
		for name, p := range packets(vip) {
			action, out := w.run(p.Inside(outer).Frame(), "forward")
			if action != xdpRedirect {
				w.Fatalf("%s in %s: action %d, want that it is redirected", name, tip, action)
			}
			if got, want := w.inside(out, p, w.mac(true), w.mac(false)), w.expected(p); got != want {
				w.Errorf("%s in %s went to %s, want %s", name, tip, got, want)
			}
		}
		stranger := outer
		stranger.Source = drivertest.Tunnel(e.VIP.Is6(), 9)
		if action, _ := w.run(packets(vip)["segment"].Inside(stranger).Frame(), "drop_tip_source"); action != xdpDrop {
			w.Errorf("a packet of a stranger to %s: action %d, want that it is dropped", tip, action)
		}
		w.tipDrops(packets(vip)["segment"], outer)
		w.tipCongestion(packets(vip)["segment"], outer)
	}
}

// tipDrops: nothing that can't go on is left to the kernel, which would have it come back.
func (w *world) tipDrops(p pkt.Packet, outer pkt.IP) {
	drop := func(what string, frame []byte) {
		w.Helper()
		if action, _ := w.run(frame, "drop_tip"); action != xdpDrop {
			w.Errorf("%s: action %d, want that it is dropped", what, action)
		}
	}
	other := vip44
	if p.IP.Destination.Is6() {
		other = vip66
	}
	if other == p.IP.Destination {
		other = other.Prev()
	}
	drop("for another VIP", p.With(func(p *pkt.Packet) { p.IP.Destination = other }).Inside(outer).Frame())
	drop("the last hop", p.With(func(p *pkt.Packet) { p.IP.TTL = 1 }).Inside(outer).Frame())
	if outer.Destination.Is4() == p.IP.Destination.Is4() {
		drop("for the TIP", p.With(func(p *pkt.Packet) { p.IP.Destination = outer.Destination }).Inside(outer).Frame())
	}
	plain := pkt.UDP("198.51.100.7:4000", "203.0.113.4:80")
	if outer.Destination.Is6() {
		plain = pkt.UDP("[2001:db8:c::7]:4000", "[2001:db8:7::4]:80")
	}
	drop("in no header", plain.With(func(p *pkt.Packet) { p.IP.Destination = outer.Destination }).Frame())
	frame := p.Inside(outer).Frame()
	at := p.L3() + 20
	if outer.Destination.Is6() {
		at += 20
	}
	frame[at] = 0x31 // no version of IP
	drop("nothing of IP", frame)
	empty := plain.With(func(p *pkt.Packet) {
		p.IP.Source, p.IP.Destination, p.Protocol = outer.Source, outer.Destination, 4
	}, pkt.Payload(nil)).Frame()
	drop("a header with little behind it", empty)
	if outer.Destination.Is4() { // its length is less than what is inside says
		first := p.Inside(outer).Frame()[:at+200]
		binary.BigEndian.PutUint16(first[p.L3()+2:], uint16(len(first)-p.L3()))
		first[p.L3()+6] |= 0x20
		drop("the first fragment", first)
	}
}

// tipCongestion: what a router marked on the way to the TIP is marked on the way from it.
func (w *world) tipCongestion(p pkt.Packet, outer pkt.IP) {
	outer.TOS = 3
	for inner, want := range map[uint8]uint8{0: 0, 1: 3, 2: 3, 3: 3, 0xb8: 0xb8, 0xba: 0xbb} {
		_, out := w.run(p.With(pkt.TOS(inner)).Inside(outer).Frame(), "forward")
		got, err := pkt.Decode(out)
		w.must(err)
		if got.Outer == nil || got.Outer.TOS != want || got.IP.TOS != inner {
			w.Errorf("of %#x, marked on the way, came %+v around %+v", inner, got.Outer, got.IP)
		}
	}
}
