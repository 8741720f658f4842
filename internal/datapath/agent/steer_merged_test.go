package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/pkt"
)

// TestMergedPacketsAreSteeredInIP leaves what the kernel must take apart again in IP alone, and takes it from a host of the
// VIP.
func TestMergedPacketsAreSteeredInIP(t *testing.T) {
	for _, w := range []struct {
		client, vip, own, dip, far string
		slot                       model.Slot
	}{
		{client4, vip4, native4, native4, farHost4, farSlot4},
		{client6, vip6, native4, native6, farHost4, farSlot4},
		{client4, vip4, native6, native4, farHost6, farSlot6},
		{client6, vip6, native6, native6, farHost6, farSlot6},
	} {
		r := newRig(t)
		e := heldEndpoint(model.TCP, w.vip, w.own)
		e.Buckets = slices.Repeat([]model.Slot{w.slot}, 256)
		r.steer(held(e))
		ack := pkt.TCP(w.client, w.vip, pkt.ACK, pkt.Payload(make([]byte, 200)))
		want := ack.Inside(hops(fromTo(w.own, w.far), hopsLast))
		r.check("leaves", step{program: "from_uplink", in: fromSwitch(ack, w.own, false), skb: gso(3, 100), verdict: "steered_bucket", want: &want})
		out := delivered(ack, w.dip)
		r.check("arrives", inbound(ack.Inside(hops(fromTo(w.far, w.own), hopsLast)), "deliver_native", &out)) // a test run can't take a merged one out
		// The bucket moved from a third host, of that family: the TTL says so.
		other, third := farHost4, model.Slot(farSlot4)
		if netip.MustParseAddr(w.own).Is6() {
			other, third = farHost6, farSlot6
		}
		e.Backends = append(e.Backends[:2:2], steering.Backend{Slot: 100, Tunnel: netip.MustParseAddr(native4)}, e.Backends[2])
		e.Buckets, e.Previous = slices.Repeat([]model.Slot{w.slot}, 256), slices.Repeat([]model.Slot{100}, 256)
		r.steer(held(e))
		want = ack.Inside(hops(fromTo(w.own, w.far), hopsQuery))
		r.check("leaves, of a bucket that moved", step{program: "from_uplink", in: fromSwitch(ack, w.own, false), skb: gso(3, 100), verdict: "steered_query", want: &want})
		// It is of a bucket that moved here, or that this host still takes for another's: it is unknown, and goes on once.
		for i, slots := range [][2]model.Slot{{backendSlot, third}, {third, 0}} {
			e.Buckets, e.Previous = slices.Repeat(slots[:1], 256), slices.Repeat(slots[1:], 256)
			r.steer(held(e))
			unknown := ack.With(func(p *pkt.Packet) { p.SourcePort += uint16(i + 1) })
			want = unknown.Inside(hops(fromTo(w.own, other), hopsLast))
			from := fromTo(otherHostOf(w.own), w.own)
			in := unknown.Inside(hops(from, hopsQuery-3)).Frame()
			r.check("goes on", step{program: "from_uplink", in: in, skb: gso(3, 100), verdict: "chain_on", want: &want})
			apart := r.run("from_uplink", in, nil) // the kernel took it apart: it goes on in GUE
			if p, err := pkt.Decode(apart.frame); err != nil || apart.verdict != "chain_on" || p.SourcePort < entropyFirst {
				t.Errorf("taken apart: verdict is %s, UDP source port %d (%v)", apart.verdict, p.SourcePort, err)
			}
			out = delivered(unknown, w.dip)
			r.check("goes on no further", inbound(unknown.Inside(hops(from, hopsLast-3)), "deliver_native", &out))
		}
	}
}

// TestMergedPacketsOfAnotherTunnelHere sends on what came to one tunnel of this host and is another one's: from that in its
// header.
func TestMergedPacketsOfAnotherTunnelHere(t *testing.T) {
	r := newRig(t)
	vip := r.holdByHost(model.TCP)
	leaves := func(what, verdict string, p pkt.Packet) {
		t.Helper()
		want := p.Inside(hops(fromTo(native4, farHost4), hopsLast))
		r.check(what, step{program: "from_uplink", in: fromSwitch(p, native4, false), skb: gso(3, 100), verdict: verdict, want: &want})
	}
	for port := range uint16(20) { // of either backend here, by the hash
		client := netip.AddrPortFrom(netip.MustParseAddr("198.51.100.7"), 2000+port)
		ack := pkt.TCP(client.String(), vip4, pkt.ACK, pkt.Payload(make([]byte, 200)))
		leaves("by host, of a far backend's", "steered_cookie", ack.With(pkt.Timestamps(1, 5<<13|farSlot4)))
	}
	vip.ByHost = false
	e := &vip.Endpoints[0]
	e.Buckets, e.Previous = slices.Repeat([]model.Slot{otherSlot}, 256), slices.Repeat([]model.Slot{farSlot4}, 256)
	r.steer(vip)
	leaves("of a bucket that moved to another tunnel here", "chain_on", pkt.TCP(client4, vip4, pkt.ACK, pkt.Payload(make([]byte, 200))))
}

// hopsQuery and hopsLast are what the TTL of a packet in IP is from host to host.
const hopsQuery, hopsLast = 64, 32

func hops(ip pkt.IP, ttl uint8) pkt.IP {
	ip.TTL = ttl
	return ip
}

// otherHostOf is a host of the VIP, of the tunnel's family.
func otherHostOf(tunnel string) string {
	if netip.MustParseAddr(tunnel).Is6() {
		return farHost6
	}
	return farHost4
}
