package mux

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// tokensEach are so many for all that the mux does itself: bpf/mux/ratelimit.h has the list.
func tokensEach(n uint64) []uint64 { return slices.Repeat([]uint64{n}, 6) }

// TestEachVIPHasTokens takes for one VIP all that the mux does for VIPs itself, and then asks for another one.
func TestEachVIPHasTokens(t *testing.T) {
	const own = 3 // tokens of each VIP beside the others
	sizes := testSizes
	sizes.Tokens, sizes.TokenTime = tokensEach(50*own), time.Hour
	const third = "203.0.113.11:80" // another VIP of IPv4
	echo4, echo6 := pkt.ICMP("198.51.100.7", "203.0.113.10"), pkt.ICMP("2001:db8::7", "2001:db8:1::10")
	long4, long6 := pkt.Payload(bytes.Repeat([]byte{7}, testMTU-20-20)), pkt.Payload(bytes.Repeat([]byte{7}, testMTU-40-20))
	for _, c := range []struct {
		what           string
		flood, another pkt.Packet
		done, refused  string
	}{
		{"pings", echo4, echo6, "reply_echo", "drop_echo_limited"},
		{"pings, v6", echo6, echo4, "reply_echo", "drop_echo_limited"},
		{"packets that are too big", pkt.TCP(client6, vip6, pkt.ACK, long6), pkt.TCP(client4, vip4, pkt.ACK, long4, dontFragment), "reply_too_big", "drop_too_big"},
		{"packets to be cut", pkt.TCP(client4, vip4, pkt.ACK, long4), pkt.TCP(client4, third, pkt.ACK, long4), "punt_split", "drop_punt"},
		{"fragments of another mux", othersFragment(t, pkt.UDP(client4, vip4, pkt.Fragment(9, false))), othersFragment(t, pkt.UDP(client6, vip6, pkt.Fragment(9, false))), "relay_fragment", "drop_relay_limited"},
		{"fragments of another mux, v6", othersFragment(t, pkt.UDP(client6, vip6, pkt.Fragment(0, true))), othersFragment(t, pkt.UDP(client4, vip4, pkt.Fragment(0, true))), "relay_fragment", "drop_relay_limited"},
		{"early fragments", pkt.UDP(client4, vip4, pkt.Fragment(9, false)), pkt.UDP(client6, vip6, pkt.Fragment(9, false)), "punt_fragment", "drop_punt"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newFilledOf(t, sizes, world()...)
			answerPings(t, d)
			apply(t, d, newEndpoint(third, model.TCP, tunnel4))
			if c.done == "relay_fragment" {
				inPairOfMuxes(t, d)
			}
			met := func(p pkt.Packet, times int, want map[string]uint64) {
				t.Helper()
				before := verdicts(t, d)
				for range times {
					run(t, d, p.Frame())
				}
				if got := difference(before, verdicts(t, d)); got[c.done] != want[c.done] || got[c.refused] != want[c.refused] {
					t.Errorf("%d met %v, want %v", times, got, want)
				}
			}
			met(c.flood, 60*own, map[string]uint64{c.done: 51 * own, c.refused: 9 * own})
			met(c.another, 5*own, map[string]uint64{c.done: own, c.refused: 4 * own})
		})
	}
}

// inPairOfMuxes makes this mux one of two. To be called when next hops are resolved.
func inPairOfMuxes(t *testing.T, d *Datapath) {
	t.Helper()
	hops := map[netip.Addr]model.NextHop{source4: muxHop, other4: muxHop}
	for _, tunnel := range d.Tunnels() {
		hops[tunnel] = testHop
	}
	if err := d.SetNextHops(hops); err != nil {
		t.Fatal(err)
	}
	pool := []model.PoolMember{{Name: "self", Addresses: []netip.Addr{source4}}, {Name: "other", Addresses: []netip.Addr{other4}}}
	if err := d.SetPoolMembers("self", pool); err != nil {
		t.Fatal(err)
	}
}

// othersFragment is p with an id that makes it the other mux's.
func othersFragment(t *testing.T, p pkt.Packet) pkt.Packet {
	t.Helper()
	d := newFilled(t, world()...)
	inPairOfMuxes(t, d)
	for range 64 {
		p.IP.ID++
		before := verdicts(t, d)
		run(t, d, p.Frame())
		if difference(before, verdicts(t, d))["relay_fragment"] == 1 {
			return p
		}
	}
	t.Fatal("no id is the other mux's")
	return p
}

// TestForgedFragmentsAreRelayedAtARate offers one datagram's fragments, and holds that no more are relayed than
// there are tokens: those that come back meanwhile, and one full bucket. What is slower passes.
func TestForgedFragmentsAreRelayedAtARate(t *testing.T) {
	const burst, each, jiffy = 200, time.Millisecond, 10 * time.Millisecond
	sizes := testSizes
	sizes.Tokens, sizes.TokenTime = tokensEach(burst), each
	for _, p := range []pkt.Packet{pkt.UDP(client4, vip4, pkt.Fragment(9, true)), pkt.UDP(client6, vip6, pkt.Fragment(9, true))} {
		frame := othersFragment(t, p).Frame()
		d := newFilledOf(t, sizes, world()...)
		inPairOfMuxes(t, d)
		began := time.Now()
		for range burst / 2 {
			run(t, d, frame)
		}
		if got := verdicts(t, d); got["relay_fragment"] != burst/2 {
			t.Errorf("of half as many as there are tokens: %v", got)
		}
		const flood = 5000
		for range flood {
			run(t, d, frame)
		}
		got, most := verdicts(t, d), uint64((time.Since(began)+jiffy)/each)
		most += burst + most/50 + burst/50 // and the VIP's own
		if got["relay_fragment"] > most || got["relay_fragment"]+got["drop_relay_limited"] != flood+burst/2 {
			t.Errorf("at most %d are to be relayed: %v", most, got)
		}
	}
}
