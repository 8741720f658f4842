package agent

import (
	"net/netip"
	"testing"

	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// side is one of two hosts that have a bucket, now or before: its rig and what lives on it.
type side struct {
	*rig
	tunnel string
	dip    map[bool]string // by whether it is IPv4
	peer   *side
}

// newSide makes a host with one native workload behind a tunnel address.
func newSide(t *testing.T, tunnel, host4, host6, dip4, dip6, peer string, peerHosts ...string) *side {
	t.Helper()
	s := &side{rig: newRig(t), tunnel: tunnel, dip: map[bool]string{true: dip4, false: dip6}}
	peers := []netip.Addr{netip.MustParseAddr(peer)}
	for _, a := range peerHosts { // for when the tunnels are of two families
		peers = append(peers, netip.MustParseAddr(a))
	}
	var all []model.HostBackend
	for _, vip := range []string{vip4, vip6} {
		for _, protocol := range []model.Protocol{model.TCP, model.UDP} {
			b := rule(protocol, vip, tunnel, dip4, dip6)
			b.ChainPeers = peers
			all = append(all, b)
		}
	}
	err := s.Replace(all)
	if err == nil {
		err = abi.WriteTable(s.objects.Workloads, map[bpf.AgentAddress]uint32{
			bpf.ToAddress(netip.MustParseAddr(dip4)): interfaceIndex, bpf.ToAddress(netip.MustParseAddr(dip6)): interfaceIndex,
		})
	}
	if err == nil {
		err = s.changeSettings(func(s *bpf.AgentAgentSettings) {
			s.Address4, s.Address6 = bpf.ToAddress(netip.MustParseAddr(host4)), bpf.ToAddress(netip.MustParseAddr(host6))
		})
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// learn makes the side know p's connection: it delivers p and answers, without any step.
func (s *side) learn(t *testing.T, p pkt.Packet) {
	t.Helper()
	from := mux4
	if netip.MustParseAddr(s.tunnel).Is6() {
		from = mux6
	}
	in := withoutChecksum(inGUE(p, fromTo(from, s.tunnel), gue{}))
	if got := s.run("from_uplink", in, nil); got.verdict != "deliver_interface" {
		t.Fatalf("%s: verdict is %s", s.tunnel, got.verdict)
	}
	answer := replyTo(delivered(p, s.dip[p.IP.Is4()]), pkt.ACK)
	if got := s.run("from_workload", answer.Frame(), nil); got.verdict != "reply_uplink" {
		t.Fatalf("%s: verdict of the answer is %s", s.tunnel, got.verdict)
	}
}

func (s *side) forget(t *testing.T) {
	t.Helper()
	for _, table := range s.Tables() {
		if err := abi.WriteTable(table, map[bpf.AgentSessionKey]bpf.AgentSession{}); err != nil {
			t.Fatal(err)
		}
	}
}

// TestChainingEnds sends packets of every kind to a bucket that moved from one host to another: each
// ends at the host that knows it, or else at the one that has the bucket, by at most two more hops.
func TestChainingEnds(t *testing.T) {
	for name, tunnels := range map[string][2]string{
		"v4 to v4": {"10.1.0.5", "10.1.0.50"}, "v4 to v6": {"10.1.0.5", "fd01::50"},
		"v6 to v4": {"fd01::5", "10.1.0.50"}, "v6 to v6": {"fd01::5", "fd01::50"},
	} {
		t.Run(name, func(t *testing.T) {
			now := newSide(t, tunnels[0], "10.1.0.1", "fd01::1", "10.1.0.5", "fd01::5", tunnels[1], "10.1.9.1", "fd01:9::1")
			before := newSide(t, tunnels[1], "10.1.9.1", "fd01:9::1", "10.1.0.50", "fd01::50", tunnels[0], "10.1.0.1", "fd01::1")
			now.peer, before.peer = before, now
			rapid.Check(t, func(draw *rapid.T) { chainOnce(t, draw, now, before) })
		})
	}
}

func chainOnce(t *testing.T, draw *rapid.T, now, before *side) {
	t.Helper()
	now.forget(t)
	before.forget(t)
	client, vip := client4, vip4
	if rapid.Bool().Draw(draw, "v6") {
		client, vip = client6, vip6
	}
	p := pkt.UDP(client, vip)
	if rapid.Bool().Draw(draw, "tcp") {
		p = pkt.TCP(client, vip, rapid.SampledFrom([]pkt.Flags{pkt.ACK, pkt.SYN, pkt.FIN | pkt.ACK, pkt.RST, pkt.SYN | pkt.ACK}).Draw(draw, "flags"))
	}
	p = p.With(pkt.Payload(rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(draw, "payload")))
	known := p.With(func(p *pkt.Packet) { p.Flags &^= pkt.SYN | pkt.RST | pkt.FIN })
	want := now
	if rapid.Bool().Draw(draw, "known before") {
		before.learn(t, known)
		want = before
	}
	if rapid.Bool().Draw(draw, "known now") {
		now.learn(t, known)
		want = now
	}
	if p.Flags == pkt.SYN {
		want = now
	}
	from := mux4
	if netip.MustParseAddr(now.tunnel).Is6() {
		from = mux6
	}
	frame := withoutChecksum(inGUE(p, fromTo(from, now.tunnel), step1(stepAsk, before.tunnel)))
	at := now
	for range 3 {
		got := at.run("from_uplink", frame, nil)
		switch got.verdict {
		case "chain_on", "chain_back":
			frame, at = got.frame, at.peer
			continue
		case "deliver_interface":
			out := delivered(p, at.dip[p.IP.Is4()])
			if at != want {
				draw.Fatalf("ended at %s, not %s", at.tunnel, want.tunnel)
			}
			if diff := differences(out, got.frame); diff != "" {
				draw.Fatalf("frame (-want +got):\n%s", diff)
			}
			return
		}
		draw.Fatalf("verdict at %s is %s", at.tunnel, got.verdict)
	}
	draw.Fatal("went round")
}
