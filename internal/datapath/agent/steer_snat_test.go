package agent

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/model/steering"
	"github.com/weirlb/weir/internal/pkt"
)

// heldPorts is a VIP that switches hold and workloads leave as: those of one range behind a tunnel here, those of the next
// ranges on a far host.
func heldPorts(vip, tunnel, far string) steering.VIP {
	e := steering.Endpoint{
		Key: steering.Ports(netip.MustParseAddr(vip)), Buckets: make([]model.Slot, 8192), Cookies: model.CookiesOff,
		Backends: []steering.Backend{{Slot: 1, Tunnel: netip.MustParseAddr(tunnel)}, {Slot: 2, Tunnel: netip.MustParseAddr(far)}},
	}
	e.Buckets[firstRange], e.Buckets[firstRange+1] = 1, 2
	return held(e)
}

// TestAnswersToSourceNAT has a switch bring what answers workloads' own connections: it goes to the workload, here or on
// another host, whatever it is.
func TestAnswersToSourceNAT(t *testing.T) {
	for _, tunnel := range []string{native4, native6} {
		for _, w := range []struct {
			dip, crawler, remote, router string
			request, reply, unreachable  uint8
			at                           int
		}{
			{native4, crawler4, remote4, "192.0.2.1", echo4, 0, unreachable4, 20},
			{native6, crawler6, remote6, "2001:db8:9::1", echo6, 129, unreachable6, 40},
		} {
			r := snatRig(t)
			far := otherHostOf(tunnel)
			remote := netip.MustParseAddrPort(w.remote).Addr().String()
			out := r.leaves(w.dip, pkt.UDP(own(w.dip, 50000), w.remote))
			answer := replyTo(out, 0)
			ping := r.run("to_uplink", asFrame(echo(w.dip, remote, w.request, 77)), nil)
			id := binary.BigEndian.Uint16(ping.frame[ethernetHeader+w.at+4:])
			pong := echo(remote, w.crawler, w.reply, id)
			unreachable := message(w.router, w.crawler, w.unreachable, quote(out, 48))
			ip := answer.Frame()[ethernetHeader:]
			closed := func() {
				t.Helper()
				for _, ip := range [][]byte{ip, pong, unreachable} {
					r.check("nobody's port", step{program: "from_uplink", in: carriedBySwitch(ip, tunnel), verdict: "drop_steer_closed"})
				}
			}
			asks := heldPorts(w.crawler, tunnel, far)
			for _, ip := range [][]byte{ip, pong, unreachable} {
				r.check("no VIP is held", step{program: "from_uplink", in: carriedBySwitch(ip, tunnel), verdict: "drop_not_a_mux"})
			}
			r.steer(asks)
			for _, ip := range [][]byte{ip, pong, unreachable} {
				if got := r.run("from_uplink", carriedBySwitch(ip, tunnel), nil); got.verdict != "deliver_native" {
					t.Errorf("here: verdict is %s", got.verdict)
				}
			}
			asks.Endpoints[0].Buckets[firstRange] = 0
			r.steer(asks)
			closed()
			asks.Endpoints[0].Buckets[firstRange] = 2
			r.steer(asks)
			r.leavesSteered(carriedBySwitch(ip, tunnel), "steered_answer", steered(answer, tunnel, far, gue{}))
			for _, ip := range [][]byte{pong, unreachable} {
				got := r.run("from_uplink", carriedBySwitch(ip, tunnel), nil)
				if got.verdict != "steered_answer" || !slices.Equal(got.frame[len(got.frame)-len(ip):], ip) {
					t.Errorf("there: verdict is %s, frame %x", got.verdict, got.frame)
				}
			}
			merged := answer.Inside(hops(fromTo(tunnel, far), hopsLast))
			r.check("merged", step{program: "from_uplink", in: carriedBySwitch(ip, tunnel), skb: gso(3, 4), verdict: "steered_answer", want: &merged})
			// What another host steers here goes no further, whatever the table says.
			weir := gue{weir: true, kind: gueSteered}
			delivered := delivered(answer, w.dip, func(p *pkt.Packet) { p.DestinationPort = 50000 })
			r.check("steered here", carried(answer, fromTo(far, tunnel), weir, "deliver_native", &delivered))
			r.check("steered here in IP", inbound(answer.Inside(fromTo(far, tunnel)), "deliver_native", &delivered))
			stray := answer.With(func(p *pkt.Packet) { p.DestinationPort = 9 })
			r.check("steered here, nobody's", carried(stray, fromTo(far, tunnel), weir, "drop_no_rule", nil))
		}
	}
}

// TestAnswersAtHostsWithoutSourceNAT has them arrive at a host of the VIP that no workload leaves from.
func TestAnswersAtHostsWithoutSourceNAT(t *testing.T) {
	r := newRig(t)
	asks := heldPorts(crawler4, "10.1.0.99", farHost4)
	r.steer(asks)
	answer := pkt.UDP(remote4, netip.AddrPortFrom(netip.MustParseAddr(crawler4), firstRange.First()+9).String())
	r.leavesSteered(fromSwitch(answer, native4, false), "steered_answer", steered(answer, native4, farHost4, gue{}))
	got := r.run("from_uplink", carriedBySwitch(echo("198.51.100.7", crawler4, 0, firstRange.First()+9), native4), nil)
	if got.verdict != "steered_answer" {
		t.Errorf("verdict is %s", got.verdict)
	}
	r.check("steered here", carried(answer, fromTo(farHost4, native4), gue{weir: true, kind: gueSteered}, "drop_no_rule", nil))
}
