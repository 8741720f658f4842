package agent

import (
	"bytes"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/pkt"
)

// with changes bytes of a frame: the way to a wrong one.
func with(frame []byte, change func([]byte)) []byte {
	change(frame)
	return frame
}

// passCases are what is not ours: untouched.
func passCases() []packetCase {
	plain := pkt.TCP(client4, vip4, pkt.ACK)
	tunnelled := plain.Inside(outer(native4))
	arp := with(plain.Frame(), func(f []byte) { f[12], f[13] = 0x08, 0x06 })
	short := with(tunnelled.Frame(), func(f []byte) { f[16] = 0xff }) // longer than the frame
	cut := with(plain.Frame(), func(f []byte) { f[16] = 0xff })
	header := with(plain.Frame(), func(f []byte) { f[14] = 0x44 }) // of 16 bytes
	tagged := tunnelled.With(pkt.VLANs(5))

	elsewhere := outer("10.1.0.99")
	fragment := outer(native4)
	fragment.DontFragment, fragment.MoreFragments = false, true

	return []packetCase{
		{"plain packet from the network", []step{inbound(plain, "pass_not_tunnel", nil)}},
		{"ping from the network", []step{inbound(pkt.ICMP("10.0.0.1", native4), "pass_not_tunnel", nil)}},
		{"tunnel of someone else", []step{inbound(plain.Inside(elsewhere), "pass_unknown_tunnel", nil)}},
		{"fragment of a tunnel", []step{inbound(plain.Inside(fragment), "pass_fragment", nil)}},
		{"ARP", []step{
			{program: "from_uplink", in: arp, verdict: "pass_other"},
			{program: "to_uplink", in: arp, verdict: "pass_other"},
			{program: "from_workload", in: arp, verdict: "pass_other"},
		}},
		{"VLAN tag", []step{
			inbound(tagged, "pass_tagged", nil),
			outbound("to_uplink", tagged, "pass_tagged", nil),
			outbound("from_workload", tagged, "pass_tagged", nil),
		}},
		{"truncated", []step{
			{program: "from_uplink", in: short, verdict: "pass_malformed"},
			{program: "from_uplink", in: header, verdict: "pass_malformed"},
			{program: "to_uplink", in: header, verdict: "pass_malformed"},
			{program: "from_workload", in: cut, verdict: "pass_malformed"},
		}},
		{"from a workload, no session", []step{
			outbound("from_workload", pkt.TCP("10.1.0.6:8080", client4, pkt.ACK), "pass_no_session", nil),
			outbound("to_uplink", pkt.UDP("[fd01::5]:8080", client6), "pass_no_session", nil),
			outbound("to_uplink", pkt.ICMP(native4, "198.51.100.7"), "pass_other", nil),
			outbound("from_workload", pkt.UDP("10.1.0.6:8080", client4, pkt.Fragment(0, true)), "pass_no_session", nil),
			outbound("from_workload", pkt.UDP("10.1.0.6:8080", client4, pkt.Fragment(3, false)), "pass_fragment", nil),
		}},
	}
}

// refusalCases are encapsulated packets for us that no workload may see.
func refusalCases() []packetCase {
	in := pkt.TCP(client4, vip4, pkt.ACK)
	stranger4, stranger6 := outer(native4), outer(native6)
	stranger4.Source = stranger4.Source.Next()
	stranger6.Source = stranger6.Source.Next()
	return []packetCase{
		{"from an outsider", []step{
			inbound(in.Inside(stranger4), "drop_not_a_mux", nil),
			inbound(in.Inside(stranger6), "drop_not_a_mux", nil),
		}},
		{"no such port", []step{
			inbound(pkt.TCP(client4, "203.0.113.10:81", pkt.SYN).Inside(outer(native4)), "drop_no_rule", nil),
		}},
		{"no such VIP", []step{
			inbound(pkt.TCP(client4, "203.0.113.99:80", pkt.SYN).Inside(outer(native4)), "drop_no_rule", nil),
		}},
		{"workload is down", []step{inbound(in.Inside(outer(down4)), "drop_no_workload", nil)}},
		{"buffer that can't be decapsulated", []step{
			{program: "from_uplink", in: in.Inside(outer(native4)).Frame(), skb: gso(3, 1000), verdict: "drop_decapsulate"},
		}},
	}
}

// innerCases are a mux's packets with something odd inside.
func innerCases() []packetCase {
	in := pkt.TCP(client4, vip4, pkt.ACK).Inside(outer(native4))
	in6 := pkt.UDP(client6, vip6).Inside(outer(native4))
	inner := 14 + 20

	longer := with(in.Frame(), func(f []byte) { f[inner+3]++ })
	wrongFamily := with(in.Frame(), func(f []byte) { f[14+9] = 41; f[24], f[25] = 0, 0 })
	header := with(in.Frame(), func(f []byte) { f[inner] = 0x44 })
	offset := with(in.Frame(), func(f []byte) { f[in.L4()+12] = 0x40 })
	// The outer header ends the packet where the inner one begins; what follows is padding.
	emptied := with(in.Frame(), func(f []byte) { f[16], f[17] = 0, 20 })
	longer6 := with(in6.Frame(), func(f []byte) { f[inner+4] = 0xff })

	padded := in.With(pkt.Padding(9))
	paddedOut := delivered(padded, native4)
	options := in.With(pkt.IPOptions(40))
	optionsOut := delivered(options, native4)
	outerOptions := outer(native4)
	outerOptions.Options = []byte{1, 1, 1, 1, 1, 1, 1, 1}
	optionsOutside := pkt.TCP(client4, vip4, pkt.ACK).Inside(outerOptions)
	optionsOutsideOut := delivered(optionsOutside, native4)

	return []packetCase{
		{"malformed inside", []step{
			{program: "from_uplink", in: longer, verdict: "drop_inner_malformed"},
			{program: "from_uplink", in: wrongFamily, verdict: "drop_inner_malformed"},
			{program: "from_uplink", in: header, verdict: "drop_inner_malformed"},
			{program: "from_uplink", in: offset, verdict: "drop_inner_malformed"},
			{program: "from_uplink", in: emptied, verdict: "drop_inner_malformed"},
			{program: "from_uplink", in: longer6, verdict: "drop_inner_malformed"},
		}},
		{"fragments inside", []step{
			inbound(pkt.UDP(client4, vip4, pkt.Fragment(0, true)).Inside(outer(native4)), "drop_inner_fragment", nil),
			inbound(pkt.UDP(client4, vip4, pkt.Fragment(3, false)).Inside(outer(native4)), "drop_inner_fragment", nil),
			inbound(pkt.UDP(client6, vip6, pkt.Fragment(0, true)).Inside(outer(native6)), "drop_inner_fragment", nil),
		}},
		{"other protocols inside", []step{
			inbound(pkt.ICMP("198.51.100.7", "203.0.113.10").Inside(outer(native4)), "drop_inner_other", nil),
			inbound(pkt.UDP(client6, vip6, pkt.Protocol(layers.IPProtocolSCTP)).Inside(outer(native6)), "drop_inner_other", nil),
		}},
		{"padding behind", []step{inbound(padded, "deliver_native", &paddedOut)}},
		{"options inside", []step{inbound(options, "deliver_native", &optionsOut)}},
		{"options outside", []step{inbound(optionsOutside, "deliver_native", &optionsOutsideOut)}},
	}
}

// ecnCases are RFC 6040, figure 4.
func ecnCases() []packetCase {
	const notECT, ect1, ect0, ce, dscp = 0, 1, 2, 3, 0xb8
	var all []packetCase
	for _, c := range []struct {
		name               string
		outer, inner, want uint8
	}{
		{"congestion goes inside", ce, ect0, ce},
		{"congestion inside stays", ect0, ce, ce},
		{"ECT(1) goes inside", ect1, ect0, ect1},
		{"inner is kept", ect0, ect1, ect1},
		{"not capable is kept", ect0, notECT, notECT},
	} {
		for _, tunnel := range []string{native4, native6} {
			header := outer(tunnel)
			header.TOS = c.outer
			in4 := pkt.TCP(client4, vip4, pkt.ACK, pkt.TOS(dscp|c.inner)).Inside(header)
			in6 := pkt.TCP(client6, vip6, pkt.ACK, pkt.TOS(dscp|c.inner)).Inside(header)
			out4 := delivered(in4, native4, pkt.TOS(dscp|c.want))
			out6 := delivered(in6, native6, pkt.TOS(dscp|c.want))
			all = append(all, packetCase{c.name + " through " + tunnel, []step{
				inbound(in4, "deliver_native", &out4), inbound(in6, "deliver_native", &out6),
			}})
		}
	}
	header := outer(native4)
	header.TOS = ce
	return append(all, packetCase{"congestion that can't be told", []step{
		inbound(pkt.TCP(client4, vip4, pkt.ACK, pkt.TOS(dscp)).Inside(header), "drop_ecn", nil),
	}})
}

// mssCases are SYN/ACKs, whose MSS is clamped, and the SYNs before them, whose MSS is not.
func mssCases() []packetCase {
	nop := pkt.TCPOptions(layers.TCPOption{OptionType: layers.TCPOptionKindNop, OptionLength: 1})
	noOptions := func(p *pkt.Packet) { p.Options = nil }
	type change = func(*pkt.Packet)
	answer := func(name, client, vip, tunnel, dip string, flags pkt.Flags, before, after []change) packetCase {
		syn := pkt.TCP(client, vip, pkt.SYN, pkt.MSS(8960)).Inside(outer(tunnel))
		synOut := delivered(syn, dip)
		ack := replyTo(synOut, flags, append([]change{noOptions}, before...)...)
		ackOut := ack.With(append([]change{from(vip), noOptions}, after...)...)
		return packetCase{name, []step{
			inbound(syn, "deliver_native", &synOut),
			outbound("to_uplink", ack, "reply_native", &ackOut),
		}}
	}
	handshake := func(name, client, vip, tunnel, dip string, before, after uint16) packetCase {
		return answer(name, client, vip, tunnel, dip, pkt.SYN|pkt.ACK, []change{pkt.MSS(before)}, []change{pkt.MSS(after)})
	}
	v4 := func(name string, flags pkt.Flags, before, after []change) packetCase {
		return answer(name, client4, vip4, native4, native4, flags, before, after)
	}
	const synAck = pkt.SYN | pkt.ACK
	late := []change{nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop, nop}
	return []packetCase{
		handshake("MSS of v4", client4, vip4, native4, native4, 1460, clamped4),
		handshake("MSS of v6", client6, vip6, native4, native6, 1440, clamped6),
		handshake("MSS of v4 that is one too large", client4, vip4, native4, native4, clamped4+1, clamped4),
		handshake("MSS of v4 that is one less", client4, vip4, native4, native4, clamped4-1, clamped4-1),
		handshake("MSS of v4 that fits", client4, vip4, native4, native4, clamped4, clamped4),
		handshake("MSS of v6 that is small", client6, vip6, native6, native6, 536, 536),
		v4("MSS at an odd offset", synAck, []change{nop, pkt.MSS(1460)}, []change{pkt.MSS(clamped4)}),
		v4("MSS behind others", synAck, append(late, pkt.MSS(1460)), []change{pkt.MSS(clamped4)}),
		v4("no MSS", synAck, nil, nil),
		v4("MSS in a segment that is no SYN", pkt.ACK, []change{pkt.MSS(1460)}, []change{pkt.MSS(1460)}),
	}
}

// sessionCases are connections that meet in one session's place.
func sessionCases() []packetCase {
	tcp := func(vip string, flags pkt.Flags) (in, out pkt.Packet) {
		in = pkt.TCP(client4, vip, flags).Inside(outer(native4))
		return in, delivered(in, native4)
	}
	syn, synOut := tcp(vip4, pkt.SYN)
	ack, ackOut := tcp(vip4, pkt.ACK)
	fin, finOut := tcp(vip4, pkt.FIN|pkt.ACK)
	rst, rstOut := tcp(vip4, pkt.RST)
	forged, forgedOut := rst.With(numbers(7000, 0)), rstOut.With(numbers(7000, 0))
	other, otherOut := tcp(otherVIP4, pkt.SYN)

	reply := func(vip string, flags pkt.Flags, changes ...func(*pkt.Packet)) step {
		answer := replyTo(synOut, flags, numbers(1999, 1000)).With(changes...)
		direct := answer.With(from(vip))
		return outbound("to_uplink", answer, "reply_native", &direct)
	}
	open := []step{
		inbound(syn, "deliver_native", &synOut), reply(vip4, pkt.SYN|pkt.ACK), inbound(ack, "deliver_native", &ackOut),
	}
	after := func(steps ...step) []step { return append(append([]step(nil), open...), steps...) }
	return []packetCase{
		{"another VIP meets a live session", after(
			inbound(other, "drop_session_taken", nil), reply(vip4, pkt.ACK))},
		{"another VIP meets a half-closed session", after(
			inbound(fin, "deliver_native", &finOut),
			inbound(other, "drop_session_taken", nil))},
		{"another VIP follows a closed session", after(
			inbound(fin, "deliver_native", &finOut), reply(vip4, pkt.FIN|pkt.ACK, numbers(2000, 1000+payloadBytes+1)),
			inbound(other, "deliver_native", &otherOut), reply(otherVIP4, pkt.SYN|pkt.ACK))},
		{"another VIP meets a session whose FIN has another number", after(
			inbound(fin, "deliver_native", &finOut), reply(vip4, pkt.FIN|pkt.ACK),
			inbound(other, "drop_session_taken", nil))},
		{"another VIP follows a reset", after(
			inbound(rst, "deliver_native", &rstOut),
			inbound(other, "deliver_native", &otherOut), reply(otherVIP4, pkt.SYN|pkt.ACK))},
		{"another VIP meets a session whose reset has another number", after(
			inbound(forged, "deliver_native", &forgedOut),
			inbound(other, "drop_session_taken", nil))},
		{"another VIP meets a session whose reset was ignored", after(
			inbound(rst, "deliver_native", &rstOut), reply(vip4, pkt.ACK),
			inbound(other, "drop_session_taken", nil))},
		{"unknown connection is reset", []step{
			inbound(ack, "deliver_native", &ackOut), reply(vip4, pkt.RST),
		}},
	}
}

// routeCases are replies of a workload behind an interface by where the client is.
func routeCases() []packetCase {
	meet := func(name, client, verdict string) packetCase {
		in := pkt.TCP(client, vip4, pkt.ACK).Inside(outer(interface4))
		out := delivered(in, interface4)
		answer := replyTo(out, pkt.ACK)
		direct := answer.With(from(vip4))
		return packetCase{name, []step{
			inbound(in, "deliver_interface", &out),
			outbound("from_workload", answer, verdict, &direct),
		}}
	}
	return []packetCase{
		meet("client far away", client4, "reply_uplink"),
		meet("client behind an interface here", interface4+":40000", "reply_interface"),
		meet("client on this host", native4+":40000", "reply_host"),
	}
}

// TestCongestionKeepsTheFlowLabel has the first word of an inner IPv6 header written: the low half of its class
// shares a byte with the flow label.
func TestCongestionKeepsTheFlowLabel(t *testing.T) {
	r := newRig(t)
	header := outer(native6)
	header.TOS = 3 // congestion
	in := pkt.TCP(client6, vip6, pkt.ACK, pkt.TOS(0xb8|2)).Inside(header)
	frame := in.Frame()
	inner := ethernetHeader + 40
	copy(frame[inner+1:], []byte{0xad, 0xbe, 0xef}) // class a, and a label of dbeef
	got := r.run("from_uplink", frame, nil)
	if got.verdict != "deliver_native" {
		t.Fatalf("verdict is %s", got.verdict)
	}
	if want := []byte{0x6b, 0xbd, 0xbe, 0xef}; !bytes.Equal(got.frame[ethernetHeader:ethernetHeader+4], want) {
		t.Errorf("the inner header begins with %x, not %x", got.frame[ethernetHeader:ethernetHeader+4], want)
	}
}
