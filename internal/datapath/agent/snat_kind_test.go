package agent

import (
	"bytes"
	"encoding/binary"
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Pings leave with another identifier, and their answers come with the workload's.
func TestSNATEcho(t *testing.T) {
	r := snatRig(t)
	for _, c := range []struct {
		dip, vip, remote string
		request, reply   uint8
		at               int // of the ICMP header in the IP packet
	}{
		{native4, crawler4, "198.51.100.7", echo4, 0, 20},
		{native6, crawler6, "2001:db8::7", echo6, 129, 40},
	} {
		sent := echo(c.dip, c.remote, c.request, 77)
		got := r.run("to_uplink", asFrame(sent), nil)
		if got.verdict != "snat_native" {
			t.Fatalf("ping of %s: verdict is %s", c.dip, got.verdict)
		}
		out := got.frame[ethernetHeader:]
		id := binary.BigEndian.Uint16(out[c.at+4:])
		if model.RangeOf(id) != firstRange {
			t.Errorf("identifier %d is not the workload's", id)
		}
		if want := echo(c.vip, c.remote, c.request, id); !bytes.Equal(out, want) {
			t.Errorf("ping of %s is\n%x, not\n%x", c.dip, out, want)
		}
		answer := r.run("from_uplink", inTunnel(echo(c.remote, c.vip, c.reply, id), c.dip), nil)
		if want := echo(c.remote, c.dip, c.reply, 77); answer.verdict != "deliver_native" || !bytes.Equal(answer.frame[ethernetHeader:], want) {
			t.Errorf("answer is %s\n%x, not\n%x", answer.verdict, answer.frame, want)
		}
		if got := r.run("from_uplink", inTunnel(echo(c.remote, c.vip, c.reply, id+1), c.dip), nil); got.verdict != "drop_no_rule" {
			t.Errorf("an answer to nobody's ping is %s", got.verdict)
		}
		if got := r.run("to_uplink", asFrame(echo(c.dip, c.remote, c.reply, 77)), nil); got.verdict != "pass_other" {
			t.Errorf("an answer of the workload's own is %s", got.verdict)
		}
		// An error about the ping.
		quoted := echo(c.vip, c.remote, c.request, id)
		kind := uint8(timeExceeded4)
		if c.at == 40 {
			kind = timeExceeded6
		}
		failed := r.run("from_uplink", inTunnel(message("192.0.2.77", c.vip, kind, quoted), c.dip), nil)
		if c.at == 40 {
			failed = r.run("from_uplink", inTunnel(message("2001:db8::77", c.vip, kind, quoted), c.dip), nil)
		}
		if failed.verdict != "deliver_native" || binary.BigEndian.Uint16(failed.frame[ethernetHeader+c.at+8+c.at+4:]) != 77 {
			t.Errorf("an error about a ping is %s\n%x", failed.verdict, failed.frame)
		}
	}
}

// Errors about workloads' own packets come back to what they sent; those of workloads speak of the VIP.
func TestSNATErrors(t *testing.T) {
	r := snatRig(t)
	for _, c := range []struct{ dip, remote, router, vip string }{
		{native4, remote4, "192.0.2.77", crawler4},
		{guest6, remote6, "2001:db8::77", crawler6},
	} {
		program, kind, verdict, unreachable := "to_uplink", uint8(unreachable4), "deliver_native", uint8(unreachable4)
		if c.dip == guest6 {
			program, kind, verdict, unreachable = "from_workload", tooBig6, "deliver_interface", unreachable6
		}
		sent := pkt.UDP(own(c.dip, 50000), c.remote)
		out := r.leaves(c.dip, sent)
		in := message(c.router, c.vip, kind, quote(out, 48))
		want := message(c.router, c.dip, kind, quotes(quote(out, 48), true, own(c.dip, 50000)))
		got := r.run("from_uplink", inTunnel(in, c.dip), nil)
		if got.verdict != verdict || !bytes.Equal(got.frame[ethernetHeader:], want) {
			t.Errorf("error to %s is %s\n%x, not\n%x", c.dip, got.verdict, got.frame[ethernetHeader:], want)
		}
		remote := netip.MustParseAddrPort(c.remote)
		answer := replyTo(sent, 0)
		mine := message(c.dip, remote.Addr().String(), unreachable, quote(answer, 48))
		external := own(c.vip, int(out.SourcePort))
		want = message(c.vip, remote.Addr().String(), unreachable, quotes(quote(answer, 48), false, external))
		got = r.run(program, asFrame(mine), nil)
		if !bytes.Equal(got.frame[ethernetHeader:], want) {
			t.Errorf("error of %s is %s\n%x, not\n%x", c.dip, got.verdict, got.frame[ethernetHeader:], want)
		}
	}
}

// With one mapping for all, a port of the workload is one port of the VIP, and its filtering says who may
// send to it.
func TestSNATFiltering(t *testing.T) {
	const outsider = "198.51.100.9:9999"
	for _, c := range []struct {
		filtering                               model.Filtering
		sameAddress, outsider, strangersSegment string
	}{
		{model.FilterAddressAndPort, "drop_no_rule", "drop_no_rule", "drop_no_rule"},
		{model.FilterAddress, "deliver_native", "drop_filtered", "drop_filtered"},
		{model.FilterNone, "deliver_native", "deliver_native", "drop_filtered"},
	} {
		t.Run(string(c.filtering), func(t *testing.T) {
			r := snatRig(t, filtering(c.filtering))
			first := pkt.UDP(own(native4, 50000), remote4)
			out := r.leaves(native4, first)
			second := r.leaves(native4, pkt.UDP(own(native4, 50000), otherRemote4))
			if c.filtering != model.FilterAddressAndPort && second.SourcePort != out.SourcePort {
				t.Errorf("towards another the port is %d, not %d", second.SourcePort, out.SourcePort)
			}
			if other := r.leaves(native4, pkt.UDP(own(native4, 50001), remote4)); other.SourcePort == out.SourcePort {
				t.Error("two ports of the workload share one towards the same remote")
			}
			if got := r.verdict("from_uplink", answered(out, native4, 0)); got != "deliver_native" {
				t.Errorf("the answer is %s", got)
			}
			same := answered(out, native4, 0, func(p *pkt.Packet) { p.SourcePort = 9999 })
			if got := r.verdict("from_uplink", same); got != c.sameAddress {
				t.Errorf("from another port: verdict is %s, not %s", got, c.sameAddress)
			}
			strange := answered(out, native4, 0, from(outsider))
			if got := r.verdict("from_uplink", strange); got != c.outsider {
				t.Errorf("from an outsider: verdict is %s, not %s", got, c.outsider)
			}
			if c.outsider == "deliver_native" {
				back := r.leaves(native4, pkt.UDP(own(native4, 50000), outsider))
				if back.SourcePort != out.SourcePort {
					t.Errorf("the outsider is answered from %d, not %d", back.SourcePort, out.SourcePort)
				}
			}
			tcp := r.leaves(native4, pkt.TCP(own(native4, 50000), remote4, pkt.SYN))
			segment := answered(tcp, native4, pkt.ACK, from(outsider))
			if got := r.verdict("from_uplink", segment); got != c.strangersSegment {
				t.Errorf("an outsider's segment: verdict is %s, not %s", got, c.strangersSegment)
			}
		})
	}
}

// A flow that waited for a port gets that of its mapping, as those do that come later.
func TestSNATMappingOfHeldFlows(t *testing.T) {
	for _, remote := range []struct{ dip, first, second, outsider string }{
		{native4, remote4, otherRemote4, "198.51.100.9:9999"},
		{guest6, remote6, "[2001:db8::8]:80", "[2001:db8::99]:9999"},
	} {
		r := snatRig(t, filtering(model.FilterNone), ranges(0))
		program := "to_uplink"
		if remote.dip == guest6 {
			program = "from_workload"
		}
		first := pkt.UDP(own(remote.dip, 50000), remote.first)
		if got := r.verdict(program, first); got != "snat_queue" {
			t.Fatalf("without ports: verdict is %s", got)
		}
		r.listed(filtering(model.FilterNone), ranges(1))
		r.leaves(remote.dip, pkt.UDP(own(remote.dip, 50001), remote.second)) // has the first of the ports
		flow := snat.Flow{Protocol: model.UDP, Workload: netip.MustParseAddrPort(own(remote.dip, 50000)), Remote: netip.MustParseAddrPort(remote.first)}
		external, found, err := r.AssignPort(flow)
		if err != nil || !found {
			t.Fatal(external, found, err)
		}
		if opened, err := r.OpenFlow(flow, 1); err != nil || !opened {
			t.Fatal(opened, err)
		}
		for _, to := range []string{remote.first, remote.second} {
			if out := r.leaves(remote.dip, pkt.UDP(own(remote.dip, 50000), to)); out.SourcePort != external.Port() {
				t.Errorf("to %s from port %d, not %d", to, out.SourcePort, external.Port())
			}
		}
		out := r.leaves(remote.dip, first)
		if got := r.verdict("from_uplink", answered(out, remote.dip, 0, from(remote.outsider))); !strings.HasPrefix(got, "deliver_") {
			t.Errorf("from an outsider: verdict is %s", got)
		}
		if flows, err := r.Flows(); err != nil || len(flows) != 6 { // two of them mappings
			t.Errorf("flows are %v, %v", flows, err)
		}
	}
}

// Fragments follow their first one, both ways; without a port the whole datagram is dropped.
func TestSNATFragments(t *testing.T) {
	r := snatRig(t)
	whole := pkt.UDP(own(native4, 50000), remote4)
	first, last := piece(whole, 0, true), piece(whole, 5, false)
	r.leaves(native4, first)
	flows, err := r.Flows()
	if err != nil || len(flows) != 1 {
		t.Fatal(flows, err)
	}
	external := flows[0].External.String()
	got := r.run("to_uplink", last.Frame(), nil)
	want := last.With(func(p *pkt.Packet) { p.IP.Source = netip.MustParseAddr(crawler4) })
	if diff := differences(want, got.frame); diff != "" {
		t.Errorf("the last one left by %s as (-want +got):\n%s", got.verdict, diff)
	}
	answer := replyTo(whole.With(from(external)), 0)
	carrier := ports(remote4, external)
	for offset, more := range map[uint16]bool{0: true, 5: false} {
		in := piece(answer, offset, more)
		delivered := in.With(func(p *pkt.Packet) {
			p.IP.Destination = netip.MustParseAddr(native4)
			if p.DestinationPort != 0 {
				p.DestinationPort = 50000
			}
		})
		arrives := carried(in, outer(native4), carrier, "deliver_native", nil)
		if got := r.run("from_uplink", arrives.in, nil); got.verdict != arrives.verdict || !bytes.Equal(got.frame, delivered.Frame()) {
			t.Errorf("the piece at %d is %s\n%x, not\n%x", offset, got.verdict, got.frame, delivered.Frame())
		}
	}
	r.listed(ranges(0))
	lost := whole.With(func(p *pkt.Packet) { p.IP.ID = 4711; p.SourcePort = 50001 })
	for _, p := range []pkt.Packet{piece(lost, 0, true), piece(lost, 5, false)} {
		if got := r.verdict("to_uplink", p); got != "drop_snat_queue_fragment" {
			t.Errorf("without a port: verdict is %s", got)
		}
	}
}

// A workload is reached by way of its own VIP, by itself too, and serves and calls at once.
func TestSNATHairpin(t *testing.T) {
	r := snatRig(t)
	out := r.leaves(native4, pkt.TCP(own(native4, 50000), vip4, pkt.SYN))
	in := out.Inside(outer(native4))
	if got := r.verdict("from_uplink", in); got != "deliver_native" {
		t.Fatalf("to itself as the VIP's backend: verdict is %s", got)
	}
	arrived := delivered(in, native4)
	answer := r.run("to_uplink", replyTo(arrived, pkt.SYN|pkt.ACK).Frame(), nil)
	if answer.verdict != "reply_native" {
		t.Fatalf("its reply: verdict is %s", answer.verdict)
	}
	reply, err := pkt.Decode(answer.frame)
	if err != nil {
		t.Fatal(err)
	}
	back := r.run("from_uplink", reply.Inside(outer(native4)).Frame(), nil)
	got, err := pkt.Decode(back.frame)
	if err != nil || back.verdict != "deliver_native" || got.DestinationPort != 50000 || got.IP.Source.String() != "203.0.113.10" {
		t.Errorf("what comes back is %s: %v %v", back.verdict, got, err)
	}
}

// A live connection of the workload's own is never taken for an inbound one of the same ports.
func TestSNATMeetsSession(t *testing.T) {
	r := snatRig(t)
	syn := pkt.TCP(own(native4, backendPort), client4, pkt.SYN)
	out := r.leaves(native4, syn)
	in := pkt.TCP(client4, vip4, pkt.SYN).Inside(outer(native4))
	if got := r.verdict("from_uplink", in); got != "drop_session_taken" {
		t.Errorf("a client with the same ports: verdict is %s", got)
	}
	r.verdict("from_uplink", pkt.TCP(client4, vip4, pkt.ACK).Inside(outer(native4)))
	if got := r.verdict("from_uplink", in); got != "drop_session_taken" {
		t.Errorf("after a stray segment of it: verdict is %s", got)
	}
	r.verdict("from_uplink", answered(out, native4, pkt.RST|pkt.ACK))
	if got := r.verdict("from_uplink", in); got != "deliver_native" {
		t.Errorf("when it is over: verdict is %s", got)
	}
	if got := r.verdict("to_uplink", replyTo(delivered(in, native4), pkt.SYN|pkt.ACK)); got != "reply_native" {
		t.Errorf("the reply: verdict is %s", got)
	}
}

// Where a flow and a session have the same ports, as a remote can bring about, segments from a service's port are of the
// session, and a SYN is of the flow.
func TestSNATMeetsSessionOfTheSamePorts(t *testing.T) {
	r := snatRig(t)
	syn := pkt.TCP(own(native4, backendPort), client4, pkt.SYN)
	external := r.leaves(native4, syn).SourcePort
	key := snat.Flow{Protocol: model.TCP, Workload: netip.MustParseAddrPort(own(native4, backendPort)), Remote: netip.MustParseAddrPort(client4)}.Key()
	var flow bpf.AgentSnatFlow
	if err := errors.Join(r.objects.SnatFlows.Lookup(key, &flow), r.objects.SnatFlows.Delete(key)); err != nil {
		t.Fatal(err)
	}
	in := pkt.TCP(client4, vip4, pkt.SYN)
	r.verdict("from_uplink", in.Inside(outer(native4)))
	answer := replyTo(delivered(in.Inside(outer(native4)), native4), pkt.SYN|pkt.ACK)
	r.verdict("to_uplink", answer)
	in.Flags, in.Seq, in.Ack = pkt.ACK, in.Seq+1, answer.Seq+1 // moves it among the sessions of clients that are there
	r.verdict("from_uplink", in.Inside(outer(native4)))
	if err := r.objects.SnatFlows.Put(key, flow); err != nil {
		t.Fatal(err)
	}
	reply := replyTo(delivered(in.Inside(outer(native4)), native4), pkt.ACK)
	if got := r.verdict("to_uplink", reply); got != "reply_native" {
		t.Errorf("a segment from a service's port: verdict is %s", got)
	}
	if again := r.leaves(native4, syn); again.SourcePort != external {
		t.Errorf("a SYN leaves from %d, not %d", again.SourcePort, external)
	}
}

// A workload whose interface is made anew goes on.
func TestSNATWorkloadMoves(t *testing.T) {
	r := snatRig(t)
	p := pkt.UDP(own(guest4, 50000), remote4)
	out := r.leaves(guest4, p)
	key := snat.Flow{Protocol: model.UDP, Workload: netip.MustParseAddrPort(own(guest4, 50000)), Remote: netip.MustParseAddrPort(remote4)}.Key()
	var flow bpf.AgentSnatFlow
	if err := r.objects.SnatFlows.Lookup(key, &flow); err != nil {
		t.Fatal(err)
	}
	flow.Ifindex = 99
	if err := r.objects.SnatFlows.Put(key, flow); err != nil {
		t.Fatal(err)
	}
	if again := r.leaves(guest4, p); again.SourcePort != out.SourcePort {
		t.Errorf("leaves from %d, not %d", again.SourcePort, out.SourcePort)
	}
}
