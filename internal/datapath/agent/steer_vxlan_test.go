package agent

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/hardware"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// bySwitch is VXLAN from a switch to a tunnel.
func bySwitch(tunnel string, changes ...func(*pkt.VXLAN)) pkt.VXLAN {
	source := switch4
	if netip.MustParseAddr(tunnel).Is6() {
		source = switch6
	}
	v := pkt.VXLAN{
		Source: pkt.MAC{2, 0, 0, 0, 0, 1}, Destination: pkt.MAC{2, 0, 0, 0, 0, 2}, Outer: fromTo(source, tunnel),
		SourcePort: entropy, VNI: hardware.VXLANNetwork,
	}
	for _, change := range changes {
		change(&v)
	}
	return v
}

// TestVXLANOfSwitches takes what a switch brings in VXLAN as what it brings in IP: here, or on to another host.
func TestVXLANOfSwitches(t *testing.T) {
	if hardware.VXLANNetwork != bpf.AgentSteerNetworkSTEER_VNI {
		t.Fatalf("drivers send in network %#x, hosts take %#x", hardware.VXLANNetwork, bpf.AgentSteerNetworkSTEER_VNI)
	}
	for _, own := range []string{native4, native6} {
		for _, w := range []struct{ client, vip, dip string }{{client4, vip4, native4}, {client6, vip6, native6}} {
			r := newRig(t)
			r.hold(w.vip, own)
			for _, p := range []pkt.Packet{pkt.TCP(w.client, w.vip, pkt.SYN), pkt.UDP(w.client, w.vip), pkt.UDP(w.client, w.vip, pkt.Payload(nil))} {
				out := delivered(p, w.dip)
				r.check("here", step{program: "from_uplink", in: bySwitch(own).Frame(p), verdict: "deliver_native", want: &out})
			}
			tcp, udp := heldEndpoint(model.TCP, w.vip, own), heldEndpoint(model.UDP, w.vip, own)
			tcp.Buckets = slices.Repeat([]model.Slot{farSlot4}, 256)
			udp.Buckets = tcp.Buckets
			r.steer(held(tcp, udp))
			ack := pkt.TCP(w.client, w.vip, pkt.ACK)
			r.leavesSteered(bySwitch(own).Frame(ack), "steered_bucket", steered(ack, own, farHost4, gue{}))
			// Several in a buffer, which GRO has merged, each with its headers.
			two := bySwitch(own).Carry(append(ack.Frame(), ack.Frame()...))
			r.check("merged", step{program: "from_uplink", in: two, skb: gso(3, 100), verdict: "drop_gue_merged"})
		}
	}
}

// TestVXLANOfOthersPasses leaves alone what is no switch's, or not of the network for that.
func TestVXLANOfOthersPasses(t *testing.T) {
	r := newRig(t)
	p := pkt.TCP(client4, vip4, pkt.ACK)
	passes := func(what string, frame []byte) {
		t.Helper()
		r.check(what, step{program: "from_uplink", in: frame, verdict: "pass_not_tunnel"})
	}
	passes("no VIP is held", bySwitch(native4).Frame(p))
	r.hold(vip4, native4)
	passes("another network", bySwitch(native4, func(v *pkt.VXLAN) { v.VNI++ }).Frame(p))
	for i := range 4 {
		passes("a reserved bit", bySwitch(native4, func(v *pkt.VXLAN) { v.Reserved[i] = 1 }).Frame(p))
	}
	for _, source := range []string{mux4, farHost4, otherSwitch4} {
		passes("from "+source, bySwitch(native4, func(v *pkt.VXLAN) { v.Outer.Source = netip.MustParseAddr(source) }).Frame(p))
	}
	passes("a tag inside", bySwitch(native4).Frame(p.With(pkt.VLANs(7))))
	passes("no IP inside", bySwitch(native4).Carry(append(make([]byte, 12), 0x08, 0x06, 0, 1, 8, 0, 6, 4, 0, 1)))
	whole := bySwitch(native4).Carry(nil)
	passes("nothing inside", whole)
	other := pkt.TCP(client4, otherVIP4, pkt.ACK)
	r.check("a VIP that it does not hold", step{program: "from_uplink", in: bySwitch(native4).Frame(other), verdict: "drop_not_a_mux"})
	gre := pkt.ICMP("198.51.100.7", "203.0.113.10", pkt.Protocol(layers.IPProtocol(253)))
	if got := r.run("from_uplink", bySwitch(native4).Frame(gre), nil); got.action == tcxRedirect {
		t.Errorf("verdict %s of a packet that no endpoint takes", got.verdict)
	}
}
