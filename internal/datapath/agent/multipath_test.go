package agent

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/multipath"
	"github.com/weirlb/weir/internal/pkt"
)

// What GUE says of subflows, and what a copy of a packet is for: bpf/abi/shared/gue.h, bpf/agent/multipath_copy.h.
const (
	stepHome, stepHomeNext, stepHolder = 4, 5, 6
	kindToken, kindJoined              = 4, 5
	copyHome, copyHomeNext, copyJoined = 1, 2, 3
)

// multipathOption is an option of Multipath TCP.
func multipathOption(data ...byte) func(*pkt.Packet) {
	return pkt.TCPOptions(layers.TCPOption{OptionType: 30, OptionLength: uint8(2 + len(data)), OptionData: data})
}

// joins is a SYN that joins the connection of the token.
func joins(client, vip string, token multipath.Token) pkt.Packet {
	data := binary.BigEndian.AppendUint32([]byte{1 << 4, 2}, uint32(token))
	return pkt.TCP(client, vip, pkt.SYN, pkt.MSS(1400), multipathOption(append(data, 7, 7, 7, 7)...))
}

// capable is the option of a SYN/ACK with the key.
func capable(key [8]byte) func(*pkt.Packet) {
	return multipathOption(append([]byte{1, 1}, key[:]...)...)
}

// multipathRules are the endpoint of a VIP with multipath, on this host and others.
func multipathRules(vip string, hosts []netip.Addr) (all []model.HostBackend) {
	for _, tunnel := range []string{native4, native6, interface4, interface6} {
		b := rule(model.TCP, vip, tunnel, native4, native6)
		if tunnel == interface4 || tunnel == interface6 {
			b = rule(model.TCP, vip, tunnel, interface4, interface6)
		}
		b.Homes = hosts
		all = append(all, b)
	}
	return all
}

func (r *rig) setMultipath(vip string, hosts ...string) {
	r.t.Helper()
	addresses := make([]netip.Addr, len(hosts))
	for i, host := range hosts {
		addresses[i] = netip.MustParseAddr(host)
	}
	if err := r.Apply(multipathRules(vip, addresses), nil); err != nil {
		r.t.Fatal(err)
	}
}

// forgetMultipath empties what packets fill.
func (r *rig) forgetMultipath() {
	r.t.Helper()
	for _, err := range []error{
		abi.WriteTable(r.objects.MptcpTokens, map[bpf.AgentMultipathName]bpf.AgentMultipathHolder{}),
		abi.WriteTable(r.objects.MptcpNames, map[bpf.AgentMultipathName]bpf.AgentMultipathHolder{}),
		abi.WriteTable(r.objects.MptcpJoined, map[bpf.AgentMultipathFlow]bpf.AgentMultipathJoined{}),
		abi.WriteTable(r.objects.MptcpJoining, map[bpf.AgentMultipathFlow]bpf.AgentMultipathJoined{}),
		abi.WriteTable(r.objects.Sessions, map[bpf.AgentSessionKey]bpf.AgentSession{}),
		abi.WriteTable(r.objects.NewSessions, map[bpf.AgentSessionKey]bpf.AgentSession{}),
	} {
		if err != nil {
			r.t.Fatal(err)
		}
	}
}

// tells is a message of a peer's agent.
func tells(name multipath.Name, from, to, holder string) []byte {
	client := client4
	if name.Endpoint.VIP.Is6() {
		client = client6
	}
	return says(multipath.Tell(name, netip.MustParseAddr(holder), netip.MustParseAddrPort(client), multipath.StepHome), from, to)
}

// says is a message on the wire.
func says(payload []byte, from, to string) []byte {
	head := fromTo(from, to)
	return withoutChecksum(pkt.UDP(
		netip.AddrPortFrom(head.Source, entropy).String(), netip.AddrPortFrom(head.Destination, guePort).String(),
		pkt.Payload(payload), func(p *pkt.Packet) { p.IP = head }))
}

// sealed is the context of a copy.
func (r *rig) sealed(what uint32) []byte {
	r.t.Helper()
	seal := bpf.AgentFlowhashKey{Words: [10]uint32{4711, 815}}
	if err := r.objects.HashKey.Set(seal); err != nil {
		r.t.Fatal(err)
	}
	skb := make([]byte, sizeOfSKB)
	for i, word := range []uint32{seal.Words[0], seal.Words[1], what} {
		binary.NativeEndian.PutUint32(skb[offsetOfCB+4*i:], word)
	}
	return skb
}

// sourceFor is the outer source of what a tunnel of this host sends to another one.
func sourceFor(own, to string) string {
	switch a := netip.MustParseAddr(to); {
	case a.Is4() == netip.MustParseAddr(own).Is4():
		return own
	case a.Is4():
		return host4
	}
	return host6
}

// drawn is a join in a world that is drawn.
type drawn struct {
	vip, client string
	hosts       []string
	name        multipath.Name
	own, named  string // tunnels; empty: none
	step        multipath.Step
	tunnel      string // that it comes to
	other       string // that it first came to, with a step
}

func drawJoin(draw *rapid.T) drawn {
	d := drawn{vip: vip4, client: client4}
	if rapid.Bool().Draw(draw, "v6") {
		d.vip, d.client = vip6, client6
	}
	d.hosts = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{native4, peer4, peer6}), 1, 3, rapid.ID[string]).Draw(draw, "hosts")
	at := netip.MustParseAddrPort(d.vip)
	d.name = multipath.Name{Endpoint: model.EndpointKey{VIP: at.Addr(), Protocol: model.TCP, Port: at.Port()}, Token: multipath.Token(rapid.Uint32Range(1, 1<<32-1).Draw(draw, "token"))}
	d.own = rapid.SampledFrom([]string{"", "", native4, interface4, interface6}).Draw(draw, "own")
	d.named = rapid.SampledFrom([]string{"", peer4, peer6}).Draw(draw, "named")
	d.step = rapid.SampledFrom([]multipath.Step{multipath.StepNone, multipath.StepHome, multipath.StepHomeNext, multipath.StepHolder}).Draw(draw, "step")
	d.tunnel = rapid.SampledFrom([]string{native4, native6, interface4}).Draw(draw, "tunnel")
	d.other = rapid.SampledFrom([]string{peer4, peer6}).Draw(draw, "other")
	return d
}

func addressOf(s string) netip.Addr {
	if s == "" {
		return netip.Addr{}
	}
	return netip.MustParseAddr(s)
}

// want is the verdict of the model, and where the SYN goes on to.
func (d drawn) want() (verdict string, decision multipath.Decision) {
	hosts := make([]netip.Addr, len(d.hosts))
	for i, host := range d.hosts {
		hosts[i] = netip.MustParseAddr(host)
	}
	here := map[netip.Addr]bool{}
	for _, tunnel := range []string{native4, native6, interface4, interface6} {
		here[netip.MustParseAddr(tunnel)] = true
	}
	decision = multipath.Join(d.step, multipath.Arrival{
		Tunnel: netip.MustParseAddr(d.tunnel), Own: addressOf(d.own), Named: addressOf(d.named), Homes: multipath.HomesOf(hosts)[d.name.Token.Cell()],
		Here: func(a netip.Addr) bool { return here[a] },
	})
	switch {
	case decision.Verdict == multipath.DropUnknown:
		return "drop_join_unknown", decision
	case decision.Verdict != multipath.Deliver:
		return string(decision.Verdict), decision
	case decision.To == netip.MustParseAddr(native4) || decision.To == netip.MustParseAddr(native6):
		return "deliver_native", decision
	}
	return "deliver_interface", decision
}

// note fills the tables, the names by messages of a peer.
func (d drawn) note(r *rig) error {
	if d.own != "" {
		row := bpf.AgentMultipathHolder{Tunnel: bpf.ToAddress(addressOf(d.own)), Until: 1 << 62}
		var token [4]byte
		binary.BigEndian.PutUint32(token[:], uint32(d.name.Token))
		key := bpf.AgentMultipathName{
			Vip: bpf.ToAddress(d.name.Endpoint.VIP), Port: abi.Port(d.name.Endpoint.Port), Protocol: uint8(model.TCP),
			Token: binary.NativeEndian.Uint32(token[:]),
		}
		if err := r.objects.MptcpTokens.Put(key, row); err != nil {
			return err
		}
	}
	if d.named == "" {
		return nil
	}
	if got := r.run("from_uplink", tells(d.name, peer4, native4, d.named), nil); got.verdict != "join_noted" {
		return fmt.Errorf("the message of %s is %s", d.named, got.verdict)
	}
	return nil
}

// TestJoinsGoAsTheModel compares the program with internal/multipath.
func TestJoinsGoAsTheModel(t *testing.T) {
	r := newRig(t)
	seen := map[string]int{}
	rapid.Check(t, func(draw *rapid.T) {
		d := drawJoin(draw)
		r.setMultipath(d.vip, d.hosts...)
		r.forgetMultipath()
		if err := d.note(r); err != nil {
			draw.Fatal(err)
		}
		syn := joins(d.client, d.vip, d.name.Token)
		in := syn.Inside(outer(d.tunnel)).Frame()
		if d.step != multipath.StepNone {
			from := peer4
			if netip.MustParseAddr(d.tunnel).Is6() {
				from = peer6
			}
			in = withoutChecksum(inGUE(syn, fromTo(from, d.tunnel), step1(uint8(d.step), d.other)))
		}
		want, decision := d.want()
		got := r.run("from_uplink", in, nil)
		if got.verdict != want {
			draw.Fatalf("verdict is %s, not %s: %+v", got.verdict, want, decision)
		}
		seen[fmt.Sprintf("%s after %d", want, d.step)]++
		if decision.Verdict != multipath.AskHome && decision.Verdict != multipath.HandOn {
			return
		}
		other, to := d.tunnel, decision.To.String()
		if d.step != multipath.StepNone {
			other = d.other
		}
		out := inGUE(syn, fromTo(sourceFor(d.tunnel, to), to), step1(uint8(decision.Step), other))
		if wrong := differs(got.frame, out.Frame()); wrong != "" {
			draw.Fatalf("what goes on: %s", wrong)
		}
	})
	t.Logf("%v", seen)
}

// differs compares what goes on in GUE with what is wanted, but for what has a port of its own or no checksum.
func differs(got, want []byte) string {
	at := ethernetHeader + 20
	if want[ethernetHeader]>>4 == 6 {
		at += 20
	}
	if len(got) < len(want) {
		return fmt.Sprintf("%d bytes, not %d", len(got), len(want))
	}
	for i := ethernetHeader; i < len(want); i++ {
		if i >= at && i < at+2 || i >= at+6 && i < at+8 {
			continue
		}
		if got[i] != want[i] {
			return fmt.Sprintf("byte %d is %02x, not %02x\n%x\n%x", i, got[i], want[i], got, want)
		}
	}
	return ""
}

// multipathWorld is one family's names of a connection.
type multipathWorld struct{ client, vip, dip, tunnel, deliver, program, reply string }

var multipathWorlds = map[string]multipathWorld{
	"v4 native":    {client4, vip4, native4, native4, "deliver_native", "to_uplink", "reply_native"},
	"v6 native":    {client6, vip6, native6, native4, "deliver_native", "to_uplink", "reply_native"},
	"v4 interface": {client4, vip4, interface4, interface6, "deliver_interface", "from_workload", "reply_uplink"},
	"v6 interface": {client6, vip6, interface6, interface4, "deliver_interface", "from_workload", "reply_uplink"},
}

var testKey = [8]byte{0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0}

func (w multipathWorld) name(token multipath.Token) multipath.Name {
	at := netip.MustParseAddrPort(w.vip)
	return multipath.Name{Endpoint: model.EndpointKey{VIP: at.Addr(), Protocol: model.TCP, Port: at.Port()}, Token: token}
}

// shake has a connection with Multipath TCP begin, and returns the client's third segment.
func (w multipathWorld) shake(r *rig, t *testing.T) pkt.Packet {
	t.Helper()
	syn := pkt.TCP(w.client, w.vip, pkt.SYN, multipathOption(1, 1))
	ack := pkt.TCP(w.client, w.vip, pkt.ACK, pkt.NOP(2), pkt.Timestamps(2, 5<<13|backendSlot))
	answer := replyTo(delivered(syn, w.dip), pkt.SYN|pkt.ACK, pkt.NOP(2), pkt.Timestamps(5, 1), capable(testKey))
	ack.Ack = answer.Seq + 1
	for _, s := range []struct {
		program string
		p       pkt.Packet
		want    string
	}{{"from_uplink", syn.Inside(outer(w.tunnel)), w.deliver}, {w.program, answer, w.reply}} {
		if got := r.verdict(s.program, s.p); got != s.want {
			t.Fatalf("%s: %s, not %s", s.program, got, s.want)
		}
	}
	return ack
}

// TestConnectionsAreTold has the program learn a token of a workload's SYN/ACK, keep it once the client has proven that it is
// there, and tell it to both homes.
func TestConnectionsAreTold(t *testing.T) {
	for name, w := range multipathWorlds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setMultipath(w.vip, peer4, peer6)
			token := multipath.TokenOf(testKey)
			ack := w.shake(r, t)
			if own, err := r.OwnTokens(); err != nil || len(own) != 0 {
				t.Errorf("before the client has proven anything: %v, %v", own, err)
			}
			in := ack.Inside(outer(w.tunnel))
			if got := r.verdict("from_uplink", in); got != w.deliver {
				t.Fatalf("third segment: %s", got)
			}
			own, err := r.OwnTokens()
			if err != nil || len(own) != 1 || own[0].Name != w.name(token) || own[0].Tunnel != netip.MustParseAddr(w.tunnel) {
				t.Fatalf("tokens: %v, %v", own, err)
			}
			for what, home := range map[uint32]netip.Addr{copyHome: own[0].Homes[0], copyHomeNext: own[0].Homes[1]} {
				got := r.run("from_uplink", in.Frame(), r.sealed(what))
				if got.verdict != "join_told" {
					t.Fatalf("copy %d: %s", what, got.verdict)
				}
				step := uint8(stepHome)
				if what == copyHomeNext {
					step = stepHomeNext
				}
				say := step1(step, w.tunnel)
				say.kind, say.sourcePort, say.destinationPort = kindToken, uint16(token>>16), uint16(token)
				want := inGUE(ack, fromTo(sourceFor(w.tunnel, home.String()), home.String()), say)
				if wrong := differs(got.frame, want.Frame()); wrong != "" {
					t.Errorf("copy %d: %s", what, wrong)
				}
			}
			if got := r.run("from_uplink", pkt.TCP(w.client, w.vip, pkt.ACK, from(from6or4(w.client))).Inside(outer(w.tunnel)).Frame(), r.sealed(copyHome)); got.verdict != "drop_join_stale" {
				t.Errorf("copy of a packet of no connection: %s", got.verdict)
			}
			// Of the same connection, the host itself knows at once.
			syn := joins(from6or4(w.client), w.vip, token)
			if got := r.verdict("from_uplink", syn.Inside(outer(w.tunnel))); got != w.deliver {
				t.Errorf("join: %s", got)
			}
		})
	}
}

// from6or4 is another client of the same family.
func from6or4(client string) string {
	if netip.MustParseAddrPort(client).Addr().Is6() {
		return "[2001:db8::8]:41000"
	}
	return "198.51.100.8:41000"
}

// TestSubflowsWithoutCookie has the host that a subflow first came to remember who has it, and hand on segments without a cookie:
// not those of a connection of its own.
func TestSubflowsWithoutCookie(t *testing.T) {
	for name, w := range multipathWorlds {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.setMultipath(w.vip, peer4, peer6)
			from := peer4
			if netip.MustParseAddr(w.tunnel).Is6() {
				from = peer6
			}
			say := step1(stepHolder, peer4)
			say.kind = kindJoined
			syn, ack := joins(w.client, w.vip, 77), pkt.TCP(w.client, w.vip, pkt.ACK)
			r.check("told", carried(syn, fromTo(from, w.tunnel), say, "join_noted", nil))
			for _, asks := range []uint16{1, 1, 0} {
				on := step1(stepHolder, w.tunnel)
				on.sourcePort = asks
				want := inGUE(ack, fromTo(sourceFor(w.tunnel, peer4), peer4), on)
				if asks == 0 { // its host has seen that the client is there
					r.check("told again", carried(ack, fromTo(from, w.tunnel), say, "join_noted", nil))
				}
				got := r.run("from_uplink", ack.Inside(outer(w.tunnel)).Frame(), nil)
				if wrong := differs(got.frame, want.Frame()); got.verdict != "join_on" || wrong != "" {
					t.Fatalf("segment: %s, %s", got.verdict, wrong)
				}
			}
			// A forged SYN of the same ports does not turn it away, nor what another host says of it.
			other := step1(stepHolder, peer6)
			other.kind = kindJoined
			r.check("told by another", carried(syn, fromTo(from, w.tunnel), other, "drop_join_conflict", nil))
			r.check("told by another of a segment", carried(ack, fromTo(from, w.tunnel), other, "drop_join_conflict", nil))
			plain := pkt.TCP(w.client, w.vip, pkt.SYN)
			if got := r.verdict("from_uplink", plain.Inside(outer(w.tunnel))); got != w.deliver {
				t.Fatalf("SYN: %s", got)
			}
			answer := replyTo(delivered(plain, w.dip), pkt.SYN|pkt.ACK)
			answer.Seq = 0x7000_0000
			if got := r.verdict(w.program, answer); got != w.reply {
				t.Fatalf("SYN/ACK: %s", got)
			}
			if got := r.verdict("from_uplink", ack.Inside(outer(w.tunnel))); got != "join_on" {
				t.Errorf("segment of the subflow after a forged SYN: %s", got)
			}
			ack.Ack = answer.Seq + 1
			if got := r.verdict("from_uplink", ack.Inside(outer(w.tunnel))); got != w.deliver {
				t.Errorf("segment of the new connection: %s", got)
			}
		})
	}
}

// TestWhoMayTell has nobody but a peer of an endpoint with multipath tell anything, and nothing noted of what is refused.
func TestWhoMayTell(t *testing.T) {
	r := newRig(t)
	r.setMultipath(vip4, peer4, peer6)
	w := multipathWorlds["v4 native"]
	name := w.name(99)
	foreign := name
	foreign.Endpoint.VIP = netip.MustParseAddrPort(otherVIP4).Addr() // has no multipath
	for what, c := range map[string]struct {
		frame []byte
		want  string
	}{
		"mux":                 {tells(name, mux4, native4, peer4), "drop_not_chain_peer"},
		"stranger":            {tells(name, strange4, native4, peer4), "drop_not_chain_peer"},
		"peer for a stranger": {tells(name, peer4, native4, strange4), "drop_not_chain_peer"},
		"no multipath":        {tells(foreign, peer4, native4, peer4), "drop_not_chain_peer"},
		"equal token":         {tells(name, peer4, native4, peer6), "join_noted"},
		"equal token again":   {tells(name, peer4, native4, peer6), "join_noted"},
	} {
		if got := r.run("from_uplink", c.frame, nil); got.verdict != c.want {
			t.Errorf("%s: %s, not %s", what, got.verdict, c.want)
		}
	}
	if got := r.run("from_uplink", tells(name, peer4, native4, peer4), nil); got.verdict != "drop_join_conflict" {
		t.Errorf("of another holder: %s", got.verdict)
	}
	if report, err := r.SweepMultipath(); err != nil || report.Names != 1 || report.Tokens+report.Joined+report.Unconfirmed != 0 {
		t.Errorf("left are %+v, %v", report, err)
	}
}

// TestQuotasOfTokens has a VIP get no more than its share.
func TestQuotasOfTokens(t *testing.T) {
	r := newRig(t)
	r.setMultipath(vip4, peer4, peer6)
	vip := netip.MustParseAddrPort(vip4).Addr()
	if err := r.objects.MptcpQuotas.Put(bpf.ToAddress(vip), bpf.AgentMultipathQuota{Limit: [4]uint64{0, 2, 0, 2}}); err != nil {
		t.Fatal(err)
	}
	for i, want := range []string{"join_noted", "join_noted", "drop_join_full"} {
		if got := r.run("from_uplink", tells(multipathWorlds["v4 native"].name(multipath.Token(i+1)), peer4, native4, peer4), nil); got.verdict != want {
			t.Errorf("%d: %s, not %s", i, got.verdict, want)
		}
	}
	if report, err := r.SweepMultipath(); err != nil || report.Names != 2 || report.Refused != 1 {
		t.Errorf("left are %+v, %v", report, err)
	}
	if got := r.run("from_uplink", tells(multipathWorlds["v4 native"].name(9), peer4, native4, peer4), nil); got.verdict != "join_noted" {
		t.Errorf("after the sweep: %s", got.verdict)
	}
}

// TestQuotasOfSubflows has a VIP get no more than its share of either kind.
func TestQuotasOfSubflows(t *testing.T) {
	r := newRig(t)
	r.setMultipath(vip4, peer4, peer6)
	if err := r.objects.MptcpQuotas.Put(bpf.ToAddress(netip.MustParseAddrPort(vip4).Addr()), bpf.AgentMultipathQuota{Limit: [4]uint64{0, 0, 1, 2}}); err != nil {
		t.Fatal(err)
	}
	say := step1(stepHolder, peer4)
	say.kind = kindJoined
	for i, want := range []string{"join_noted", "join_noted", "drop_join_full"} {
		syn := joins(fmt.Sprintf("198.51.100.9:%d", 30000+i), vip4, 77)
		r.check("told", carried(syn, fromTo(peer4, native4), say, want, nil))
	}
	for i, want := range []string{"join_noted", "drop_join_full"} {
		ack := pkt.TCP(fmt.Sprintf("198.51.100.9:%d", 30000+i), vip4, pkt.ACK)
		r.check("told again", carried(ack, fromTo(peer4, native4), say, want, nil))
	}
	if report, err := r.SweepMultipath(); err != nil || report.Joined != 1 || report.Unconfirmed != 1 || report.Refused != 2 {
		t.Errorf("left are %+v, %v", report, err)
	}
}

// ageNames lets time pass for what a home was told.
func (r *rig) ageNames(by time.Duration) {
	r.t.Helper()
	rows, err := abi.ReadTable[bpf.AgentMultipathName, bpf.AgentMultipathHolder](r.objects.MptcpNames)
	if err != nil {
		r.t.Fatal(err)
	}
	for key, row := range rows {
		row.Until -= uint64(by)
		if err := r.objects.MptcpNames.Put(key, row); err != nil {
			r.t.Fatal(err)
		}
	}
}
