package mux

import (
	"bytes"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

const (
	client4, vip4 = "198.51.100.7:40000", "203.0.113.10:80"
	client6, vip6 = "[2001:db8::7]:40000", "[2001:db8:1::10]:80"
	tunnel4       = "10.0.0.1"
	tunnel6       = "fd00::1"
)

// packetCase is a packet, what it is changed to, and what must become of it.
type packetCase struct {
	name    string
	packet  pkt.Packet
	damage  func([]byte) []byte // of the frame's bytes, when no Packet can say it
	meta    int                 // bytes of driver's metadata
	change  func(*testing.T, *Datapath)
	verdict string
	tunnel  string                                // outer destination, when it is sent
	limited bool                                  // nothing may be answered, told or punted
	check   func(t *testing.T, frame, out []byte) // instead of what its verdict asks for
	gue     bool                                  // in GUE
	other   string                                // the tunnel that GUE names
}

func world() []model.MuxEndpoint {
	return []model.MuxEndpoint{
		newEndpoint(vip4, model.TCP, tunnel4),
		newEndpoint(vip4, model.UDP, tunnel6),
		newEndpoint(vip6, model.TCP, tunnel6),
		newEndpoint(vip6, model.UDP, tunnel4),
		newEndpoint("203.0.113.11:80", model.TCP), // no backend
	}
}

func forwardCases() []packetCase {
	long := pkt.Payload(bytes.Repeat([]byte{7}, testMTU-20-20-20))
	long6 := pkt.Payload(bytes.Repeat([]byte{7}, testMTU-40-40-20))
	cases := []packetCase{
		{name: "4 in 4", packet: pkt.TCP(client4, vip4, pkt.SYN), verdict: "forward_syn", tunnel: tunnel4},
		{name: "4 in 6", packet: pkt.UDP(client4, vip4), verdict: "forward_bucket", tunnel: tunnel6},
		{name: "6 in 6", packet: pkt.TCP(client6, vip6, pkt.SYN), verdict: "forward_syn", tunnel: tunnel6},
		{name: "6 in 4", packet: pkt.UDP(client6, vip6), verdict: "forward_bucket", tunnel: tunnel4},
		{name: "options of IP", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.IPOptions(40))},
		{name: "options of TCP", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.MSS(1460))},
		{name: "DSCP and ECN, 4 in 4", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.TOS(0xbb))},
		{name: "DSCP and ECN, 6 in 6", packet: pkt.TCP(client6, vip6, pkt.SYN, pkt.TOS(0xbb)), tunnel: tunnel6},
		{name: "DSCP and ECN, 4 in 6", packet: pkt.UDP(client4, vip4, pkt.TOS(0x2e)), verdict: "forward_bucket", tunnel: tunnel6},
		{name: "DSCP and ECN, 6 in 4", packet: pkt.UDP(client6, vip6, pkt.TOS(0x2e)), verdict: "forward_bucket"},
		{name: "padding", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.Payload(nil), pkt.Padding(6))},
		{name: "padding beyond the MTU", packet: pkt.TCP(client4, vip4, pkt.SYN, long, pkt.Padding(30))},
		{name: "as long as fits", packet: pkt.TCP(client4, vip4, pkt.SYN, long)},
		{name: "as long as fits, 6 in 6", packet: pkt.TCP(client6, vip6, pkt.SYN, long6), tunnel: tunnel6},
		{name: "no payload", packet: pkt.UDP(client4, vip4, pkt.Payload(nil)), verdict: "forward_bucket", tunnel: tunnel6},
		{name: "one VLAN", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.VLANs(5))},
		{name: "two VLANs", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.VLANs(5, 6))},
		{name: "one VLAN, 6 in 6", packet: pkt.TCP(client6, vip6, pkt.SYN, pkt.VLANs(5)), tunnel: tunnel6},
		{name: "two VLANs, 6 in 6", packet: pkt.TCP(client6, vip6, pkt.SYN, pkt.VLANs(5, 6)), tunnel: tunnel6},
		{name: "not a SYN", packet: pkt.TCP(client4, vip4, pkt.ACK), verdict: "forward_bucket"},
		{name: "SYN and ACK", packet: pkt.TCP(client4, vip4, pkt.SYN|pkt.ACK), verdict: "forward_bucket"},
		{name: "remembered", packet: pkt.TCP(client4, vip4, pkt.ACK), change: remember, verdict: "forward_flow"},
		{name: "found lately", packet: pkt.TCP(client4, vip4, pkt.ACK), change: rememberTwice, verdict: "forward_known"},
		{name: "remembered, now down", packet: pkt.TCP(client4, vip4, pkt.ACK), change: rememberThenDown, verdict: "forward_failover"},
	}
	for i := range cases {
		if cases[i].verdict == "" {
			cases[i].verdict = "forward_syn"
		}
		if cases[i].tunnel == "" {
			cases[i].tunnel = tunnel4
		}
	}
	return cases
}

func remember(t *testing.T, d *Datapath) {
	run(t, d, pkt.TCP(client4, vip4, pkt.ACK).Frame())
}

func rememberTwice(t *testing.T, d *Datapath) {
	(&filtered{Datapath: d}).midEpoch(t)
	remember(t, d)
	remember(t, d)
}

func rememberThenDown(t *testing.T, d *Datapath) {
	remember(t, d)
	down := newEndpoint(vip4, model.TCP, tunnel4)
	down.Backends[0].Down = true
	if err := d.Apply([]model.MuxEndpoint{down}, nil); err != nil {
		t.Fatal(err)
	}
}

func passCases() []packetCase {
	tcp4, tcp6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(client6, vip6, pkt.SYN)
	udp4 := pkt.UDP(client4, vip4)
	set := func(offset int, value byte) func([]byte) []byte {
		return func(frame []byte) []byte { frame[offset] = value; return frame }
	}
	cut := func(n int) func([]byte) []byte {
		return func(frame []byte) []byte { return frame[:n] }
	}
	return []packetCase{
		{name: "other port", packet: pkt.TCP(client4, "203.0.113.10:22", pkt.SYN), verdict: "pass_no_endpoint"},
		{name: "other address", packet: pkt.TCP(client4, "203.0.113.12:80", pkt.SYN), verdict: "pass_no_endpoint"},
		{name: "other address of v6", packet: pkt.TCP(client6, "[2001:db8:1::11]:80", pkt.SYN), verdict: "pass_no_endpoint"},
		{name: "icmp", packet: pkt.ICMP("198.51.100.7", "203.0.113.12"), verdict: "pass_icmp"},
		{name: "icmp6", packet: pkt.ICMP("2001:db8::7", "2001:db8:1::11"), verdict: "pass_icmp"},
		{name: "gre", packet: udp4.With(pkt.Protocol(layers.IPProtocolGRE)), verdict: "pass_other_protocol"},
		{name: "behind hop-by-hop options", packet: tcp6, damage: set(14+6, 0), verdict: "pass_other_protocol"},
		{name: "first fragment", packet: pkt.UDP(client4, "203.0.113.10:53", pkt.Fragment(0, true)), verdict: "pass_fragment"},
		{name: "last fragment", packet: pkt.UDP(client4, "203.0.113.12:80", pkt.Fragment(9, false)), verdict: "pass_fragment"},
		{name: "fragment of v6", packet: pkt.UDP(client6, "[2001:db8:1::11]:80", pkt.Fragment(0, true)), verdict: "pass_fragment"},
		{name: "fragment of gre", packet: udp4.With(pkt.Fragment(0, true), pkt.Protocol(layers.IPProtocolGRE)), verdict: "pass_fragment"},
		{name: "arp", packet: tcp4, damage: set(13, 6), verdict: "pass_not_ip"},
		{name: "three VLANs", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.VLANs(5, 6, 7)), verdict: "pass_not_ip"},

		{name: "no IP header", packet: tcp4, damage: cut(14 + 19), verdict: "pass_malformed"},
		{name: "no IPv6 header", packet: tcp6, damage: cut(14 + 39), verdict: "pass_malformed"},
		{name: "cut in the VLAN tag", packet: pkt.TCP(client4, vip4, pkt.SYN, pkt.VLANs(5)), damage: cut(16), verdict: "pass_malformed"},
		{name: "one byte too short", packet: tcp4, damage: func(f []byte) []byte { return f[:len(f)-1] }, verdict: "pass_malformed"},
		{name: "one byte too short, v6", packet: tcp6, damage: func(f []byte) []byte { return f[:len(f)-1] }, verdict: "pass_malformed"},
		{name: "version 5", packet: tcp4, damage: set(14, 0x55), verdict: "pass_malformed"},
		{name: "version 5 as v6", packet: tcp6, damage: set(14, 0x50), verdict: "pass_malformed"},
		{name: "header of 4 words", packet: tcp4, damage: set(14, 0x44), verdict: "pass_malformed"},
		{name: "header beyond the length", packet: pkt.UDP(client4, vip4, pkt.Payload(nil)), damage: set(14, 0x48), verdict: "pass_malformed"},
		{name: "length below its header", packet: tcp4, damage: set(17, 19), verdict: "pass_malformed"},
		{name: "length without all of TCP", packet: tcp4, damage: set(17, 39), verdict: "pass_malformed"},
		{name: "TCP header of 4 words", packet: tcp4, damage: set(34+12, 0x40), verdict: "pass_malformed"},
		{name: "TCP header beyond the length", packet: tcp4, damage: set(34+12, 0xf0), verdict: "pass_malformed"},
		{name: "length without all of UDP", packet: udp4, damage: set(17, 27), verdict: "pass_malformed"},
		{name: "length wraps in v6", packet: tcp6, damage: func(f []byte) []byte { f[18], f[19] = 0xff, 0xf0; return f }, verdict: "pass_malformed"},
		{name: "mapped address in v6", packet: pkt.TCP("[::ffff:198.51.100.7]:40000", "[::ffff:203.0.113.10]:80", pkt.SYN), verdict: "pass_malformed"},
	}
}

func dropCases() []packetCase {
	tooLong := pkt.Payload(bytes.Repeat([]byte{7}, testMTU-20-20-20+1))
	merged := pkt.Payload(bytes.Repeat([]byte{7}, 2*(testMTU-60)))
	with := func(change func(*pool.Settings)) func(*testing.T, *Datapath) {
		return func(t *testing.T, d *Datapath) {
			p := testSettings()
			change(&p)
			if err := d.SetSettings(p); err != nil {
				t.Fatal(err)
			}
		}
	}
	unresolve := func(t *testing.T, d *Datapath) {
		if err := d.SetNextHops(nil); err != nil {
			t.Fatal(err)
		}
	}
	syn4, syn6 := pkt.TCP(client4, vip4, pkt.SYN), pkt.TCP(client6, vip6, pkt.SYN)
	return []packetCase{
		{name: "no backend", packet: pkt.TCP(client4, "203.0.113.11:80", pkt.SYN), verdict: "drop_no_backend"},
		{name: "no backend, not a SYN", packet: pkt.TCP(client4, "203.0.113.11:80", pkt.ACK), verdict: "drop_no_backend"},
		{name: "too big", packet: pkt.TCP(client4, vip4, pkt.SYN, tooLong, dontFragment), limited: true, verdict: "drop_too_big"},
		{name: "too big for v6", packet: pkt.UDP(client4, vip4, tooLong, dontFragment), limited: true, verdict: "drop_too_big"},
		{name: "merged", packet: pkt.TCP(client4, vip4, pkt.ACK, merged, dontFragment), verdict: "drop_merged"},
		{name: "merged, may be fragmented", packet: pkt.TCP(client4, vip4, pkt.ACK, merged), verdict: "drop_merged"},
		{name: "merged, v6", packet: pkt.TCP(client6, vip6, pkt.ACK, merged), verdict: "drop_merged"},
		{name: "no source of v4", packet: syn4, change: with(func(p *pool.Settings) { p.Source4 = netip.Addr{} }), verdict: "drop_no_source"},
		{name: "no source of v6", packet: syn6, change: with(func(p *pool.Settings) { p.Source6 = netip.Addr{} }), verdict: "drop_no_source"},
		{name: "hop not resolved", packet: syn4, change: unresolve, verdict: "drop_no_next_hop"},
		{name: "no headroom", packet: syn4, meta: 216, verdict: "drop_no_headroom"},
		{name: "no headroom for v6", packet: syn6, meta: 200, verdict: "drop_no_headroom"},
	}
}

func TestPackets(t *testing.T) {
	produced := map[string]bool{"drop_join_limited": true} // TestJoinsAreForwarded has it: the bucket fills again while a case runs
	for _, c := range allCases(t) {
		t.Run(c.verdict+"/"+c.name, func(t *testing.T) {
			checkCase(t, c)
			produced[c.verdict] = true
		})
	}
	for _, name := range newUnattached(t, testSizes).tables.VerdictNames {
		if !produced[name] {
			t.Errorf("no case produces the verdict %s", name)
		}
	}
}

func allCases(t *testing.T) []packetCase {
	return slices.Concat(forwardCases(), consistencyCases(), passCases(), dropCases(), slowpathCases(t), rareCases(), snatCases(), sourceCases(), synCases(), limitCases(), shareCases(), otherMACCases(), martianCases(), networkCases(), headerCases(), pingCases(), answerCases(), networkSYNCases(), natCases(), neighborCases())
}

func checkCase(t *testing.T, c packetCase) {
	sizes := testSizes
	if c.limited {
		sizes.Tokens = tokensEach(0)
	}
	d := newFilledOf(t, sizes, world()...)
	if c.change != nil {
		c.change(t, d)
	}
	frame := c.packet.Frame()
	if c.damage != nil {
		frame = c.damage(frame)
	}
	before, endpointsBefore := verdicts(t, d), endpointPackets(t, d)
	bytesBefore, endedBefore := verdictBytes(t, d, c.verdict), ended(t, d)
	action, out := runWithMeta(t, d, bytes.Clone(frame), c.meta)

	if diff := cmp.Diff(map[string]uint64{c.verdict: 1}, difference(before, verdicts(t, d))); diff != "" {
		t.Errorf("verdicts that moved (-want +got):\n%s", diff)
	}
	if got := verdictBytes(t, d, c.verdict) - bytesBefore; got != uint64(len(frame)) {
		t.Errorf("%d bytes were counted, want %d", got, len(frame))
	}
	if counted := ended(t, d) > endedBefore; counted != (action == xdpDrop) {
		t.Errorf("the packet counts as one that ended: %t, and its action is %d", counted, action)
	}
	forwarded := difference(endpointsBefore, endpointPackets(t, d))
	switch c.verdict[:4] {
	case "pass":
		checkAction(t, action, xdpPass)
		if !bytes.Equal(frame, out) {
			t.Errorf("passed packet was changed:\n got %x\nwant %x", out, frame)
		}
	case "drop":
		checkAction(t, action, xdpDrop)
	case "punt":
		checkAction(t, action, xdpDrop)
		checkPunt(t, d, frame)
	case "rela", "repl":
		checkAction(t, action, xdpTX)
		c.check(t, frame, out)
	default:
		checkAction(t, action, xdpTX)
		switch {
		case c.check != nil:
			c.check(t, frame, out)
		case c.gue:
			checkGUE(t, c, frame, out)
		default:
			checkForwarded(t, c, frame, out)
		}
		if len(forwarded) != 1 {
			t.Errorf("endpoint counters that moved: %v, want one", forwarded)
		}
		return
	}
	if len(forwarded) != 0 {
		t.Errorf("endpoint counters that moved: %v, want none", forwarded)
	}
}

func checkAction(t *testing.T, got, want uint32) {
	t.Helper()
	if got != want {
		t.Errorf("action %d, want %d", got, want)
	}
}

// checkForwarded wants frame in an outer header, and not a byte of it changed.
func checkForwarded(t *testing.T, c packetCase, frame, out []byte) {
	t.Helper()
	want := c.packet.Inside(pkt.IP{
		Source: source4, Destination: netip.MustParseAddr(c.tunnel),
		TTL: 64, TOS: c.packet.IP.TOS, DontFragment: true,
	})
	growth := 20
	if want.Outer.Destination.Is6() {
		want.Outer.Source, want.Outer.DontFragment = source6, false
		growth = 40
	}
	want.Source, want.Destination = testHop.Source, testHop.Destination
	want.Options = slices.DeleteFunc(slices.Clone(want.Options), func(o layers.TCPOption) bool {
		return o.OptionType == layers.TCPOptionKindNop
	})
	got, err := pkt.Decode(out)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(want, got, cmpopts.EquateEmpty(), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
		t.Errorf("sent packet (-want +got):\n%s", diff)
	}
	l3 := c.packet.L3()
	if !bytes.Equal(frame[l3:], out[l3+growth:]) {
		t.Errorf("inner packet was changed:\n got %x\nwant %x", out[l3+growth:], frame[l3:])
	}
}

func verdictBytes(t *testing.T, d *Datapath, verdict string) uint64 {
	t.Helper()
	all, err := d.Verdicts()
	if err != nil {
		t.Fatal(err)
	}
	return all[verdict].Bytes
}

func endpointPackets(t *testing.T, d *Datapath) map[string]uint64 {
	t.Helper()
	counters, err := d.EndpointCounters()
	if err != nil {
		t.Fatal(err)
	}
	packets := map[string]uint64{}
	for key, counter := range counters {
		packets[key.String()] = counter.Packets
	}
	answers, err := d.SNATCounters()
	if err != nil {
		t.Fatal(err)
	}
	for vip, counter := range answers {
		packets[vip.String()] = counter.Packets
	}
	return packets
}

func ended(t *testing.T, d *Datapath) uint64 {
	t.Helper()
	n, err := d.Ended()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
