package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// inGRE is an IP packet in GRE with these flags.
func inGRE(ip []byte, outer pkt.IP, flags ...byte) pkt.Packet {
	header := []byte{0, 0, 0x08, 0x00}
	if ip[0]>>4 == 6 {
		header = []byte{0, 0, 0x86, 0xdd}
	}
	copy(header, flags)
	return pkt.ICMP(outer.Source.String(), outer.Destination.String(), pkt.Protocol(layers.IPProtocolGRE), pkt.Payload(append(header, ip...)),
		func(p *pkt.Packet) { p.IP = outer })
}

// byGRE is a packet that a switch brings to a tunnel in GRE.
func byGRE(p pkt.Packet, tunnel string, flags ...byte) []byte {
	source := switch4
	if netip.MustParseAddr(tunnel).Is6() {
		source = switch6
	}
	return inGRE(p.Frame()[ethernetHeader:], fromTo(source, tunnel), flags...).Frame()
}

// TestGREOfSwitches takes what a switch brings in GRE as what it brings in IP: here, or on to another host, and what GRO
// has merged on in GRE.
func TestGREOfSwitches(t *testing.T) {
	for own, far := range map[string]string{native4: farHost4, native6: farHost6} {
		for _, w := range []struct{ client, vip, dip string }{{client4, vip4, native4}, {client6, vip6, native6}} {
			r := newRig(t)
			r.hold(w.vip, own)
			for _, p := range []pkt.Packet{pkt.TCP(w.client, w.vip, pkt.SYN), pkt.UDP(w.client, w.vip), pkt.UDP(w.client, w.vip, pkt.Payload(nil))} {
				out := delivered(p, w.dip)
				r.check("here", step{program: "from_uplink", in: byGRE(p, own), verdict: "deliver_native", want: &out})
			}
			slot := model.Slot(farSlot4)
			if far == farHost6 {
				slot = farSlot6
			}
			e := heldEndpoint(model.TCP, w.vip, own)
			e.Buckets = slices.Repeat([]model.Slot{slot}, 256)
			r.steer(held(e))
			ack := pkt.TCP(w.client, w.vip, pkt.ACK, pkt.Payload(make([]byte, 200)))
			r.leavesSteered(byGRE(ack, own), "steered_bucket", steered(ack, own, far, gue{}))
			got := r.run("from_uplink", byGRE(ack, own), gso(3, 100))
			want := inGRE(ack.Frame()[ethernetHeader:], hops(fromTo(own, far), hopsLast)).Frame()
			if got.verdict != "steered_bucket" || !slices.Equal(got.frame[ethernetHeader:], want[ethernetHeader:]) {
				t.Errorf("merged: verdict is %s, frame\n%x, not\n%x", got.verdict, got.frame, want)
			}
			out := delivered(ack, w.dip)
			in := inGRE(ack.Frame()[ethernetHeader:], hops(fromTo(far, own), hopsLast)).Frame()
			r.check("merged, from a host of the VIP", step{program: "from_uplink", in: in, verdict: "deliver_native", want: &out})
		}
	}
}

// TestGREOfOthersPasses leaves alone what is neither a switch's nor a VIP host's, or more than GRE must have.
func TestGREOfOthersPasses(t *testing.T) {
	r := newRig(t)
	p := pkt.TCP(client4, vip4, pkt.ACK)
	passes := func(what string, frame []byte) {
		t.Helper()
		r.check(what, step{program: "from_uplink", in: frame, verdict: "pass_not_tunnel"})
	}
	passes("no VIP is held", byGRE(p, native4))
	r.hold(vip4, native4)
	for _, flags := range [][]byte{{0x80}, {0x40}, {0x20}, {0x10}, {0, 1}, {0, 7}} {
		passes("a checksum, a key, a number or a version", byGRE(p, native4, flags...))
	}
	passes("no IP inside", byGRE(p, native4, 0, 0, 0x65, 0x58))
	ip := p.Frame()[ethernetHeader:]
	for _, source := range []string{mux4, otherSwitch4, "10.1.0.61"} {
		passes("from "+source, inGRE(ip, fromTo(source, native4)).Frame())
	}
	for _, inner := range []pkt.Packet{pkt.TCP(client4, otherVIP4, pkt.ACK), pkt.TCP(client6, vip6, pkt.ACK), pkt.UDP(farHost4+":1", native4+":2")} {
		passes("a host's own, for no VIP that it is a host of", inGRE(inner.Frame()[ethernetHeader:], fromTo(farHost4, native4)).Frame())
	}
	passes("a host's, cut off before the address", inGRE(ip[:19], fromTo(farHost4, native4)).Frame())
	short := inGRE(ip, fromTo(switch4, native4))
	short.Payload = short.Payload[:3]
	passes("three bytes", short.Frame())
	short.Payload = append(short.Payload, 0)
	r.check("nothing inside", step{program: "from_uplink", in: short.Frame(), verdict: "drop_inner_malformed"})
	other := pkt.TCP(client4, otherVIP4, pkt.ACK)
	r.check("a VIP that it does not hold", step{program: "from_uplink", in: byGRE(other, native4), verdict: "drop_not_a_mux"})
	r.check("to no tunnel", step{program: "from_uplink", in: byGRE(p, "10.1.0.99"), verdict: "pass_unknown_tunnel"})
}
