package mux

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/mux/pool"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

func dontFragment(p *pkt.Packet) { p.IP.DontFragment = true }

// slowpathCases are packets that the fast path leaves to others.
func slowpathCases(t *testing.T) []packetCase {
	echo4, echo6 := pkt.ICMP("198.51.100.7", "203.0.113.10"), pkt.ICMP("2001:db8::7", "2001:db8:1::10")
	cases := []packetCase{
		{name: "ping", packet: echo4, change: answerPings, verdict: "reply_echo", check: checkEcho(echo4)},
		{name: "ping of v6", packet: echo6, change: answerPings, verdict: "reply_echo", check: checkEcho(echo6)},
		{name: "ping in VLANs", packet: echo4.With(pkt.VLANs(5, 6)), change: answerPings, verdict: "reply_echo", check: checkEcho(echo4.With(pkt.VLANs(5, 6)))},
		{name: "ping not answered", packet: echo4, verdict: "drop_echo"},
		{name: "ping from a group", packet: pkt.ICMP("224.0.0.1", "203.0.113.10"), change: answerPings, verdict: "drop_echo"},
		{name: "too many pings", packet: echo6, change: answerPings, limited: true, verdict: "drop_echo_limited"},
	}
	cases = append(cases, errorCases()...)
	cases = append(cases, fragmentCases(t)...)
	cases = append(cases, hostRelayCases(t)...)
	return append(cases, tooBigCases()...)
}

func answerPings(t *testing.T, d *Datapath) {
	for _, e := range world() {
		e.Ping = true
		apply(t, d, e)
	}
}

// checkEcho wants the request sent back, and its checksums right.
func checkEcho(request pkt.Packet) func(*testing.T, []byte, []byte) {
	return func(t *testing.T, frame, out []byte) {
		t.Helper()
		got, err := pkt.Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		if got.IP.Source != request.IP.Destination || got.IP.Destination != request.IP.Source {
			t.Errorf("sent from %s to %s", got.IP.Source, got.IP.Destination)
		}
		if got.Source != request.Destination || got.Destination != request.Source || len(got.VLANs) != len(request.VLANs) {
			t.Errorf("frame from %x to %x in VLANs %v", got.Source, got.Destination, got.VLANs)
		}
		kind := map[bool]byte{true: 0, false: 129}[request.IP.Is4()]
		if out[request.L4()] != kind {
			t.Errorf("type is %d, want %d", out[request.L4()], kind)
		}
		if !bytes.Equal(out[request.L4()+4:], frame[request.L4()+4:]) {
			t.Error("id, sequence or data were changed")
		}
	}
}

// icmpError is an error from a router about a packet that a VIP sent, quoting n bytes of it.
func icmpError(vip, client string, n int, options ...func(*pkt.Packet)) []byte {
	sent := pkt.TCP(vip, client, pkt.ACK, options...)
	quote := sent.Frame()[14:]
	router, protocol, kind := "192.0.2.1", layers.IPProtocolICMPv4, []byte{3, 4, 0, 0, 0, 0, 5, 120}
	if !sent.IP.Is4() {
		router, protocol, kind = "2001:db8:2::1", layers.IPProtocolICMPv6, []byte{2, 0, 0, 0, 0, 0, 5, 120}
	}
	carrier := pkt.UDP(netip.AddrPortFrom(netip.MustParseAddr(router), 1).String(), vip, pkt.Payload(append(kind, quote[:n]...)))
	frame := carrier.Frame()
	at := carrier.L4() // UDP's header goes
	frame = append(frame[:at:at], frame[at+8:]...)
	if sent.IP.Is4() {
		binary.BigEndian.PutUint16(frame[16:], uint16(len(frame)-14))
		frame[14+9] = byte(protocol)
	} else {
		binary.BigEndian.PutUint16(frame[18:], uint16(len(frame)-54))
		frame[14+6] = byte(protocol)
	}
	return frame
}

func errorCases() []packetCase {
	as := func(frame []byte) func([]byte) []byte { return func([]byte) []byte { return bytes.Clone(frame) } }
	inside := func(tunnel string) func(*testing.T, []byte, []byte) {
		return func(t *testing.T, frame, out []byte) {
			t.Helper()
			if got := outerDestination(out[14:]); got != netip.MustParseAddr(tunnel) {
				t.Errorf("sent to %s, want %s", got, tunnel)
			}
			if !bytes.HasSuffix(out, frame[14:]) {
				t.Error("the error was changed")
			}
		}
	}
	cookies := func(t *testing.T, d *Datapath) {
		moveBuckets(t, d)
		e := newEndpoint(vip4, model.TCP, tunnel4, "10.0.0.2")
		e.Cookies = model.CookiesOn
		apply(t, d, e)
	}
	stamp := pkt.TCPOptions(layers.TCPOption{
		OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10, OptionData: []byte{0, 1, 0, 2, 0, 0, 0, 0},
	})
	any4 := pkt.TCP(client4, vip4, pkt.ACK)
	return []packetCase{
		{name: "error", packet: any4, damage: as(icmpError(vip4, client4, 28)), verdict: "forward_icmp", check: inside(tunnel4)},
		{name: "error of v6", packet: any4, damage: as(icmpError(vip6, client6, 48)), verdict: "forward_icmp", check: inside(tunnel6)},
		{name: "error that quotes a cookie", packet: any4, change: cookies, damage: as(icmpError(vip4, client4, 60, stamp)), verdict: "forward_icmp", check: inside("10.0.0.2")},
		{name: "error without its cookie", packet: any4, change: cookies, damage: as(icmpError(vip4, client4, 28, stamp)), verdict: "punt_icmp"},
		{name: "error of a VIP that switches hold", packet: any4, change: held(vip4), damage: as(icmpError(vip4, client4, 28)), verdict: "punt_icmp"},
		{name: "error after a move", packet: any4, change: moveBuckets, damage: as(icmpError(vip4, client4, 28)), verdict: "punt_icmp"},
		{name: "error about no endpoint", packet: any4, damage: as(icmpError("203.0.113.10:22", client4, 28)), verdict: "pass_icmp"},
		{name: "error that quotes too little", packet: any4, damage: as(icmpError(vip4, client4, 24)), verdict: "pass_icmp"},
	}
}

// moveBuckets moves buckets of the endpoint.
func moveBuckets(t *testing.T, d *Datapath) {
	apply(t, d, newEndpoint(vip4, model.TCP, tunnel4, "10.0.0.2"))
}

func outerDestination(ip []byte) netip.Addr {
	if ip[0]>>4 == 4 {
		return netip.AddrFrom4([4]byte(ip[16:]))
	}
	return netip.AddrFrom16([16]byte(ip[24:]))
}

// inFragment wants frame in GUE for the tunnel, with the ports of its datagram.
func inFragment(l3 int, tunnel string) func(*testing.T, []byte, []byte) {
	return func(t *testing.T, frame, out []byte) {
		t.Helper()
		if got := outerDestination(out[l3:]); got != netip.MustParseAddr(tunnel) {
			t.Errorf("sent to %s, want %s", got, tunnel)
		}
		if !bytes.HasSuffix(out, frame[l3:]) {
			t.Error("the fragment was changed")
		}
		weir := out[len(out)-len(frame[l3:])-8:]
		want := []byte{1, 0, 1, 0, 40000 >> 8, 40000 & 0xff, 0, 80}
		if !bytes.Equal(weir[:8], want) {
			t.Errorf("Weir's header is %x, want %x", weir[:8], want)
		}
	}
}

func fragmentCases(t *testing.T) []packetCase {
	first4, later4 := pkt.UDP(client4, vip4, pkt.Fragment(0, true)), pkt.UDP(client4, vip4, pkt.Fragment(9, false))
	first6, later6 := pkt.UDP(client6, vip6, pkt.Fragment(0, true)), pkt.UDP(client6, vip6, pkt.Fragment(9, false))
	tcp4, tag := pkt.TCP(client4, vip4, pkt.ACK, pkt.Fragment(0, true)), pkt.VLANs(5)
	after := func(first pkt.Packet) func(*testing.T, *Datapath) {
		return func(t *testing.T, d *Datapath) { run(t, d, first.Frame()) }
	}
	relayed := relayFrame(t, first4)
	as := func(frame []byte) func([]byte) []byte { return func([]byte) []byte { return bytes.Clone(frame) } }
	another := pkt.TCP(client4, vip4, pkt.SYN).Frame()
	opening := append(bytes.Clone(relayed[:14+20+8+12]), pkt.TCP(client4, vip4, pkt.SYN, pkt.Fragment(0, true)).Frame()[14:]...)
	binary.BigEndian.PutUint16(opening[14+2:], uint16(len(opening)-14))
	binary.BigEndian.PutUint16(opening[14+20+4:], uint16(len(opening)-14-20))
	outsider := bytes.Clone(relayed)
	outsider[14+15] ^= 1
	empty := bytes.Clone(relayed)
	empty[14+20+8+12+9] = 47 // GRE inside
	return []packetCase{
		{name: "first", packet: first4, verdict: "forward_fragment", check: inFragment(14, tunnel6)},
		{name: "first of v6", packet: first6, verdict: "forward_fragment", check: inFragment(14, tunnel4)},
		{name: "first of TCP", packet: tcp4, verdict: "forward_fragment", check: inFragment(14, tunnel4)},
		{name: "first in a VLAN", packet: first4.With(tag), verdict: "forward_fragment", check: inFragment(18, tunnel6)},
		{name: "later", packet: later4, change: after(first4), verdict: "forward_fragment", check: inFragment(14, tunnel6)},
		{name: "later of v6", packet: later6, change: after(first6), verdict: "forward_fragment", check: inFragment(14, tunnel4)},
		{name: "early", packet: later4, verdict: "punt_fragment"},
		{name: "early of v6 in VLANs", packet: later6.With(pkt.VLANs(5, 6)), verdict: "punt_fragment"},
		{name: "early, too many", packet: later4, limited: true, verdict: "drop_punt"},
		{name: "of another mux", packet: first4, change: owned("other"), verdict: "relay_fragment", check: func(t *testing.T, frame, out []byte) {
			if !bytes.Equal(out, relayed) {
				t.Errorf("relayed as %x, want %x", out, relayed)
			}
		}},
		{name: "relayed to us", packet: first4, change: owned("self"), damage: as(relayed), verdict: "forward_fragment", check: func(t *testing.T, frame, out []byte) {
			inFragment(14, tunnel6)(t, first4.Frame(), out)
		}},
		{name: "of another mux, and of a VIP that has had its packets", packet: first4, change: both(spent(limitPackets, another), owned("other")), verdict: "drop_limit_packets"},
		{name: "of another mux, later, and of a VIP that has had its bytes", packet: pkt.UDP(client4, vip4, pkt.Fragment(9, false)), change: both(spent(limitBytes, another), owned("other")), verdict: "drop_limit_bytes"},
		{name: "of another mux, more than are relayed", packet: first4, change: owned("other"), limited: true, verdict: "drop_relay_limited"},
		{name: "relayed to us, of a VIP that has had its packets", packet: first4, change: both(spent(limitPackets, another), owned("self")), damage: as(relayed), verdict: "forward_fragment", check: func(t *testing.T, frame, out []byte) {
			inFragment(14, tunnel6)(t, first4.Frame(), out)
		}},
		{name: "relayed to us, of a VIP that has had its connections", packet: first4, change: both(spent(limitConnections, another), owned("self")), damage: as(opening), verdict: "drop_limit_connections"},
		{name: "relayed by an outsider", packet: first4, change: owned("self"), damage: as(outsider), verdict: "drop_not_a_mux"},
		{name: "relayed, but of GRE", packet: first4, change: owned("self"), damage: as(empty), verdict: "drop_relay_invalid"},
	}
}

func both(one, other func(*testing.T, *Datapath)) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		one(t, d)
		other(t, d)
	}
}

var other4 = netip.MustParseAddr("10.255.0.2")

// owned makes this mux the one of the two that has the name; the datagram of the tests is the other's.
func owned(self string) func(*testing.T, *Datapath) {
	return func(t *testing.T, d *Datapath) {
		t.Helper()
		pool := []model.PoolMember{{Name: memberOf(t, "other"), Addresses: []netip.Addr{other4}}, {Name: "self", Addresses: []netip.Addr{source4}}}
		if self == "self" { // seen from the other side
			self, pool[0].Addresses[0], pool[1].Addresses[0] = memberOf(t, "other"), source4, other4
			pool[0].Addresses, pool[1].Addresses = []netip.Addr{other4}, []netip.Addr{source4}
		} else {
			self = "self"
		}
		if err := d.SetNextHops(map[netip.Addr]model.NextHop{
			other4: muxHop, source4: muxHop,
			netip.MustParseAddr(tunnel4): testHop, netip.MustParseAddr(tunnel6): testHop,
		}); err != nil {
			t.Fatal(err)
		}
		if err := d.SetPoolMembers(self, pool); err != nil {
			t.Fatal(err)
		}
	}
}

// memberOf finds a name whose mux owns the datagram of the tests.
func memberOf(t *testing.T, prefix string) string {
	t.Helper()
	p := pkt.UDP(client4, vip4, pkt.Fragment(0, true))
	for i := range 64 {
		name := fmt.Sprintf("%s-%d", prefix, i)
		if ownerScore(p, name) > ownerScore(p, "self") {
			return name
		}
	}
	t.Fatal("no name owns the datagram")
	return ""
}

// relayFrame is what the mux called self makes of a fragment that is another's.
func relayFrame(t *testing.T, p pkt.Packet) []byte {
	t.Helper()
	d := newFilled(t, world()...)
	owned("other")(t, d)
	action, out := run(t, d, p.Frame())
	checkAction(t, action, xdpTX)
	return bytes.Clone(out)
}

// ownerScore is bpf/mux/slowpath/fragment.h once more: the member with the highest one owns the datagram.
func ownerScore(p pkt.Packet, member string) uint64 {
	key := testSettings().HashKey
	hash := uint64(key.Sum(model.Flow{
		Protocol:    model.Protocol(p.Protocol),
		Source:      netip.AddrPortFrom(p.IP.Source, p.IP.ID),
		Destination: netip.AddrPortFrom(p.IP.Destination, 0),
	}))
	h := hash ^ pool.Seed(member)
	h ^= h >> 33
	h *= 0xff51afd7ed558ccd
	h ^= h >> 33
	h *= 0xc4ceb9fe1a85ec53
	return h ^ h>>33
}

func tooBigCases() []packetCase {
	long := pkt.Payload(bytes.Repeat([]byte{7}, testMTU-20-20-20+1))
	df4, any4 := pkt.TCP(client4, vip4, pkt.ACK, long, dontFragment), pkt.TCP(client4, vip4, pkt.ACK, long)
	big6 := pkt.TCP(client6, vip6, pkt.ACK, pkt.Payload(bytes.Repeat([]byte{7}, testMTU-40-20)))
	frag6 := pkt.UDP(client6, vip6, pkt.Fragment(0, true), long)
	tagged := df4.With(pkt.VLANs(5, 6))
	return []packetCase{
		{name: "4 in 4", packet: df4, verdict: "reply_too_big", check: checkTooBig(df4, testMTU-56)},
		{name: "6 in 6", packet: big6, verdict: "reply_too_big", check: checkTooBig(big6, testMTU-76)},
		{name: "in VLANs", packet: tagged, verdict: "reply_too_big", check: checkTooBig(tagged, testMTU-56)},
		{name: "fragment of v6", packet: frag6, verdict: "reply_too_big", check: checkTooBig(frag6, testMTU-76)},
		{name: "may be fragmented", packet: any4, verdict: "punt_split"},
		{name: "may be fragmented, too many", packet: any4, limited: true, verdict: "drop_punt"},
		{name: "told too often", packet: df4, limited: true, verdict: "drop_too_big"},
	}
}

// checkTooBig wants an ICMP error about the packet, from its VIP, with right checksums.
func checkTooBig(p pkt.Packet, mtu int) func(*testing.T, []byte, []byte) {
	return func(t *testing.T, frame, out []byte) {
		t.Helper()
		got, err := pkt.Decode(out)
		if err != nil {
			t.Fatal(err)
		}
		if got.IP.Source != p.IP.Destination || got.IP.Destination != p.IP.Source || got.Destination != p.Source {
			t.Errorf("sent from %s to %s, frame to %x", got.IP.Source, got.IP.Destination, got.Destination)
		}
		icmp, kind, quote := out[p.L3()+20:], []byte{3, 4}, 548
		if !p.IP.Is4() {
			icmp, kind, quote = out[p.L3()+40:], []byte{2, 0}, 1232
		}
		if !bytes.Equal(icmp[:2], kind) || binary.BigEndian.Uint32(icmp[4:]) != uint32(mtu) {
			t.Errorf("ICMP is %x, want of type %x with MTU %d", icmp[:8], kind, mtu)
		}
		if !bytes.Equal(icmp[8:], frame[p.L3():p.L3()+quote]) {
			t.Errorf("quotes %d bytes, want the first %d of the packet", len(icmp)-8, quote)
		}
	}
}

// checkPunt wants the frame in user space.
func checkPunt(t *testing.T, d *Datapath, frame []byte) {
	t.Helper()
	punts, err := d.Punts()
	if err != nil {
		t.Fatal(err)
	}
	defer punts.Close()
	p, err := punts.Read()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(p.Frame, frame) {
		t.Errorf("punted %x, want %x", p.Frame, frame)
	}
}
