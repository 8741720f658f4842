package mux

import (
	"bytes"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/pkt"
)

// TestEachVIPHasTokens takes for one VIP all that the mux does for VIPs itself, and then asks for another one.
func TestEachVIPHasTokens(t *testing.T) {
	const own = 3 // tokens of each VIP beside the others
	sizes := testSizes
	sizes.tokens, sizes.tokenTime = []uint64{50 * own, 50 * own, 50 * own, 50 * own}, time.Hour
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
		{"early fragments", pkt.UDP(client4, vip4, pkt.Fragment(9, false)), pkt.UDP(client6, vip6, pkt.Fragment(9, false)), "punt_fragment", "drop_punt"},
	} {
		t.Run(c.what, func(t *testing.T) {
			d := newFilledOf(t, sizes, world()...)
			answerPings(t, d)
			apply(t, d, endpoint(third, model.TCP, tunnel4))
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
