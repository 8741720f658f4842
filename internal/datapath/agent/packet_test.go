package agent

import (
	"bytes"
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/cilium/ebpf"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/gopacket/gopacket/layers"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

// step is one frame given to one program.
type step struct {
	program string
	in      []byte
	skb     []byte // context; nil: a plain buffer
	verdict string
	want    *pkt.Packet // nil: the frame comes out as it went in, or is dropped
}

// packetCase is steps on the same tables; each is checked whole.
type packetCase struct {
	name  string
	steps []step
}

func inbound(p pkt.Packet, verdict string, want *pkt.Packet) step {
	return step{program: "from_uplink", in: p.Frame(), verdict: verdict, want: want}
}

func outbound(program string, p pkt.Packet, verdict string, want *pkt.Packet) step {
	return step{program: program, in: p.Frame(), verdict: verdict, want: want}
}

// connections is every combination of transport, families and kind of workload: a packet in, its
// reply out.
func connections() []packetCase {
	var all []packetCase
	for _, family := range []int{4, 6} {
		for _, tunnelFamily := range []int{4, 6} {
			for _, kind := range []string{"native", "interface"} {
				for _, protocol := range []layers.IPProtocol{layers.IPProtocolTCP, layers.IPProtocolUDP} {
					all = append(all, connection(family, tunnelFamily, kind, protocol))
				}
			}
		}
	}
	return all
}

func connection(family, tunnelFamily int, kind string, protocol layers.IPProtocol) packetCase {
	client, vip, dip := client4, vip4, dipOf(kind, 4)
	if family == 6 {
		client, vip, dip = client6, vip6, dipOf(kind, 6)
	}
	in := pkt.UDP(client, vip)
	if protocol == layers.IPProtocolTCP {
		in = pkt.TCP(client, vip, pkt.ACK|pkt.PSH)
	}
	in = in.Inside(outer(dipOf(kind, tunnelFamily)))
	workload := delivered(in, dip)
	answer := replyTo(workload, in.Flags)
	direct := answer.With(from(vip))
	program, verdict := "to_uplink", "reply_native"
	if kind == "interface" {
		program, verdict = "from_workload", "reply_uplink"
	}
	return packetCase{
		name: fmt.Sprintf("%v over v%d in v%d to %s", protocol, family, tunnelFamily, kind),
		steps: []step{
			inbound(in, "deliver_"+kind, &workload),
			outbound(program, answer, verdict, &direct),
		},
	}
}

func dipOf(kind string, family int) string {
	switch {
	case kind == "native" && family == 4:
		return native4
	case kind == "native":
		return native6
	case family == 4:
		return interface4
	}
	return interface6
}

// TestPackets gives frames to the programs and checks verdict, action, counter and bytes.
func TestPackets(t *testing.T) {
	for _, c := range packetCases() {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t)
			for i, s := range c.steps {
				r.check(fmt.Sprintf("step %d", i), s)
			}
		})
	}
}

func packetCases() []packetCase {
	all := connections()
	for _, group := range [][]packetCase{
		passCases(), refusalCases(), innerCases(), ecnCases(), mssCases(), sessionCases(), routeCases(), cookieCases(),
		gueCases(), gueRefusalCases(), chainCases(), chainHereCases(), fragmentCases(), icmpCases(), allPortsCases(), prefixCases(),
	} {
		all = append(all, group...)
	}
	return all
}

func (r *rig) check(what string, s step) {
	r.t.Helper()
	got := r.run(s.program, s.in, s.skb)
	if got.verdict != s.verdict {
		r.t.Fatalf("%s: verdict is %s, not %s", what, got.verdict, s.verdict)
	}
	segments := uint64(1)
	if s.skb != nil {
		segments = 3
	}
	if want := (model.Counter{Packets: segments, Bytes: uint64(len(s.in))}); got.counter != want {
		r.t.Errorf("%s: counted %+v, not %+v", what, got.counter, want)
	}
	if want := actionOf(s.verdict); got.action != want {
		r.t.Errorf("%s: action is %d, not %d", what, int32(got.action), int32(want))
	}
	if s.want == nil {
		if !bytes.Equal(got.frame, s.in) {
			r.t.Errorf("%s: frame was changed:\nin  %x\nout %x", what, s.in, got.frame)
		}
		return
	}
	if diff := differences(*s.want, got.frame); diff != "" {
		r.t.Errorf("%s: frame (-want +got):\n%s", what, diff)
	}
}

// differences says how a frame is another than want.
func differences(want pkt.Packet, frame []byte) string {
	decoded, err := pkt.Decode(frame)
	if err != nil {
		return err.Error()
	}
	return cmp.Diff(want, decoded, cmpopts.EquateComparable(netip.Addr{}), cmpopts.EquateEmpty())
}

func actionOf(verdict string) uint32 {
	switch {
	case strings.HasPrefix(verdict, "drop_"), verdict == "punt_control", verdict == "snat_queue", verdict == "join_noted":
		return tcxDrop
	case verdict == "deliver_interface", verdict == "reply_uplink", verdict == "reply_interface", verdict == "reply_direct", verdict == "snat_uplink",
		verdict == "syncookie_interface", verdict == "syncookie_answer", verdict == "syncookie_answer_host", verdict == "syncookie_requeue",
		strings.HasPrefix(verdict, "chain_"), strings.HasPrefix(verdict, "join_"), strings.HasPrefix(verdict, "steered_"), strings.HasPrefix(verdict, "relay_"), verdict == "reply_ping":
		return tcxRedirect
	}
	return tcxNext
}

// producedElsewhere are verdicts that other tests produce, by these.
var producedElsewhere = map[string]string{
	"drop_session_full":        "TestSessionsFull",
	"drop_session_gone":        "TestRowsOfOthersAreRefused",
	"drop_chain_family":        "TestChainWithoutFamily",
	"join_home":                "TestJoinsGoAsTheModel",
	"join_on":                  "TestJoinsGoAsTheModel",
	"join_told":                "TestConnectionsAreTold",
	"join_noted":               "TestWhoMayTell",
	"drop_join_unknown":        "TestJoinsGoAsTheModel",
	"drop_join_conflict":       "TestWhoMayTell",
	"drop_join_full":           "TestQuotasOfTokens",
	"drop_join_stale":          "TestConnectionsAreTold",
	"steered_cookie":           "TestSteeredPackets",
	"steered_bucket":           "TestSteeredPackets",
	"steered_query":            "TestSteeredPackets",
	"steered_error":            "TestSteeredErrors",
	"steered_answer":           "TestAnswersToSourceNAT",
	"relay_fragment":           "TestFragmentsOfSwitchesGoToAMux",
	"relay_error":              "TestErrorsThatHostsCantDecide",
	"drop_relay_limited":       "TestFragmentsOfSwitchesGoToAMux",
	"drop_relay_no_mux":        "TestFragmentsOfSwitchesGoToAMux",
	"reply_ping":               "TestPingsFromSwitches",
	"drop_steer_ping":          "TestPingsFromSwitches",
	"drop_not_a_vip_host":      "TestAdmission",
	"drop_steer_closed":        "TestAdmission",
	"drop_steer_no_backend":    "TestSteeredNowhere",
	"drop_steer_merged":        "TestSteeredNowhere",
	"pass_snat_exempt":         "TestSNATVerdicts",
	"pass_no_flow":             "TestSNATVerdicts",
	"drop_spoofed_source":      "TestSNATVerdicts",
	"snat_native":              "TestSNATConnections",
	"snat_uplink":              "TestSNATConnections",
	"snat_queue":               "TestSNATHold",
	"drop_snat_queue_full":     "TestSNATHold",
	"drop_snat_queue_large":    "TestSNATHold",
	"drop_snat_queue_fragment": "TestSNATFragments",
	"drop_ports_exhausted":     "TestSNATExhausted",
	"drop_flows_full":          "TestSNATFlowsFull",
	"drop_filtered":            "TestSNATFiltering",
	"drop_unsolicited_full":    "TestSNATUnsolicitedFlows",
	"reply_direct":             "TestDirectConnections",
	"punt_control":             "TestControlMessages",
	"drop_control":             "TestControlMessages",
	"syncookie_socket":         "TestSYNCookieTransfers",
	"syncookie_native":         "TestReplayedHandshakes",
	"syncookie_interface":      "TestReplayedHandshakes",
	"syncookie_requeue":        "TestSegmentsWaitForTheSocket",
	"syncookie_answer":         "TestReplayedHandshakes",
	"syncookie_answer_host":    "TestReplayedHandshakes",
	"drop_syncookie_invalid":   "TestRefusedCookies",
	"drop_syncookie_expired":   "TestRefusedCookies",
	"drop_syncookie_replayed":  "TestCookiesOfWhatIsOver",
	"drop_syncookie_pending":   "TestEarlySegments",
	"drop_syncookie_rewrite":   "TestMergedCookies",
	"pass_other_mac":           "TestFramesForOthers",
	"pass_ours":                "TestDeparturesAreSealed",
	"drop_tagged":              "TestTagsOfWorkloads",
	"drop_own_tunnel":          "TestGUEOfWorkloads",
	"drop_direct":              "nowhere: the kernel refuses to encapsulate only what is encapsulated already",
	"drop_rewrite":             "nowhere: the kernel's helpers fail here only for want of memory",
}

// TestVerdictsAreProduced fails when the packet tests produce a verdict never.
func TestVerdictsAreProduced(t *testing.T) {
	produced := make(map[string]bool)
	for _, c := range packetCases() {
		for _, s := range c.steps {
			produced[s.verdict] = true
		}
	}
	for _, name := range newRig(t).Datapath.verdicts {
		if _, excused := producedElsewhere[name]; !produced[name] && !excused {
			t.Errorf("no packet test produces %s", name)
		}
	}
}

// TestSessionsFull has a table of sessions that does not evict.
func TestSessionsFull(t *testing.T) {
	r := newRig(t, func(spec *ebpf.CollectionSpec) {
		spec.Maps["new_sessions"].Type = ebpf.Hash
		spec.Maps["new_sessions"].MaxEntries = 1
	})
	first := pkt.UDP(client4, vip4).Inside(outer(native4))
	second := first.With(from("198.51.100.8:40000"))
	want := delivered(first, native4)
	r.check("first", inbound(first, "deliver_native", &want))
	r.check("second", inbound(second, "drop_session_full", nil))
}

// TestPacketsWithoutMSS leaves the MSS alone when there is none to announce: the uplink's MTU is not known.
func TestPacketsWithoutMSS(t *testing.T) {
	r := newRig(t)
	if err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.Mtu = 0 }); err != nil {
		t.Fatal(err)
	}
	in := pkt.TCP(client4, vip4, pkt.SYN, pkt.MSS(8960)).Inside(outer(native4))
	delivers := delivered(in, native4)
	r.check("syn", inbound(in, "deliver_native", &delivers))
	answer := replyTo(delivers, pkt.SYN|pkt.ACK, pkt.MSS(8960))
	want := answer.With(from(vip4))
	r.check("syn/ack", outbound("to_uplink", answer, "reply_native", &want))
}

// TestUDPWithoutChecksum must leave the zero alone: it means none.
func TestUDPWithoutChecksum(t *testing.T) {
	r := newRig(t)
	in := pkt.UDP(client4, vip4).Inside(outer(native4))
	frame := in.Frame()
	check := in.L4() + 6
	frame[check], frame[check+1] = 0, 0
	got := r.run("from_uplink", frame, nil)
	if got.verdict != "deliver_native" {
		t.Fatalf("verdict is %s", got.verdict)
	}
	want := delivered(in, native4).Frame()
	want[check-20], want[check-19] = 0, 0
	if !bytes.Equal(got.frame, want) {
		t.Errorf("frame is\n%x, not\n%x", got.frame, want)
	}
}
