package overlay

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/overlay/reset"
	"github.com/weirlb/weir/internal/pkt"
)

var (
	clientMAC  = pkt.MAC{2, 0, 0, 0, 2, 1}
	gatewayMAC = pkt.MAC{2, 9}
	someMAC    = pkt.MAC{2, 8, 8}
)

// clientRig is the client's host of a connection: its port is the loopback interface, as which the kernel's test run has
// packets come.
type clientRig struct{ *rig }

func newClientRig(t *testing.T, f family) clientRig {
	t.Helper()
	r := clientRig{newRig(t, f)}
	r.must(
		r.SetHosts([]Host{
			{Roles: Mux, V4: at(f.mux, true), V6: at(f.mux, false)},
			{Number: 7, Roles: Client, V4: at(f.host, true), V6: at(f.host, false)},
			{Number: 8, Roles: Server, V4: at(f.other, true), V6: at(f.other, false)},
			{Number: 9, Roles: Server, V4: at(f.tunnel, true), V6: at(f.tunnel, false)},
		}),
		r.SetUnderlay(Underlay{Own4: at(f.host, true), Own6: at(f.host, false), Mux4: at(f.mux, true), Mux6: at(f.mux, false)}),
		r.SetPorts([]Port{{Ifindex: 1, VNI: testVNI, MAC: clientMAC, Flows: 10, Addresses: []netip.Addr{netip.MustParseAddrPort(f.client).Addr()}}}))
	return r
}

// sent is a client's segment as its interface gives it.
func (r clientRig) sent(flags pkt.Flags, seq, ack uint32, changes ...func(*pkt.Packet)) pkt.Packet {
	p := r.segment(flags, seq, ack, changes...)
	p.Source, p.Destination = clientMAC, gatewayMAC
	return p
}

// send gives a client's frame to the program, and returns what it has become.
func (r clientRig) send(p pkt.Packet, verdict string) (pkt.VXLAN, pkt.Packet) {
	r.t.Helper()
	out := r.run(r.objects.FromClient, p.Frame(), verdict, forward)
	v, inner, err := pkt.DecodeVXLAN(out)
	if err != nil {
		r.t.Fatalf("%v\n%x", err, out)
	}
	return v, inner
}

// answer is a server's segment for the client.
func (r clientRig) answer(flags pkt.Flags, seq, ack uint32, changes ...func(*pkt.Packet)) pkt.Packet {
	p := pkt.TCP(r.vip, r.client, flags, changes...).With(func(p *pkt.Packet) { p.Seq, p.Ack = seq, ack })
	p.Source, p.Destination = someMAC, clientMAC
	return p
}

// arrive gives the frame in VXLAN from an address to the program.
func (r clientRig) arrive(p pkt.Packet, from, verdict string, action uint32) []byte {
	r.t.Helper()
	v := pkt.VXLAN{VNI: testVNI, SourcePort: 50000, Outer: pkt.IP{
		Source: netip.MustParseAddr(from), Destination: netip.MustParseAddr(r.host), TTL: 64,
	}}
	return r.run(r.objects.FromUnderlay, v.Frame(p), verdict, action)
}

func (r clientRig) flow() Flow {
	r.t.Helper()
	all, err := r.Flows()
	r.must(err)
	if len(all) != 1 {
		r.t.Fatalf("%d flows: %+v", len(all), all)
	}
	return all[0]
}

// learn has the connection go straight to the server's host.
func (r clientRig) learn() {
	r.t.Helper()
	r.send(r.sent(pkt.SYN, 1000, 0, pkt.Payload(nil)), "send_mux")
	r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, 1001, pkt.Payload(nil)), r.tunnel, "deliver_client", forward)
}

func eachFamily(t *testing.T, test func(*testing.T, clientRig)) {
	t.Helper()
	for name, f := range families() {
		t.Run(name, func(t *testing.T) { test(t, newClientRig(t, f)) })
	}
}

// A connection as it goes: the SYN to the muxes, the answer from the server's host, then all straight.
func TestAClientLearnsTheServersHost(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		syn := r.sent(pkt.SYN, 1000, 0, pkt.MSS(1460), pkt.Payload(nil))
		v, inner := r.send(syn, "send_mux")
		if v.Outer.Source.String() != r.host || v.Outer.Destination.String() != r.mux || v.VNI != testVNI || v.Reserved != [4]byte{3: pkt.Route} {
			t.Errorf("SYN goes by %+v", v)
		}
		pkt.MSS(clamped(r.family) + 16)(&syn)
		syn.Options = syn.Options[1:]
		if diff := cmp.Diff(syn, inner, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("SYN inside VXLAN (-want +got):\n%s", diff)
		}
		if f := r.flow(); f.State != FlowHalfOpen || f.ClientNext != 1001 || f.Host.IsValid() || f.Client.String() != r.client || f.Port != 80 {
			t.Errorf("half-open flow %+v", f)
		}
		answer := r.answer(pkt.SYN|pkt.ACK, 5000, 1001, pkt.Payload(nil))
		got := r.decode(r.arrive(answer, r.tunnel, "deliver_client", forward))
		answer.Source = gatewayMAC
		if diff := cmp.Diff(answer, got, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("SYN-ACK for the client (-want +got):\n%s", diff)
		}
		if f := r.flow(); f.State != FlowDirect || f.Host.String() != r.tunnel {
			t.Errorf("learnt flow %+v", f)
		}
		ack := r.sent(pkt.ACK, 1001, 5001)
		v, inner = r.send(ack, "send_direct")
		if v.Outer.Source.String() != r.host || v.Outer.Destination.String() != r.tunnel || v.Reserved != [4]byte{} || v.SourcePort < 0xc000 {
			t.Errorf("data goes by %+v", v)
		}
		if diff := cmp.Diff(ack, inner, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("data inside VXLAN (-want +got):\n%s", diff)
		}
		traffic, err := r.ClientTraffic(1)
		r.must(err)
		if traffic.ByMux.Packets != 1 || traffic.Direct.Packets != 1 || traffic.In.Packets != 1 || traffic.Begun != 1 || traffic.Learnt != 1 {
			t.Errorf("traffic %+v", traffic)
		}
	})
}

// A SYN with data (RFC 7413) is acknowledged with or without them.
func TestASYNWithDataIsAcknowledged(t *testing.T) {
	for _, acked := range []uint32{1001, 1101} {
		r := newClientRig(t, families()["v4 over v4"])
		r.send(r.sent(pkt.SYN, 1000, 0, pkt.Payload(make([]byte, 100))), "send_mux")
		for _, wrong := range []uint32{1000, 1102} {
			r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, wrong), r.tunnel, "drop_not_acked", drop)
		}
		r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, acked), r.tunnel, "deliver_client", forward)
		r.send(r.sent(pkt.ACK, 1101, 5001), "send_direct")
	}
}

// What comes back is believed by the client's own numbers, and from the host that was learnt.
func TestAClientBelievesItsOwnNumbers(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		r.send(r.sent(pkt.SYN, 1000, 0, pkt.Payload(nil)), "send_mux")
		for _, ack := range []uint32{1000, 1002, 0} {
			r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, ack), r.tunnel, "drop_not_acked", drop)
		}
		stranger := "10.7.7.7"
		if !netip.MustParseAddr(r.tunnel).Is4() {
			stranger = "fd07::7"
		}
		r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, 1001), stranger, "drop_not_a_vtep", drop)
		r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, 1001), r.host, "drop_not_a_vtep", drop) // has no servers
		r.arrive(r.answer(pkt.RST|pkt.ACK, 0, 1001), r.tunnel, "deliver_client", forward)
		if f := r.flow(); f.State != FlowHalfOpen || f.Events != Reset {
			t.Errorf("a refused connection: %+v", f)
		}
		r.learn()
		r.arrive(r.answer(pkt.ACK, 5001, 1001), r.other, "drop_other_host", drop)
		r.arrive(r.answer(pkt.ACK, 5001, 1001), r.mux, "deliver_client", forward)
		r.arrive(r.answer(pkt.ACK, 5001, 1001), r.tunnel, "deliver_client", forward)
	})
}

// A SYN that a mux has answered stays with the muxes, until its server's host answers what was just sent.
func TestWhatAMuxAnswersStaysWithIt(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		r.send(r.sent(pkt.SYN, 1000, 0, pkt.Payload(nil)), "send_mux")
		r.arrive(r.answer(pkt.SYN|pkt.ACK, 5000, 1001), r.mux, "deliver_client", forward)
		r.send(r.sent(pkt.ACK, 1001, 5001, pkt.Payload(nil)), "send_mux")
		if f := r.flow(); f.State != FlowByMux {
			t.Errorf("flow %+v", f)
		}
		r.arrive(r.answer(pkt.ACK, 5001, 1001, pkt.Payload(nil)), r.tunnel, "deliver_client", forward)
		v, _ := r.send(r.sent(pkt.ACK, 1001, 5001), "send_direct")
		if v.Outer.Destination.String() != r.tunnel {
			t.Errorf("goes to %s", v.Outer.Destination)
		}
	})
}

// A connection of which nothing is known goes by the muxes, and is learnt anew by an answer to what was just sent.
func TestAConnectionIsLearntAnew(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		seq, ack := uint32(0xfffffff0), uint32(7_000_000) // numbers wrap
		r.arrive(r.answer(pkt.ACK, ack, seq), r.tunnel, "deliver_client", forward)
		v, _ := r.send(r.sent(pkt.ACK, seq, ack, pkt.Payload(make([]byte, 100))), "send_mux")
		if v.Reserved[3] != pkt.Route {
			t.Errorf("goes by %+v", v)
		}
		for _, wrong := range [][2]uint32{
			{ack, seq + 100 + 1<<16 + 1}, {ack, seq + 100 - 1<<16 - 1}, {ack + 1<<22 + 1, seq + 100}, {ack - 1<<22 - 1, seq + 100},
		} {
			r.arrive(r.answer(pkt.ACK, wrong[0], wrong[1]), r.other, "deliver_client", forward)
		}
		r.arrive(r.answer(pkt.RST|pkt.ACK, ack, seq+100), r.other, "deliver_client", forward)
		if f := r.flow(); f.State != FlowLost || f.Host.IsValid() {
			t.Fatalf("learnt by wrong numbers: %+v", f)
		}
		r.arrive(r.answer(pkt.ACK, ack, seq+100), r.tunnel, "deliver_client", forward)
		if f := r.flow(); f.State != FlowDirect || f.Host.String() != r.tunnel {
			t.Errorf("not learnt: %+v", f)
		}
		r.send(r.sent(pkt.ACK, seq+100, ack), "send_direct")
	})
}

// What a workload may not send of a VIP's, it does not send; what is none of a VIP's passes untouched.
func TestSourcesOfPortsAreChecked(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		out := r.objects.FromClient
		spoofed := r.sent(pkt.SYN, 1000, 0)
		spoofed.IP.Source = spoofed.IP.Source.Next()
		r.run(out, spoofed.Frame(), "drop_spoofed", drop)
		spoofed = r.sent(pkt.SYN, 1000, 0)
		spoofed.Source[5] ^= 1
		r.run(out, spoofed.Frame(), "drop_spoofed", drop)
		for _, ids := range [][]uint16{{0}, {5}, {5, 6}} {
			r.run(out, r.sent(pkt.SYN, 1000, 0, pkt.VLANs(ids...)).Frame(), "drop_tagged", drop)
		}
		other := r.sent(pkt.SYN, 1000, 0)
		other.IP.Destination = other.IP.Destination.Next()
		r.run(out, other.Frame(), "pass_not_a_vip", next)
		if all, err := r.Flows(); err != nil || len(all) != 0 {
			t.Errorf("flows %+v, %v", all, err)
		}
		if r.v4() {
			return
		}
		hidden := r.sent(pkt.SYN, 1000, 0)
		hidden.IP.Source = hidden.IP.Source.Next()
		frame := hidden.Frame() // behind an extension header that says nothing
		frame = append(frame[:54:54], append([]byte{6, 0, 1, 4, 0, 0, 0, 0}, frame[54:]...)...)
		frame[20] = 60
		binary.BigEndian.PutUint16(frame[18:], uint16(len(frame)-54))
		r.run(out, frame, "drop_spoofed", drop)
	})
}

func (r clientRig) v4() bool { return netip.MustParseAddrPort(r.client).Addr().Is4() }

// Fragments, and datagrams until there is a ticket, go by the muxes, and come back.
func TestOtherPacketsGoByTheMuxes(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		p := r.sent(pkt.ACK, 1, 1)
		p.Protocol = layers.IPProtocolUDP
		r.send(p, "send_mux")
		back := r.answer(pkt.ACK, 1, 1)
		back.Protocol = layers.IPProtocolUDP
		r.arrive(back, r.tunnel, "deliver_client", forward)
		if r.v4() {
			frame := r.sent(pkt.ACK, 1, 1, pkt.Fragment(0, true)).Frame()
			r.run(r.objects.FromClient, frame, "send_mux", forward)
		}
		if all, err := r.Flows(); err != nil || len(all) != 1 || all[0].Events != UDP {
			t.Errorf("flows %+v, %v", all, err)
		}
	})
}

// A client that asks for a VIP's Ethernet address is told the gateway's; other questions pass.
func TestVIPsAnswerARPAndND(t *testing.T) {
	r := newClientRig(t, families()["v4 over v4"])
	ask := func(target [4]byte, operation uint16) []byte {
		frame := append([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, clientMAC[:]...)
		frame = append(frame, 8, 6, 0, 1, 8, 0, 6, 4)
		frame = binary.BigEndian.AppendUint16(frame, operation)
		frame = append(append(frame, clientMAC[:]...), 192, 168, 0, 5)
		return append(append(append(frame, make([]byte, 6)...), target[:]...), make([]byte, 18)...)
	}
	vip := netip.MustParseAddrPort(r.vip).Addr().As4()
	got := r.run(r.objects.FromClient, ask(vip, 1), "answer_arp", forward)
	want := append(append(append([]byte{}, clientMAC[:]...), gatewayMAC[:]...), 8, 6, 0, 1, 8, 0, 6, 4, 0, 2)
	want = append(append(want, gatewayMAC[:]...), vip[:]...)
	want = append(append(want, clientMAC[:]...), 192, 168, 0, 5)
	if diff := cmp.Diff(append(want, make([]byte, 18)...), got); diff != "" {
		t.Errorf("answer (-want +got):\n%s", diff)
	}
	r.run(r.objects.FromClient, ask([4]byte{192, 168, 0, 1}, 1), "pass_not_a_vip", next)
	r.run(r.objects.FromClient, ask(vip, 2), "pass_other", next)

	r = newClientRig(t, families()["v6 over v4"])
	vip6, own := netip.MustParseAddrPort(r.vip).Addr(), netip.MustParseAddrPort(r.client).Addr()
	solicit := func(from, target netip.Addr) []byte {
		body := append([]byte{135, 0, 0, 0, 0, 0, 0, 0}, target.AsSlice()...)
		frame := append([]byte{0x33, 0x33, 0xff, 0, 0, 0x99}, clientMAC[:]...)
		frame = append(frame, 0x86, 0xdd, 0x60, 0, 0, 0, 0, byte(len(body)), 58, 255)
		to := netip.MustParseAddr("ff02::1:ff00:99")
		return append(append(append(frame, from.AsSlice()...), to.AsSlice()...), body...)
	}
	for from, answered := range map[string]string{own.String(): own.String(), "fe80::5": "fe80::5", "::": "ff02::1"} {
		got := icmpOf(t, r.run(r.objects.FromClient, solicit(netip.MustParseAddr(from), vip6), "answer_nd", forward))
		flags := byte(0x60)
		if from == "::" {
			flags = 0x20
		}
		body := append([]byte{136, 0, 0, 0, flags, 0, 0, 0}, vip6.AsSlice()...)
		want := icmp{mac: clientMAC, from: vip6, to: netip.MustParseAddr(answered), hops: 255, body: append(append(body, 2, 1), gatewayMAC[:]...)}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(icmp{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("answer to %s (-want +got):\n%s", from, diff)
		}
	}
	r.run(r.objects.FromClient, solicit(own, own), "pass_not_a_vip", next)
	mac := append([]byte{0x33, 0x33, 0xff, 0, 0, 0x99}, clientMAC[:]...)
	far := slices.Concat(mac, solicit(own, vip6)[12:])
	far[14+7] = 254 // came by a router
	r.run(r.objects.FromClient, far, "pass_not_a_vip", next)
}

// icmp is a message whose checksum was right, and is zero here.
type icmp struct {
	mac      pkt.MAC
	from, to netip.Addr
	hops     byte
	body     []byte
}

func icmpOf(t *testing.T, frame []byte) icmp {
	t.Helper()
	m := icmp{mac: pkt.MAC(frame)}
	pseudo := []byte{}
	if frame[12] == 0x08 {
		m.from, m.to, m.hops = netip.AddrFrom4([4]byte(frame[26:])), netip.AddrFrom4([4]byte(frame[30:])), frame[22]
		m.body = frame[34:]
		if int(binary.BigEndian.Uint16(frame[16:])) != len(frame)-14 || reset.Checksum(frame[14:34], 0) != 0 {
			t.Errorf("IP header %x", frame[14:34])
		}
	} else {
		m.from, m.to, m.hops = netip.AddrFrom16([16]byte(frame[22:])), netip.AddrFrom16([16]byte(frame[38:])), frame[21]
		m.body = frame[54:]
		pseudo = append(binary.BigEndian.AppendUint32(pseudo, 58+uint32(len(m.body))), frame[22:54]...)
		if int(binary.BigEndian.Uint16(frame[18:])) != len(m.body) {
			t.Errorf("IP header %x", frame[14:54])
		}
	}
	if reset.Checksum(append(pseudo, m.body...), 0) != 0 {
		t.Errorf("wrong checksum of ICMP: %x", frame)
	}
	m.body[2], m.body[3] = 0, 0
	return m
}

// A packet that the uplink can't take in VXLAN is answered with the MTU that it can.
func TestTooLargePacketsAreAnswered(t *testing.T) {
	eachFamily(t, func(t *testing.T, r clientRig) {
		room := int(clamped(r.family)) + 16
		r.learn()
		r.send(r.sent(pkt.ACK, 1001, 5001, pkt.Payload(make([]byte, room))), "send_direct")
		large := r.sent(pkt.ACK, 1001, 5001, pkt.Payload(make([]byte, room+1)))
		frame := large.Frame()
		l4 := large.L4()
		got := icmpOf(t, r.run(r.objects.FromClient, large.Frame(), "answer_too_big", forward))
		mtu := byte(1500 - 1280 - 50)
		body := []byte{3, 4, 0, 0, 0, 0, 5, mtu}
		if !netip.MustParseAddr(r.tunnel).Is4() {
			mtu -= 20
		}
		if body[7] = mtu; !r.v4() {
			body = []byte{2, 0, 0, 0, 0, 0, 5, mtu}
		}
		quote := frame[14 : l4+20]
		at := 8 + len(quote) - 4
		copy(quote[len(quote)-4:], got.body[at:at+2]) // stays as it is, whoever fills it in
		filled := reset.Checksum(got.body[at-16:], 0)
		if binary.BigEndian.Uint16(got.body[at:]) != filled {
			t.Errorf("the checksum that is quoted, %x, becomes %x where a device fills it in", got.body[at:at+2], filled)
		}
		want := icmp{
			mac: clientMAC, from: netip.MustParseAddrPort(r.vip).Addr(), to: netip.MustParseAddrPort(r.client).Addr(), hops: 64,
			body: append(body, quote...),
		}
		if diff := cmp.Diff(want, got, cmp.AllowUnexported(icmp{}), cmpopts.EquateComparable(netip.Addr{})); diff != "" {
			t.Errorf("answer (-want +got):\n%s", diff)
		}
	})
}
