package agent

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	agentfastpath "github.com/weirlb/weir/internal/datapath/agent/fastpath"
	"github.com/weirlb/weir/internal/fastpath"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Tunnels of the host at the other end.
const far4, far6 = "10.1.0.77", "fd01::77"

// fastpathRig is a rig all of whose VIPs have a fastpath, and which reads what user space is told.
func fastpathRig(t *testing.T) (*rig, *agentfastpath.ControlMessages) {
	r := newRig(t)
	var all []model.HostBackend
	for _, b := range r.All() {
		b.Fastpath = b.Endpoint.VIP != netip.MustParseAddrPort(otherVIP4).Addr()
		all = append(all, b)
	}
	if err := r.Replace(all); err != nil {
		t.Fatal(err)
	}
	controls, err := r.ControlMessages()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { controls.Close() })
	return r, controls
}

// leavable has backends of these VIPs alone be ones whose connections may leave.
func (r *rig) leavable(vips ...string) {
	r.t.Helper()
	var all []model.HostBackend
	for _, b := range r.All() {
		b.Fastpath = slices.Contains(vips, b.Endpoint.VIP.String())
		all = append(all, b)
	}
	if err := r.Replace(all); err != nil {
		r.t.Fatal(err)
	}
}

func direct(protocol model.Protocol, client, server, own, peer string, state agentfastpath.State) agentfastpath.Entry {
	return agentfastpath.Entry{
		Connection: fastpath.Connection{Protocol: protocol, Client: netip.MustParseAddrPort(client), Server: netip.MustParseAddrPort(server)},
		Own:        netip.MustParseAddr(own), Peer: netip.MustParseAddr(peer), State: state,
	}
}

// set holds what SetFastpath says.
func (r *rig) set(w agentfastpath.Entry, state agentfastpath.State, changed bool, want error) {
	r.t.Helper()
	got, news, err := r.SetFastpath(w)
	if got != state || news != changed || !errors.Is(err, want) {
		r.t.Fatalf("set %s: %v, %t, %v; want %v, %t, %v", w, got, news, err, state, changed, want)
	}
}

// leave has the connection leave, as after a redirect and the peer's word.
func (r *rig) leave(w agentfastpath.Entry) {
	r.t.Helper()
	accept := w
	accept.State = agentfastpath.Accept
	r.set(accept, agentfastpath.Accept, true, nil)
	r.set(w, agentfastpath.Send, true, nil)
}

// Only a redirect names the peer: the word of another one changes nothing.
func TestOnlyARedirectNamesThePeer(t *testing.T) {
	r, _ := fastpathRig(t)
	_, answer, reply := r.established()
	direct := direct(model.TCP, client4, vip4, interface4, "10.1.0.79", agentfastpath.Send)
	r.set(direct, agentfastpath.None, false, agentfastpath.ErrUnnamed)
	r.check("by the muxes", outbound("from_workload", answer, "reply_uplink", &reply))
	named := direct
	named.Peer = netip.MustParseAddr(far4)
	there := reply.Inside(fromTo(interface4, far4))
	r.leave(named)
	r.set(direct, agentfastpath.None, false, agentfastpath.ErrUnnamed)
	r.check("to the peer", outbound("from_workload", answer, "reply_direct", &there))
}

// control is the next record; it must be there.
func (r *rig) control(c *agentfastpath.ControlMessages) agentfastpath.ControlMessage {
	r.t.Helper()
	defer time.AfterFunc(10*time.Second, func() { _ = c.Close() }).Stop() // ends Read
	control, err := c.Read()
	if err != nil {
		r.t.Fatal(err)
	}
	return control
}

// TestDirectConnections establishes one by the muxes, of each pair of families, transport and kind of
// workload, then has it leave them.
func TestDirectConnections(t *testing.T) {
	for _, family := range []int{4, 6} {
		for _, tunnelFamily := range []int{4, 6} {
			for _, kind := range []string{"native", "interface"} {
				for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
					t.Run(fmt.Sprintf("%s over v%d in v%d of %s", protocol, family, tunnelFamily, kind), func(t *testing.T) {
						goesDirect(t, family, tunnelFamily, kind, protocol)
					})
				}
			}
		}
	}
}

func goesDirect(t *testing.T, family, tunnelFamily int, kind string, protocol model.Protocol) {
	r, controls := fastpathRig(t)
	client, vip, dip := client4, vip4, dipOf(kind, 4)
	if family == 6 {
		client, vip, dip = client6, vip6, dipOf(kind, 6)
	}
	own, peer := dipOf(kind, tunnelFamily), far4
	if tunnelFamily == 6 {
		peer = far6
	}
	packet := pkt.UDP(client, vip)
	if protocol == model.TCP {
		packet = pkt.TCP(client, vip, pkt.ACK|pkt.PSH)
	}
	byMux, byPeer := packet.Inside(outer(own)), packet.Inside(fromTo(peer, own))
	workload := delivered(byMux, dip)
	answer := replyTo(workload, packet.Flags)
	reply := answer.With(from(vip))
	there := reply.Inside(fromTo(own, peer))
	program, byMuxes := "to_uplink", "reply_native"
	if kind == "interface" {
		program, byMuxes = "from_workload", "reply_uplink"
	}
	w := direct(protocol, client, vip, own, peer, agentfastpath.Accept)

	r.set(w, agentfastpath.None, false, agentfastpath.ErrUnknown)
	r.check("by a mux", inbound(byMux, "deliver_"+kind, &workload))
	r.set(w, agentfastpath.None, false, agentfastpath.ErrUnknown) // the workload has not answered
	r.check("past the muxes too early", inbound(byPeer, "drop_not_a_mux", nil))
	if got := r.control(controls); got.Stray != w.Connection || got.Source.String() != peer || got.Destination.String() != own || got.Message != nil {
		t.Errorf("told %+v", got)
	}
	r.check("answer by the muxes", outbound(program, answer, byMuxes, &reply))

	r.set(w, agentfastpath.Accept, true, nil)
	r.check("past the muxes", inbound(byPeer, "deliver_"+kind, &workload))
	r.check("answer by the muxes still", outbound(program, answer, byMuxes, &reply))
	w.State = agentfastpath.Send
	r.set(w, agentfastpath.Send, true, nil)
	r.set(w, agentfastpath.Send, false, nil)
	w.State = agentfastpath.Accept
	r.set(w, agentfastpath.Send, false, nil)
	r.check("answer past the muxes", outbound(program, answer, "reply_direct", &there))
	r.check("by a mux all the same", inbound(byMux, "deliver_"+kind, &workload))

	r.checkDirects(w)
	r.check("of another host", inbound(packet.Inside(fromTo(own, own)), "drop_not_a_mux", nil))
	r.check("of another connection", inbound(packet.With(func(p *pkt.Packet) { p.SourcePort++ }).Inside(fromTo(peer, own)), "drop_not_a_mux", nil))
	r.check("nothing else", inbound(pkt.ICMP(packet.IP.Source.String(), packet.IP.Destination.String()).Inside(fromTo(peer, own)), "drop_not_a_mux", nil))

	listed, err := r.FastpathConnections()
	if err != nil || len(listed) != 1 {
		t.Fatal(listed, err)
	}
	if err := r.EndFastpath(listed[0]); err != nil {
		t.Fatal(err)
	}
	r.check("answer after the end", outbound(program, answer, byMuxes, &reply))
	r.check("past the muxes after the end", inbound(byPeer, "drop_not_a_mux", nil))
}

// checkDirects holds that w is the only connection, and packets have passed it lately.
func (r *rig) checkDirects(w agentfastpath.Entry) {
	r.t.Helper()
	w.State = agentfastpath.Send
	listed, err := r.FastpathConnections()
	if err != nil || len(listed) != 1 || listed[0].String() != w.String() || listed[0].Own != w.Own || listed[0].Sent == 0 || listed[0].Heard == 0 {
		r.t.Errorf("listed are %v, %v, not %s", listed, err, w)
	}
}

// The word of a manager that none leaves any more, as a list became too long to be told, is one about those that have
// left, too.
func TestDirectsEndWithTheirRule(t *testing.T) {
	for _, family := range []int{4, 6} {
		r, _ := fastpathRig(t)
		client, vip, dip, peer := client4, vip4, native4, far4
		if family == 6 {
			client, vip, dip, peer = client6, vip6, native6, far6
		}
		packet := pkt.TCP(client, vip, pkt.ACK)
		workload := delivered(packet.Inside(outer(dip)), dip)
		answer := replyTo(workload, pkt.ACK)
		reply := answer.With(from(vip))
		r.check("in", inbound(packet.Inside(outer(dip)), "deliver_native", &workload))
		r.check("out", outbound("to_uplink", answer, "reply_native", &reply))
		w := direct(model.TCP, client, vip, dip, peer, agentfastpath.Send)
		r.leave(w)
		r.leavable()
		r.set(w, agentfastpath.None, false, agentfastpath.ErrForbidden)
		if err := r.endAll(); err != nil {
			t.Fatal(err)
		}
		r.check("past the muxes after the end", inbound(packet.Inside(fromTo(peer, dip)), "drop_not_a_mux", nil))
		r.leavable(netip.MustParseAddrPort(vip).Addr().String())
		r.leave(w)
	}
}

// endAll brings all connections back.
func (r *rig) endAll() error {
	all, err := r.FastpathConnections()
	for _, w := range all {
		err = errors.Join(err, r.EndFastpath(w))
	}
	return err
}

// What a peer is told of must belong to a connection that may leave.
func TestDirectRefusals(t *testing.T) {
	r, _ := fastpathRig(t)
	in := pkt.TCP(client4, otherVIP4, pkt.ACK).Inside(outer(native4))
	want := delivered(in, native4)
	answer := replyTo(want, pkt.ACK)
	reply := answer.With(from(otherVIP4))
	r.check("in", inbound(in, "deliver_native", &want))
	r.check("out", outbound("to_uplink", answer, "reply_native", &reply))
	r.set(direct(model.TCP, client4, otherVIP4, native4, far4, agentfastpath.Send), agentfastpath.None, false, agentfastpath.ErrForbidden)
	r.set(direct(model.TCP, client4, vip4, native4, far4, agentfastpath.Send), agentfastpath.None, false, agentfastpath.ErrUnknown)

	in = pkt.TCP(client4, vip4, pkt.ACK).Inside(outer(interface4))
	want = delivered(in, interface4)
	answer = replyTo(want, pkt.ACK)
	reply = answer.With(from(vip4))
	r.check("in", inbound(in, "deliver_interface", &want))
	r.check("out", outbound("from_workload", answer, "reply_uplink", &reply))
	r.set(direct(model.TCP, client4, vip4, interface4, native4, agentfastpath.Send), agentfastpath.None, false, agentfastpath.ErrLocal)

	r.leave(direct(model.TCP, client4, vip4, interface4, far4, agentfastpath.Send))
	large := answer.With(pkt.Payload(make([]byte, uplinkMTU-40)))
	whole := large.With(from(vip4))
	r.check("too large for the way", outbound("from_workload", large, "reply_uplink", &whole))
}

// established is a client's packet in a connection that both ends have spoken in by the muxes, what the workload
// answers, and what that leaves as.
func (r *rig) established() (packet, answer, reply pkt.Packet) {
	r.t.Helper()
	packet = pkt.TCP(client4, vip4, pkt.ACK)
	workload := delivered(packet.Inside(outer(interface4)), interface4)
	answer = replyTo(workload, pkt.ACK)
	reply = answer.With(from(vip4))
	r.check("in", inbound(packet.Inside(outer(interface4)), "deliver_interface", &workload))
	r.check("out", outbound("from_workload", answer, "reply_uplink", &reply))
	return packet, answer, reply
}

// A redirect that comes late, for a connection that has ended here, or whose backend is no more here, does nothing.
func TestLateRedirects(t *testing.T) {
	for _, c := range []struct {
		name  string
		later func(r *rig, in, answer pkt.Packet)
	}{
		{"both ends have said that it ends", func(r *rig, in, answer pkt.Packet) {
			fin := func(p *pkt.Packet) { p.Flags = pkt.ACK | pkt.FIN }
			r.run("from_uplink", in.With(fin).Inside(outer(interface4)).Frame(), nil)
			r.run("from_workload", answer.With(fin, numbers(in.Ack, in.Seq+payloadBytes+1)).Frame(), nil)
		}},
		{"the workload reset it", func(r *rig, _, answer pkt.Packet) {
			r.run("from_workload", answer.With(func(p *pkt.Packet) { p.Flags = pkt.RST }).Frame(), nil)
		}},
		{"the backend is gone", func(r *rig, _, _ pkt.Packet) {
			if err := r.Replace(nil); err != nil {
				r.t.Fatal(err)
			}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			r, _ := fastpathRig(t)
			packet, answer, _ := r.established()
			c.later(r, packet, answer)
			r.set(direct(model.TCP, client4, vip4, interface4, far4, agentfastpath.Accept), agentfastpath.None, false, agentfastpath.ErrUnknown)
			r.set(direct(model.TCP, client4, vip4, interface4, far4, agentfastpath.Send), agentfastpath.None, false, agentfastpath.ErrUnknown)
			if listed, err := r.FastpathConnections(); err != nil || len(listed) != 0 {
				t.Errorf("listed are %v, %v", listed, err)
			}
			if got := r.run("from_uplink", packet.Inside(fromTo(far4, interface4)).Frame(), nil).verdict; strings.HasPrefix(got, "deliver") {
				t.Errorf("past the muxes: %s", got)
			}
		})
	}
}

// A peer that moves is sent to where it is once it has said so there; a redirect that names where it was, and comes
// late, sends nothing there.
func TestThePeerMoves(t *testing.T) {
	const moved = "10.1.0.78"
	r, _ := fastpathRig(t)
	packet, answer, reply := r.established()
	before, now := reply.Inside(fromTo(interface4, far4)), reply.Inside(fromTo(interface4, moved))
	to := func(peer string, state agentfastpath.State) agentfastpath.Entry {
		return direct(model.TCP, client4, vip4, interface4, peer, state)
	}
	r.leave(to(far4, agentfastpath.Send))
	r.check("to where it is", outbound("from_workload", answer, "reply_direct", &before))
	for range 2 { // the second time when a late redirect has led back
		r.set(to(moved, agentfastpath.Accept), agentfastpath.Accept, true, nil)
		r.check("until it says so", outbound("from_workload", answer, "reply_uplink", &reply))
		r.set(to(moved, agentfastpath.Send), agentfastpath.Send, true, nil)
		r.check("to where it is now", outbound("from_workload", answer, "reply_direct", &now))
		r.check("from where it was", inbound(packet.Inside(fromTo(far4, interface4)), "drop_not_a_mux", nil))
		r.set(to(far4, agentfastpath.Accept), agentfastpath.Accept, true, nil)
		r.check("by the muxes", outbound("from_workload", answer, "reply_uplink", &reply))
	}
}

// Of a buffer with many segments, each one counts with its own headers. A buffer of the tests can't be encapsulated:
// what fits fails there, what does not goes by the muxes.
func TestDirectSegmentsFit(t *testing.T) {
	for _, peer := range []string{far4, far6} {
		for _, timestamps := range []bool{false, true} {
			r, _ := fastpathRig(t)
			own, headers := interface4, 20+20+20
			if peer == far6 {
				own, headers = interface6, 20+20+40
			}
			in := pkt.TCP(client4, vip4, pkt.ACK).Inside(outer(own))
			want := delivered(in, interface4)
			answer := replyTo(want, pkt.ACK, pkt.Payload(make([]byte, 2000)))
			if timestamps {
				answer, headers = answer.With(pkt.NOP(2), pkt.Timestamps(1, 2)), headers+12
			}
			r.check("in", inbound(in, "deliver_interface", &want))
			r.run("from_workload", answer.Frame(), nil)
			r.leave(direct(model.TCP, client4, vip4, own, peer, agentfastpath.Send))
			for size, verdict := range map[int]string{uplinkMTU - headers: "drop_direct", uplinkMTU - headers + 1: "reply_uplink"} {
				if got := r.run("from_workload", answer.Frame(), gso(2, uint32(size))); got.verdict != verdict {
					t.Errorf("to %s, timestamps %t, segments of %d bytes: %s, want %s", peer, timestamps, size, got.verdict, verdict)
				}
			}
		}
	}
}

// TestDirectClient has a workload's own connection leave the muxes.
func TestDirectClientIsFound(t *testing.T) {
	r, _ := fastpathRig(t)
	w := direct(model.TCP, "203.0.113.20:1024", "203.0.113.99:443", interface4, far4, agentfastpath.Send)
	w.Client = true
	r.set(w, agentfastpath.None, false, agentfastpath.ErrUnknown)
	vip, remote, dip := bpf.ToAddress(w.Connection.Client.Addr()), bpf.ToAddress(w.Connection.Server.Addr()), bpf.ToAddress(netip.MustParseAddr(interface4))
	port := bpf.AgentSnatPort{Dip: dip, DipPort: abi.Port(33000), Events: bpf.AgentSnatEventSNAT_SPOKE}
	flow := bpf.AgentSnatFlow{Vip: vip, VipPort: abi.Port(1024), Queued: 1 << 31}
	flowKey := bpf.AgentSessionKey{Client: remote, Dip: dip, ClientPort: abi.Port(443), DipPort: abi.Port(33000), Protocol: uint8(model.TCP)}
	put := func() {
		t.Helper()
		err := errors.Join(
			r.objects.SnatPorts.Put(bpf.AgentSnatPortKey{Vip: vip, Remote: remote, Port: abi.Port(1024), RemotePort: abi.Port(443), Protocol: uint8(model.TCP)}, port),
			r.objects.SnatFlows.Put(flowKey, flow))
		if err != nil {
			t.Fatal(err)
		}
	}
	put()
	r.set(w, agentfastpath.None, false, agentfastpath.ErrUnknown) // the handshake is not done
	flow.Events = bpf.AgentSnatEventSNAT_SPOKE | bpf.AgentSnatEventSNAT_ACKED
	put()
	r.leave(w)
	if err := r.objects.SnatFlows.Lookup(flowKey, &flow); err != nil || flow.Direct != 1 {
		t.Errorf("%v, %v", flow, err)
	}
	r.checkDirects(w)
}

// controlTo is a message to a tunnel.
func controlTo(from, to string, message []byte) pkt.Packet {
	return pkt.UDP(netip.AddrPortFrom(netip.MustParseAddr(from), entropy).String(), netip.AddrPortFrom(netip.MustParseAddr(to), guePort).String(),
		pkt.Payload(fastpath.Datagram(message)))
}

func TestControlMessages(t *testing.T) {
	r, controls := fastpathRig(t)
	message := bytes.Repeat([]byte{0xa5}, fastpath.Size)
	for _, c := range []struct {
		from, to string
		mux      bool
	}{{mux4, native4, true}, {mux6, native6, true}, {far4, interface4, false}, {far6, native6, false}} {
		r.check("message from "+c.from, inbound(controlTo(c.from, c.to, message), "punt_control", nil))
		got := r.control(controls)
		if got.FromMux != c.mux || !bytes.Equal(got.Message, message) || got.Source.String() != c.from || got.Destination.String() != c.to {
			t.Errorf("from %s came %+v", c.from, got)
		}
	}
	r.check("for another", inbound(controlTo(mux4, "10.1.0.99", message), "pass_unknown_tunnel", nil))
	r.check("too short", inbound(controlTo(mux4, native4, message[1:]), "drop_gue_malformed", nil))
	r.check("too long", inbound(controlTo(mux4, native4, append(message, 1)), "drop_gue_malformed", nil))
	other := controlTo(mux4, native4, message).Frame()
	other[14+20+8+1]++
	r.check("of another type", step{program: "from_uplink", in: other, verdict: "drop_gue_unknown"})
	cut := controlTo(mux4, native4, message)
	short := cut.Frame()
	short[16], short[17] = 0, 100 // the IP header ends before the datagram does
	r.check("cut", step{program: "from_uplink", in: short, verdict: "drop_gue_malformed"})

	byOthers := r.fillControls(controlTo(strange4, native4, message))
	if more := r.fillControls(controlTo(mux4, native4, message)); more < byOthers/2 {
		t.Errorf("behind %d messages of strangers is room for %d of muxes", byOthers, more)
	}
}

// fillControls sends a message until there is no room for it, and says how often there was.
func (r *rig) fillControls(p pkt.Packet) int {
	r.t.Helper()
	for i := range 4096 {
		if got := r.run("from_uplink", p.Frame(), nil); got.verdict == "drop_control" {
			return i
		} else if got.verdict != "punt_control" {
			r.t.Fatal(i, got.verdict)
		}
	}
	r.t.Fatal("the ring is never full")
	return 0
}
