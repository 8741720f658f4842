package agent

import (
	"encoding/binary"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/btf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// Who sends to a tunnel: outer sources of both families.
const strange4, strange6 = "10.66.6.6", "fd66::6"

var senders = map[string][2]string{
	"mux":           {mux4, mux6},
	"peer":          {peer4, peer6},
	"Fastpath peer": {far4, far6},
	"switch":        {switch4, switch6},
	"host":          {farHost4, farHost6}, // of the VIP that the switch holds
	"nobody":        {strange4, strange6},
}

// carrier is how a packet travels.
type carrier struct {
	name string
	inIP bool // IP-in-IP; else GUE, or
	gre  bool
	gue  gue
}

// carriers are IP-in-IP, GRE, plain GUE, and each step with each kind that the programs' types name, and the first that they
// don't.
func carriers(t *testing.T) []carrier {
	all := []carrier{{name: "IP-in-IP", inIP: true}, {name: "GRE", gre: true}, {name: "plain GUE"}}
	steps, kinds := enumOf(t, "gue_chain"), enumOf(t, "gue_kind")
	for _, s := range append(steps, btf.EnumValue{Name: "GUE_CHAIN_BEYOND", Value: uint64(len(steps))}) {
		for _, k := range append(kinds, btf.EnumValue{Name: "GUE_KIND_BEYOND", Value: uint64(len(kinds))}) {
			all = append(all, carrier{name: s.Name + " " + k.Name, gue: gue{weir: true, step: uint8(s.Value), kind: uint8(k.Value)}})
		}
	}
	return all
}

// enumOf is the values of an enum of the programs, which begins at 0 and leaves none out.
func enumOf(t *testing.T, name string) []btf.EnumValue {
	t.Helper()
	spec, err := bpf.LoadAgent()
	if err != nil {
		t.Fatal(err)
	}
	var enum *btf.Enum
	if err := spec.Types.TypeByName(name, &enum); err != nil {
		t.Fatal(err)
	}
	for i, v := range enum.Values {
		if v.Value != uint64(i) {
			t.Fatalf("%s is %d, not %d", v.Name, v.Value, i)
		}
	}
	return slices.Clone(enum.Values)
}

// content is what is inside: its IP packet, and what becomes of it when its sender may send it.
type content struct {
	name     string
	ip       []byte
	ports    [2]uint16 // of the datagram that it is a fragment of
	endpoint bool      // of an endpoint of this host
	held     bool      // of its VIP, which a switch holds
	pings    bool      // an echo request
	past     bool      // of a connection that has left the muxes, by far4 and far6
	fragment bool      // needs GUE that says the ports
	verdict  string
}

// by says what becomes of packets of each sender; "": what their contents ask for.
func by(mux, chainPeer, others string) map[string]string {
	refused := map[string]string{"mux": mux, "peer": chainPeer}
	for _, sender := range []string{"Fastpath peer", "switch", "host", "nobody"} {
		refused[sender] = others
	}
	return refused
}

// The table: what each sender may send, by carrier. A step or kind that is not in it fails the test. That switches may
// send what carries no word of Weir, and hosts of the VIP what is steered, says admitted.
var (
	refusedByStep = map[string]map[string]string{
		"IP-in-IP":            by("", "drop_not_a_mux", "drop_not_a_mux"),
		"GRE":                 by("pass_not_tunnel", "pass_not_tunnel", "pass_not_tunnel"),
		"plain GUE":           by("", "drop_not_a_mux", "drop_not_a_mux"),
		"GUE_CHAIN_NONE":      by("", "drop_not_a_mux", "drop_not_a_mux"),
		"GUE_CHAIN_QUERY":     by("", "drop_not_a_mux", "drop_not_a_mux"),
		"GUE_CHAIN_FORWARDED": by("drop_not_chain_peer", "", "drop_not_chain_peer"),
		"GUE_CHAIN_FINAL":     by("drop_not_chain_peer", "", "drop_not_chain_peer"),
		"GUE_CHAIN_HOME":      by("drop_not_chain_peer", "drop_not_chain_peer", "drop_not_chain_peer"), // there is no multipath
		"GUE_CHAIN_HOME_NEXT": by("drop_not_chain_peer", "drop_not_chain_peer", "drop_not_chain_peer"),
		"GUE_CHAIN_HOLDER":    by("drop_not_chain_peer", "drop_not_chain_peer", "drop_not_chain_peer"),
		"GUE_CHAIN_BEYOND":    by("drop_gue_unknown", "drop_gue_unknown", "drop_gue_unknown"),
	}
	refusedByKind = map[string]string{
		"":                  "",
		"GUE_KIND_PACKET":   "",
		"GUE_KIND_FRAGMENT": "",
		"GUE_KIND_RELAY":    "drop_gue_unknown",
		"GUE_KIND_STEERED":  "",
		"GUE_KIND_TOKEN":    "",
		"GUE_KIND_JOINED":   "",
		"GUE_KIND_BEYOND":   "drop_gue_unknown",
	}
)

// steered is what becomes of the content if a switch brings it, or a host of its VIP steers it; closed: if there is no such
// endpoint; fragment: of one; refused: if that VIP is not the one that switches hold.
func (c content) steered(closed, fragment, refused string) string {
	switch {
	case c.fragment && c.endpoint:
		return fragment
	case c.fragment, c.pings:
		return refused
	case strings.HasPrefix(c.verdict, "drop_inner_"):
		return c.verdict
	case c.verdict == "drop_no_rule":
		return closed
	case c.endpoint || c.held:
		return c.verdict
	}
	return refused
}

// isForHeldVIP says whether the content is for the VIP that switches hold in TestAdmission.
func (c content) isForHeldVIP() bool {
	to, vip := c.ip[16:20], vip4
	if c.ip[0]>>4 == 6 {
		to, vip = c.ip[24:40], vip6
	}
	address, _ := netip.AddrFromSlice(to)
	return address == netip.MustParseAddrPort(vip).Addr()
}

// admitted is the verdict that the table expects.
func admitted(t *testing.T, sender string, by carrier, in content) string {
	t.Helper()
	stepName, kindName := by.name, ""
	if by.gue.weir {
		if _, err := fmt.Sscan(by.name, &stepName, &kindName); err != nil {
			t.Fatal(err)
		}
	}
	byKind, known := refusedByKind[kindName]
	if !known {
		t.Fatalf("the table does not say what hosts do with %s", kindName)
	}
	bySender, known := refusedByStep[stepName]
	if !known {
		t.Fatalf("the table does not say who may send %s", stepName)
	}
	refused, known := bySender[sender]
	switch {
	case !known:
		t.Fatalf("the table does not say what %s may send", sender)
	case byKind != "":
		return byKind
	case kindName == "GUE_KIND_TOKEN" && stepName != "GUE_CHAIN_HOME" && stepName != "GUE_CHAIN_HOME_NEXT" && stepName != "GUE_CHAIN_HOLDER",
		kindName == "GUE_KIND_JOINED" && stepName != "GUE_CHAIN_HOLDER":
		return "drop_gue_unknown"
	case kindName == "GUE_KIND_STEERED":
		switch {
		case stepName != "GUE_CHAIN_NONE" && stepName != "GUE_CHAIN_QUERY":
			return "drop_gue_unknown"
		case sender != "host":
			return "drop_not_a_vip_host"
		}
		return in.steered("drop_no_rule", "drop_inner_fragment", "drop_not_a_vip_host")
	case sender == "host" && (by.inIP || by.gre):
		if in.endpoint && !in.fragment || in.verdict == "drop_no_rule" {
			return in.verdict
		}
		if by.gre && !in.isForHeldVIP() {
			return "pass_not_tunnel"
		}
		return "drop_not_a_mux"
	case sender == "switch" && kindName == "":
		return in.steered("drop_steer_closed", "relay_fragment", "drop_not_a_mux")
	case stepName == "IP-in-IP" && sender == "Fastpath peer" && in.past:
		return in.verdict
	case refused != "":
		return refused
	case sender == "peer" && (!in.endpoint || in.fragment && kindName != "GUE_KIND_FRAGMENT"):
		return "drop_not_chain_peer"
	case in.fragment && kindName != "GUE_KIND_FRAGMENT":
		return "drop_inner_fragment"
	}
	return in.verdict
}

// frameBy is the content from a sender to a tunnel of ours, by a carrier.
func (c content) frameBy(by carrier, from, to, other string) []byte {
	protocol, inner := byte(4), pkt.IP{Source: netip.MustParseAddr(mux4)}
	if c.ip[0]>>4 == 6 {
		protocol, inner.Source = 41, netip.MustParseAddr(mux6)
	}
	head := fromTo(from, to)
	if by.gre {
		return inGRE(c.ip, head).Frame()
	}
	if by.inIP {
		frame := pkt.UDP(client4, vip4).Inside(head).Frame()[:ethernetHeader+20]
		if head.Source.Is6() {
			frame = pkt.UDP(client4, vip4).Inside(head).Frame()[:ethernetHeader+40]
		}
		setCarried(frame[ethernetHeader:], protocol, len(c.ip))
		return append(frame, c.ip...)
	}
	g := by.gue
	if g.weir {
		g.other = netip.MustParseAddr(other)
	}
	if c.fragment {
		g.sourcePort, g.destinationPort = c.ports[0], c.ports[1]
	}
	return withoutChecksum(inGUE(pkt.UDP(client4, vip4), head, g).With(pkt.Payload(append(g.bytes(inner), c.ip...))))
}

// setCarried has an outer IP header carry so many bytes of a protocol.
func setCarried(ip []byte, protocol byte, bytes int) {
	if ip[0]>>4 == 6 {
		ip[6] = protocol
		binary.BigEndian.PutUint16(ip[4:], uint16(bytes))
		return
	}
	ip[9], ip[10], ip[11] = protocol, 0, 0
	binary.BigEndian.PutUint16(ip[2:], uint16(20+bytes))
	binary.BigEndian.PutUint16(ip[10:], sumOf(ip[:20]))
}

// admissionWorld is one family's names.
type admissionWorld struct {
	client, vip, dip, crawler, remote, past, newcomer, router string
	echoRequest, echoReply, unreachable                       uint8
	at                                                        int // of the ICMP header in the IP packet
}

var admissionWorlds = map[string]admissionWorld{
	"v4": {client4, vip4, native4, crawler4, remote4, "198.51.100.9:9999", "192.0.2.77:7", "192.0.2.1", echo4, 0, unreachable4, 20},
	"v6": {client6, vip6, native6, crawler6, remote6, "[2001:db8::9]:9999", "[2001:db8:77::7]:7", "2001:db8:9::1", echo6, 129, unreachable6, 40},
}

// fill makes what the contents are about, and returns them.
func (w admissionWorld) fill(r *rig) []content {
	r.t.Helper()
	ack, udp := pkt.TCP(w.client, w.vip, pkt.ACK), pkt.UDP(w.client, w.vip)
	past := ack.With(from(w.past))
	for _, p := range []pkt.Packet{ack, udp, past} {
		if got := r.verdict("from_uplink", p.Inside(outer(native4))); got != "deliver_native" {
			r.t.Fatalf("%v is %s", p.IP, got)
		}
		if got := r.verdict("to_uplink", replyTo(delivered(p, w.dip), p.Flags)); got != "reply_native" {
			r.t.Fatalf("the reply to %v is %s", p.IP, got)
		}
	}
	out := r.leaves(w.dip, pkt.UDP(own(w.dip, 50000), w.remote))
	answer := replyTo(out, 0)
	remote := netip.MustParseAddrPort(w.remote).Addr().String()
	ping := r.run("to_uplink", asFrame(echo(w.dip, remote, w.echoRequest, 77)), nil)
	id := binary.BigEndian.Uint16(ping.frame[ethernetHeader+w.at+4:])
	pong := echo(remote, w.crawler, w.echoReply, id)
	_, lastPong := split(longEcho(remote, w.crawler, w.echoReply, id))
	pastAnswer := replyTo(r.leaves(w.dip, pkt.UDP(own(w.dip, 50001), w.past)), 0)
	vip, ports := netip.MustParseAddrPort(w.vip), [2]uint16{udp.SourcePort, udp.DestinationPort}
	raw := func(p pkt.Packet) []byte { return p.Frame()[ethernetHeader:] }
	malformed := raw(ack)
	malformed[w.at+12] = 0x10 // a TCP header of 4 bytes
	return []content{
		{name: "segment of a session", ip: raw(ack), endpoint: true, verdict: "deliver_native"},
		{name: "datagram of a session", ip: raw(udp), endpoint: true, verdict: "deliver_native"},
		{name: "SYN of nobody", ip: raw(pkt.TCP(w.newcomer, w.vip, pkt.SYN)), endpoint: true, verdict: "deliver_native"},
		{name: "segment past the muxes", ip: raw(past), endpoint: true, past: true, verdict: "deliver_native"},
		{name: "answer past the muxes", ip: raw(pastAnswer), past: true, verdict: "deliver_native"},
		{name: "first fragment", ip: raw(piece(udp, 0, true)), ports: ports, endpoint: true, fragment: true, verdict: "deliver_native"},
		{name: "later fragment", ip: raw(piece(udp, 5, false)), ports: ports, endpoint: true, fragment: true, verdict: "deliver_native"},
		{name: "answer to source NAT", ip: raw(answer), verdict: "deliver_native"},
		{name: "first fragment of an answer", ip: raw(piece(answer, 0, true)), ports: [2]uint16{answer.SourcePort, answer.DestinationPort}, fragment: true, verdict: "deliver_native"},
		{name: "later fragment of an answer", ip: raw(piece(answer, 5, false)), ports: [2]uint16{answer.SourcePort, answer.DestinationPort}, fragment: true, verdict: "deliver_native"},
		{name: "what filtering lets in", ip: raw(answer.With(from(w.newcomer))), verdict: "deliver_native"},
		{name: "answer to a ping", ip: pong, verdict: "deliver_native"},
		{name: "fragment of an answer to a ping", ip: lastPong, ports: [2]uint16{0, id}, fragment: true, verdict: "deliver_native"},
		{name: "error about a session", held: true, ip: message(w.router, vip.Addr().String(), w.unreachable, quote(replyTo(udp, 0), 48)), verdict: "deliver_native"},
		{name: "error about source NAT", ip: message(w.router, w.crawler, w.unreachable, quote(out, 48)), verdict: "deliver_native"},
		{name: "error about nothing", ip: message(w.router, w.crawler, w.unreachable, quote(udp, 48)), verdict: "drop_icmp_unknown"},
		{name: "ping", pings: true, ip: echo(remote, w.crawler, w.echoRequest, 5), verdict: "drop_inner_other"},
		{name: "no rule", ip: raw(udp.With(func(p *pkt.Packet) { p.DestinationPort = 9 })), verdict: "drop_no_rule"},
		{name: "malformed", ip: malformed, verdict: "drop_inner_malformed"},
		{name: "cut short", ip: raw(ack)[:w.at+4], verdict: "drop_inner_malformed"},
	}
}

// leave has the connections of w.past be ones that have left the muxes, by tunnels of one family.
func (w admissionWorld) leave(r *rig, ownTunnel, far string) {
	r.t.Helper()
	remote := netip.MustParseAddrPort(w.past)
	row := bpf.AgentFastpath{Peer: bpf.ToAddress(netip.MustParseAddr(far)), Own: bpf.ToAddress(netip.MustParseAddr(ownTunnel)), State: bpf.AgentFastpathStateFASTPATH_SEND}
	for port, protocol := range map[uint16]model.Protocol{backendPort: model.TCP, 50001: model.UDP} {
		key := bpf.AgentSessionKey{
			Client: bpf.ToAddress(remote.Addr()), ClientPort: abi.Port(remote.Port()),
			Dip: bpf.ToAddress(netip.MustParseAddr(w.dip)), DipPort: abi.Port(port), Protocol: uint8(protocol),
		}
		if err := r.objects.Fastpath.Put(key, row); err != nil {
			r.t.Fatal(err)
		}
	}
}

// rowCounts is how many rows the tables have that packets make rows in.
func (r *rig) rowCounts() map[string]int {
	r.t.Helper()
	counts := make(map[string]int)
	for name, table := range map[string]*ebpf.Map{
		"sessions": r.objects.Sessions, "new_sessions": r.objects.NewSessions, "fastpath": r.objects.Fastpath,
		"snat_flows": r.objects.SnatFlows, "snat_ports": r.objects.SnatPorts, "snat_block_use": r.objects.SnatBlockUse,
	} {
		var key, value []byte
		rows := table.Iterate()
		for rows.Next(&key, &value) {
			counts[name]++
		}
		if err := rows.Err(); err != nil {
			r.t.Fatal(err)
		}
	}
	return counts
}

// TestAdmission goes through every sender, carrier and content, by tunnels of both families. First come those that are
// refused for their sender: they leave the tables as they were.
func TestAdmission(t *testing.T) {
	for family, w := range admissionWorlds {
		for i, tunnel := range []string{native4, native6} {
			t.Run(family+" to "+tunnel, func(t *testing.T) {
				r := snatRig(t, filtering(model.FilterNone))
				contents := w.fill(r)
				w.leave(r, tunnel, senders["Fastpath peer"][i])
				r.hold(w.vip, tunnel)
				before := r.rowCounts()
				refused := r.admission(t, contents, i, tunnel, true)
				if after := r.rowCounts(); !maps.Equal(before, after) {
					t.Errorf("rows were %v, and are %v after what was refused", before, after)
				}
				taken := r.admission(t, contents, i, tunnel, false)
				t.Logf("%d refused, %d not", refused, taken)
			})
		}
	}
}

// admission sends what is refused for its sender, or all else, and counts it.
func (r *rig) admission(t *testing.T, contents []content, family int, tunnel string, refused bool) (n int) {
	t.Helper()
	ways := carriers(t)
	for _, in := range contents {
		for _, by := range ways {
			for sender, addresses := range senders {
				want := admitted(t, sender, by, in)
				if strings.HasPrefix(want, "drop_not_a_") != refused {
					continue
				}
				n++
				got := r.run("from_uplink", in.frameBy(by, addresses[family], tunnel, peer4), nil)
				if got.verdict != want || got.action != actionOf(want) {
					t.Errorf("%s from %s by %s: verdict is %s with %d, not %s", in.name, sender, by.name, got.verdict, int32(got.action), want)
				}
			}
		}
	}
	return n
}
