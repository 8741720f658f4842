package agent

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// A connection of each family, transport and kind of workload: out as the VIP, its answers in.
func TestSNATConnections(t *testing.T) {
	r := snatRig(t)
	for _, c := range []struct{ dip, remote, vip string }{
		{native4, remote4, crawler4},
		{guest4, remote4, crawler4},
		{native6, remote6, crawler6},
		{guest6, remote6, crawler6},
	} {
		for _, protocol := range []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP} {
			for _, port := range []uint16{50000, backendPort} { // of a service, replies are looked for first
				t.Run(fmt.Sprintf("%s of %s from port %d", protocol, c.dip, port), func(t *testing.T) {
					r.t = t
					r.connects(protocol, netip.AddrPortFrom(netip.MustParseAddr(c.dip), port), c.remote, c.vip)
				})
			}
		}
	}
}

// connects has a workload begin a connection, and both ends go on.
func (r *rig) connects(protocol layers.IPProtocol, own netip.AddrPort, remote, vip string) {
	r.t.Helper()
	dip := own.Addr().String()
	first := pkt.UDP(own.String(), remote)
	if protocol == layers.IPProtocolTCP {
		first = pkt.TCP(own.String(), remote, pkt.SYN, pkt.MSS(1460))
	}
	out := r.leaves(dip, first)
	want := first.With(from(netip.AddrPortFrom(netip.MustParseAddr(vip), out.SourcePort).String()))
	if protocol == layers.IPProtocolTCP {
		clamped := uint16(clamped4)
		if own.Addr().Is6() {
			clamped = clamped6
		}
		want = want.With(func(p *pkt.Packet) { p.Options = nil }, pkt.MSS(clamped))
	}
	if diff := differences(want, out.Frame()); diff != "" {
		r.t.Errorf("left as (-want +got):\n%s", diff)
	}
	r.answers(dip, first, out)
}

// answers has the remote answer, and the workload go on.
func (r *rig) answers(dip string, first, out pkt.Packet) {
	r.t.Helper()
	if model.RangeOf(out.SourcePort) != firstRange && model.RangeOf(out.SourcePort) != firstRange+1 {
		r.t.Errorf("left from port %d, which is not the workload's", out.SourcePort)
	}
	kind := "deliver_native"
	if dip == guest4 || dip == guest6 {
		kind = "deliver_interface"
	}
	answer := answered(out, dip, pkt.SYN|pkt.ACK)
	if first.Protocol != layers.IPProtocolTCP {
		answer.Flags = 0
	}
	delivered := answer.With(func(p *pkt.Packet) {
		p.Outer, p.IP.Destination, p.DestinationPort = nil, first.IP.Source, first.SourcePort
	})
	r.check("answer", step{program: "from_uplink", in: answer.Frame(), verdict: kind, want: &delivered})
	second := first.With(func(p *pkt.Packet) { p.Options = nil })
	if first.Protocol == layers.IPProtocolTCP {
		second.Flags = pkt.ACK
	}
	again := r.leaves(dip, second)
	if again.SourcePort != out.SourcePort || again.IP.Source != out.IP.Source {
		r.t.Errorf("left as %v:%d, then as %v:%d", out.IP.Source, out.SourcePort, again.IP.Source, again.SourcePort)
	}
	outsider := answer.With(func(p *pkt.Packet) { p.SourcePort++ })
	if got := r.verdict("from_uplink", outsider); got != "drop_no_rule" {
		r.t.Errorf("an outsider's packet is %s", got)
	}
}

// What is left alone, refused or waits, each by its name.
func TestSNATVerdicts(t *testing.T) {
	syn := func(source, to string) pkt.Packet { return pkt.TCP(source, to, pkt.SYN) }
	for _, c := range []struct {
		name, program string
		packet        pkt.Packet
		want          string
	}{
		{"a destination of the VIP's exceptions", "to_uplink", syn(native4+":50000", "10.9.9.9:80"), "pass_snat_exempt"},
		{"a destination that is always left alone", "to_uplink", syn(native4+":50000", "169.254.169.254:80"), "pass_snat_exempt"},
		{"a manager", "to_uplink", syn(native4+":50000", "192.0.2.1:7400"), "pass_snat_exempt"},
		{"a workload of this host", "to_uplink", syn(native4+":50000", interface4+":80"), "pass_snat_exempt"},
		{"multicast", "to_uplink", pkt.UDP("["+native6+"]:5353", "[ff02::fb]:5353"), "pass_snat_exempt"},
		{"in the middle of an unknown connection", "to_uplink", pkt.TCP(native4+":50000", remote4, pkt.ACK), "pass_no_flow"},
		{"an answer of a server that is reached directly", "to_uplink", pkt.TCP(native4+":50000", remote4, pkt.SYN|pkt.ACK), "pass_no_flow"},
		{"a workload that is not listed", "to_uplink", syn("10.1.0.99:50000", remote4), "pass_no_session"},
		{"another's address from an interface", "from_workload", syn(native4+":50000", remote4), "drop_spoofed_source"},
		{"the agent's word for a workload's tunnel", "to_uplink", pkt.UDP(interface4+":50000", remote4GUE), "pass_no_session"},
		{"the agent's word for a workload that leaves as a VIP", "to_uplink", pkt.UDP(guest4+":50000", remote4GUE), "pass_ours"},
		{"the agent's word for a native workload", "to_uplink", pkt.UDP(native4+":50000", remote4GUE), "pass_ours"},
		{"the agent's word, by IPv6", "to_uplink", pkt.UDP("["+guest6+"]:50000", "[2001:db8::7]:6080"), "pass_ours"},
		{"another's address from the host", "to_uplink", syn(guest4+":50000", remote4), "drop_spoofed_source"},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := snatRig(t)
			got := r.run(c.program, c.packet.Frame(), nil)
			if got.verdict != c.want {
				t.Fatalf("verdict is %s, not %s", got.verdict, c.want)
			}
			if !bytes.Equal(got.frame, c.packet.Frame()) {
				t.Error("the frame was changed")
			}
			if n := r.flowCount(); n != 0 {
				t.Errorf("%d flows are left", n)
			}
		})
	}
}
