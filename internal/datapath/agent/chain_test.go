package agent

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/pkt"
)

// handed is a packet that went on to another backend: from our tunnel address or, if that is of
// another family, from the host's.
func handed(inner pkt.Packet, own, other string, step uint8, changes ...func(*pkt.Packet)) *pkt.Packet {
	from := own
	if a := netip.MustParseAddr(other); a.Is4() != netip.MustParseAddr(own).Is4() {
		from = host6
		if a.Is4() {
			from = host4
		}
	}
	out := inGUE(inner, fromTo(from, other), step1(step, own)).With(changes...)
	return &out
}

// chainCases are packets with a step, in every mixture of families: the tunnel that they came to,
// the other tunnel, the packet itself.
func chainCases() []packetCase {
	var all []packetCase
	for _, own := range []string{native4, native6} {
		for _, other := range []string{peer4, peer6} {
			for _, family := range []int{4, 6} {
				all = append(all, chainSteps(own, other, family))
			}
		}
	}
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	asks := withoutChecksum(inGUE(ack, outer(native4), step1(stepAsk, peer6)))
	marked := outer(native4)
	marked.TOS = 0xb9
	long := outer(native4)
	long.Options = []byte{1, 1, 1, 1, 1, 1, 1, 1}
	return append(all,
		packetCase{"class and congestion go on", []step{carried(ack, marked, step1(stepAsk, peer4), "chain_on",
			handed(ack, native4, peer4, stepChained, func(p *pkt.Packet) { p.IP.TOS = 0xb9 }))}},
		packetCase{"outer options do not", []step{carried(ack, long, step1(stepAsk, peer4), "chain_on",
			handed(ack, native4, peer4, stepChained))}},
		packetCase{"buffer whose family can't be changed", []step{
			{program: "from_uplink", in: asks, skb: gso(3, 1000), verdict: "drop_chain"},
		}},
		packetCase{"from who is no peer", []step{
			carried(ack, fromTo(mux4, native4), step1(stepChained, peer4), "drop_not_chain_peer", nil),
			carried(ack, fromTo(peer4, native4), step1(stepChained, "10.1.0.51"), "drop_not_chain_peer", nil),
			carried(ack, fromTo("10.1.0.51", native4), step1(stepFinal, peer4), "drop_not_chain_peer", nil),
		}})
}

func chainSteps(own, other string, family int) packetCase {
	client, vip, dip, vipPort := client4, vip4, native4, vip4
	if family == 6 {
		client, vip, dip, vipPort = client6, vip6, native6, vip6
	}
	syn, ack, udp := pkt.TCP(client, vip, pkt.SYN), pkt.TCP(client, vip, pkt.ACK), pkt.UDP(client, vip)
	synOut, ackOut, udpOut := delivered(syn, dip), delivered(ack, dip), delivered(udp, dip)
	answer := replyTo(ackOut, pkt.ACK)
	direct := answer.With(from(vipPort))
	fromPeer := fromTo(other, own)
	if netip.MustParseAddr(other).Is4() != netip.MustParseAddr(own).Is4() {
		fromPeer = fromTo(map[bool]string{true: peer4, false: peer6}[netip.MustParseAddr(own).Is4()], own)
	}
	ask, chained, final := step1(stepAsk, other), step1(stepChained, other), step1(stepFinal, other)
	return packetCase{fmt.Sprintf("v%d to %s, before to %s", family, own, other), []step{
		// Nobody knows it here: it goes on, and opens nothing.
		carried(ack, outer(own), ask, "chain_on", handed(ack, own, other, stepChained)),
		carried(ack, outer(own), ask, "chain_on", handed(ack, own, other, stepChained)),
		outbound("to_uplink", answer, "pass_no_session", nil),
		// Handed on to us, it goes back.
		carried(ack, fromPeer, chained, "chain_back", handed(ack, own, other, stepFinal)),
		carried(udp, outer(own), ask, "chain_on", handed(udp, own, other, stepChained)),
		carried(udp, fromPeer, chained, "chain_back", handed(udp, own, other, stepFinal)),
		// Handed back, it stays; as what the workload has not answered, it is still unknown.
		carried(ack, fromPeer, final, "deliver_native", &ackOut),
		carried(udp, fromPeer, final, "deliver_native", &udpOut),
		carried(ack, outer(own), ask, "chain_on", handed(ack, own, other, stepChained)),
		carried(udp, outer(own), ask, "deliver_native", &udpOut),
		outbound("to_uplink", answer, "reply_native", &direct),
		carried(ack, outer(own), ask, "deliver_native", &ackOut),
		carried(ack, fromPeer, chained, "deliver_native", &ackOut),
		// A SYN is the bucket's.
		carried(syn, outer(own), ask, "deliver_native", &synOut),
	}}
}

// chainHereCases are two backends of an endpoint on one host: nothing is sent.
func chainHereCases() []packetCase {
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	nativeOut, interfaceOut := delivered(ack, native4), delivered(ack, interface4)
	answer := replyTo(interfaceOut, pkt.ACK)
	direct := answer.With(from(vip4))
	ask := step1(stepAsk, interface4)
	return []packetCase{
		{"the other backend is here, and knows", []step{
			carried(ack, outer(interface4), gue{}, "deliver_interface", &interfaceOut),
			outbound("from_workload", answer, "reply_uplink", &direct),
			carried(ack, outer(native4), ask, "deliver_interface", &interfaceOut),
		}},
		{"the other backend is here, and knows nothing", []step{
			carried(ack, outer(native4), ask, "deliver_native", &nativeOut),
		}},
		{"the other backend is itself", []step{
			carried(ack, outer(native4), step1(stepAsk, native4), "deliver_native", &nativeOut),
		}},
	}
}

// TestChainWithoutFamily hands nothing on that it has no address for.
func TestChainWithoutFamily(t *testing.T) {
	r := newRig(t)
	if err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.Address6 = bpf.AgentAddress{} }); err != nil {
		t.Fatal(err)
	}
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	r.check("other family", carried(ack, outer(native4), step1(stepAsk, peer6), "drop_chain_family", nil))
	r.check("same family", carried(ack, outer(native4), step1(stepAsk, peer4), "chain_on", handed(ack, native4, peer4, stepChained)))
}
