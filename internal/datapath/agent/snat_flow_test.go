package agent

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/datapath/agent/snat"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/pkt"
)

func own(dip string, port int) string {
	return netip.AddrPortFrom(netip.MustParseAddr(dip), uint16(port)).String()
}

// What finds no port waits, in order, until its flow is opened; what comes meanwhile waits behind.
func TestSNATHold(t *testing.T) {
	r := snatRig(t, ranges(0))
	notices := r.notices()
	first := pkt.UDP(own(native4, 50000), remote4, pkt.Payload([]byte("first")))
	large := first.With(pkt.Payload(bytes.Repeat([]byte{7}, 1400)))
	for i, p := range []pkt.Packet{first, large} {
		if got := r.verdict("to_uplink", p); got != "snat_queue" {
			t.Fatalf("packet %d: verdict is %s", i, got)
		}
		n := r.notice(notices)
		if n.Kind != snat.NoticeQueued || int(n.Order) != i+1 || !bytes.Equal(n.Frame, toUs(p.Frame())) || n.L3 != 14 || n.L4 != 34 || n.Ifindex != 0 {
			t.Errorf("notice %d is %+v", i, n)
		}
		if want := "UDP 10.1.0.5:50000 → 198.51.100.7:443"; n.Flow.String() != want {
			t.Errorf("notice of %s, not %s", n.Flow, want)
		}
	}
	flow := snat.Flow{Protocol: model.UDP, Workload: netip.MustParseAddrPort(own(native4, 50000)), Remote: netip.MustParseAddrPort(remote4)}
	if _, found, err := r.AssignPort(flow); found || err != nil {
		t.Errorf("a port without ports: %v, %v", found, err)
	}
	r.listed(ranges(1))
	external, found, err := r.AssignPort(flow)
	if err != nil || !found || model.RangeOf(external.Port()) != firstRange {
		t.Fatalf("assigned %v, %v, %v", external, found, err)
	}
	if opened, err := r.OpenFlow(flow, 1); opened || err != nil {
		t.Errorf("opened with a packet that waits: %v, %v", opened, err)
	}
	if got := r.verdict("to_uplink", first); got != "snat_queue" {
		t.Errorf("before the flow is opened: verdict is %s", got)
	}
	if n := r.notice(notices); n.Order != 3 {
		t.Errorf("order is %d, not 3", n.Order)
	}
	if opened, err := r.OpenFlow(flow, 3); !opened || err != nil {
		t.Fatalf("not opened: %v, %v", opened, err)
	}
	if out := r.leaves(native4, first); out.SourcePort != external.Port() {
		t.Errorf("leaves from %d, not %d", out.SourcePort, external.Port())
	}
	r.holdBounds()
}

// A SYN that waits comes again when there are ports, and finds one. The daemon, who still has the first, finds the flow
// open, and neither ends it as one that has waited for too long.
func TestSNATSYNComesAgain(t *testing.T) {
	r := snatRig(t, ranges(0))
	for _, dip := range []string{native4, guest4, native6, guest6} {
		remote, program := remote4, "to_uplink"
		if netip.MustParseAddr(dip).Is6() {
			remote = remote6
		}
		if dip == guest4 || dip == guest6 {
			program = "from_workload"
		}
		r.listed(ranges(0))
		syn := pkt.TCP(own(dip, 50000), remote, pkt.SYN)
		if got := r.verdict(program, syn); got != "snat_queue" {
			t.Fatalf("%s: verdict of a SYN without ports is %s", dip, got)
		}
		r.listed(ranges(1))
		out := r.leaves(dip, syn)
		flow := snat.Flow{Protocol: model.TCP, Workload: netip.MustParseAddrPort(own(dip, 50000)), Remote: netip.MustParseAddrPort(remote)}
		if external, found, err := r.AssignPort(flow); err != nil || !found || external.Port() != out.SourcePort {
			t.Errorf("%s: assigned %v, %v, %v, not %d", dip, external, found, err, out.SourcePort)
		}
		if opened, err := r.OpenFlow(flow, 1); !opened || err != nil {
			t.Errorf("%s: a flow that is open is not opened: %v", dip, err)
		}
		if ended, err := r.EndQueuedFlow(flow); ended || err != nil {
			t.Errorf("%s: a flow that is open is ended as one that waits: %v", dip, err)
		}
		if again := r.leaves(dip, pkt.TCP(own(dip, 50000), remote, pkt.ACK)); again.SourcePort != out.SourcePort {
			t.Errorf("%s: it goes on from port %d, not %d", dip, again.SourcePort, out.SourcePort)
		}
	}
}

// holdBounds has three packets wait already, of four that may.
func (r *rig) holdBounds() {
	r.t.Helper()
	r.listed(ranges(0))
	waits := pkt.UDP(own(native4, 50001), remote4)
	if got := r.run("to_uplink", waits.Frame(), gso(3, 10)); got.verdict != "drop_snat_queue_large" {
		r.t.Errorf("a buffer of segments: verdict is %s", got.verdict)
	}
	for _, want := range []string{"snat_queue", "drop_snat_queue_full"} {
		if got := r.verdict("to_uplink", waits); got != want {
			r.t.Errorf("verdict is %s, not %s", got, want)
		}
	}
	if err := r.ReleaseQueued(1, 4); err != nil {
		r.t.Fatal(err)
	}
	if got := r.verdict("to_uplink", waits); got != "snat_queue" {
		r.t.Errorf("when others do not wait any more: verdict is %s", got)
	}
}

// When it is known that there are no ports, packets do not wait, and user space hears of them.
func TestSNATExhausted(t *testing.T) {
	r := snatRig(t, ranges(0))
	notices := r.notices()
	dip := netip.MustParseAddr(native4)
	if err := r.RefusePorts(dip, session.Now()+time.Hour); err != nil {
		t.Fatal(err)
	}
	syn := pkt.TCP(own(native4, 50000), remote4, pkt.SYN)
	if got := r.verdict("to_uplink", syn); got != "drop_ports_exhausted" {
		t.Errorf("verdict is %s", got)
	}
	if n := r.notice(notices); n.Kind != snat.NoticeRefused || !bytes.Equal(n.Frame, toUs(syn.Frame())) || n.Workload != dip {
		t.Errorf("notice is %+v", n)
	}
	if err := r.RefusePorts(dip, 0); err != nil {
		t.Fatal(err)
	}
	if got := r.verdict("to_uplink", syn); got != "snat_queue" {
		t.Errorf("when it is over: verdict is %s", got)
	}
}

func TestSNATFlowsFull(t *testing.T) {
	r := snatRig(t)
	if err := r.changeSettings(func(s *bpf.AgentAgentSettings) { s.SnatFlows = 1 }); err != nil {
		t.Fatal(err)
	}
	r.leaves(native4, pkt.UDP(own(native4, 50000), remote4))
	notices, late := r.notices(), pkt.UDP(own(native4, 50001), remote4)
	if got := r.verdict("to_uplink", late); got != "drop_flows_full" {
		t.Errorf("verdict is %s", got)
	}
	if n := r.notice(notices); n.Kind != snat.NoticeFull || n.Workload.String() != native4 || !bytes.Equal(n.Frame, toUs(late.Frame())) {
		t.Errorf("notice is %+v", n)
	}
	r.leaves(guest4, pkt.UDP(own(guest4, 50000), remote4))
}

// scale makes a test of figures as large as the figures, when asked to.
func scale(short, whole int) int {
	if os.Getenv("WEIR_WHOLE") != "" {
		return whole
	}
	return short
}

// Every port serves each destination once, and then there is none: no sooner, no later.
func TestSNATPortsAreUsedUp(t *testing.T) {
	r := snatRig(t, ranges(scale(8, 500)))
	perTarget, targets := 8*scale(8, 500), scale(6, 50)
	seen := make(map[string]bool)
	program := r.program("to_uplink")
	for i := range perTarget * targets {
		remote := fmt.Sprintf("198.51.100.%d:443", 1+i%targets)
		port := 1024 + i/targets
		p := pkt.TCP(own(native4, port), remote, pkt.SYN)
		out := make([]byte, 256)
		options := ebpfOptions(p.Frame(), out)
		if _, err := program.Run(options); err != nil {
			t.Fatal(err)
		}
		decoded, err := pkt.Decode(options.DataOut)
		if err != nil || decoded.IP.Source.String() != crawler4 {
			t.Fatalf("connection %d left as %v (%v)", i, decoded.IP.Source, err)
		}
		five := fmt.Sprintf("%d %s", decoded.SourcePort, remote)
		if seen[five] {
			t.Fatalf("connection %d shares %s with another", i, five)
		}
		seen[five] = true
	}
	for i := range targets {
		remote := fmt.Sprintf("198.51.100.%d:443", 1+i)
		if got := r.verdict("to_uplink", pkt.TCP(own(native4, 60000), remote, pkt.SYN)); got != "snat_queue" && got != "drop_snat_queue_full" {
			t.Fatalf("one more to %s: verdict is %s", remote, got)
		}
	}
	use := r.use(native4)
	if use.PortsInUse != perTarget || use.Most[0].Flows != perTarget || len(use.Idle) != 0 {
		t.Errorf("%d ports are in use, %v; %d ranges are idle", use.PortsInUse, use.Most[0], len(use.Idle))
	}
	t.Logf("%d connections to %d destinations use %d ports", len(seen), targets, use.PortsInUse)
}

func (r *rig) use(dip string) snat.Use {
	r.t.Helper()
	all, err := r.SNATUse(true)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, use := range all {
		if use.Key.Address.String() == dip {
			return use
		}
	}
	r.t.Fatalf("no use of %s", dip)
	return snat.Use{}
}

// Short connections in a row take the eight ports in turns; whoever closes first, none is refused.
func TestSNATShortConnections(t *testing.T) {
	r := snatRig(t)
	var last [8]uint16
	for i := range scale(600, 100_000) {
		port := 1024 + i%60000
		syn := pkt.TCP(own(native4, port), remote4, pkt.SYN)
		out := r.leaves(native4, syn)
		for _, recent := range last[1:] {
			if recent == out.SourcePort {
				t.Fatalf("connection %d has port %d, one of the last seven", i, recent)
			}
		}
		copy(last[:], last[1:])
		last[7] = out.SourcePort
		fin := func(p *pkt.Packet) { p.Flags = pkt.FIN | pkt.ACK }
		for step, verdict := range []string{
			r.verdict("from_uplink", answered(out, native4, pkt.SYN|pkt.ACK)),
			r.verdict("to_uplink", syn.With(fin)),
			r.verdict("from_uplink", answered(out, native4, pkt.FIN|pkt.ACK)),
			r.verdict("to_uplink", syn.With(fin, numbers(syn.Seq, 1999+payloadBytes+1), func(p *pkt.Packet) { p.Flags = pkt.ACK })),
		} {
			if verdict != "snat_native" && verdict != "deliver_native" {
				t.Fatalf("connection %d, step %d: verdict is %s", i, step, verdict)
			}
		}
	}
	if n := r.flowCount(); n != 8 {
		t.Errorf("%d flows are left of 8 ports", n)
	}
}

// A connection that is refused, or that the workload resets, leaves its port to the next.
func TestSNATResetFreesThePort(t *testing.T) {
	r := snatRig(t)
	for i := range 20 {
		syn := pkt.TCP(own(native4, 1024+i), remote4, pkt.SYN)
		out := r.leaves(native4, syn)
		if i%2 == 0 {
			r.verdict("from_uplink", answered(out, native4, pkt.RST|pkt.ACK))
		} else {
			r.verdict("from_uplink", answered(out, native4, pkt.SYN|pkt.ACK))
			r.verdict("to_uplink", syn.With(func(p *pkt.Packet) { p.Flags = pkt.RST }))
		}
	}
	// What the remote resets may be forged, and keeps its port.
	for i := range 8 {
		syn := pkt.TCP(own(native4, 2024+i), remote4, pkt.SYN)
		out := r.leaves(native4, syn)
		r.verdict("from_uplink", answered(out, native4, pkt.SYN|pkt.ACK))
		r.leaves(native4, syn.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }))
		r.verdict("from_uplink", answered(out, native4, pkt.RST))
	}
	if got := r.verdict("to_uplink", pkt.TCP(own(native4, 3024), remote4, pkt.SYN)); got != "snat_queue" {
		t.Errorf("one more: verdict is %s", got)
	}
}

// Idle flows end by the sweep, by their states, and their ranges are idle then.
func TestSNATSweep(t *testing.T) {
	r := snatRig(t)
	open := pkt.TCP(own(native4, 50000), remote4, pkt.SYN)
	out := r.leaves(native4, open)
	r.verdict("from_uplink", answered(out, native4, pkt.SYN|pkt.ACK))
	r.leaves(native4, open.With(func(p *pkt.Packet) { p.Flags = pkt.ACK }))
	r.leaves(native4, pkt.UDP(own(native4, 50000), remote4))
	r.leaves(native4, pkt.TCP(own(native4, 50001), remote4, pkt.SYN))
	for _, c := range []struct {
		after time.Duration
		live  int
	}{{20 * time.Second, 3}, {time.Minute, 2}, {6 * time.Minute, 1}, {3 * time.Hour, 0}} {
		sessionReport, err := r.SweepSNAT(session.Now()+c.after, session.DefaultTimeouts())
		if live := sessionReport.Live; err != nil || live != c.live {
			t.Errorf("after %s: %d flows are left, not %d (%v)", c.after, live, c.live, err)
		}
	}
	use := r.use(native4)
	if use.Flows != 0 || use.PortsInUse != 0 || len(use.Idle) != 1 || use.Idle[0].Range != firstRange {
		t.Errorf("use is %+v", use)
	}
	var key bpf.AgentSnatPortKey
	if err := r.objects.SnatPorts.NextKey(nil, &key); err == nil {
		t.Errorf("a row of ports is left: %+v", key)
	}
}

// Reclaimed ranges take no new flow, and keep those that they have. Lost ones lose theirs.
func TestSNATReclaim(t *testing.T) {
	r := snatRig(t, ranges(2))
	second := firstRange + 2
	syn := func(i int) pkt.Packet { return pkt.TCP(own(native4, 50000+i), remote4, pkt.SYN) }
	on := make(map[model.Range][]int)
	for i := range 16 {
		port := r.leaves(native4, syn(i)).SourcePort
		on[model.RangeOf(port)] = append(on[model.RangeOf(port)], i)
	}
	reclaim := func(s *model.HostSNAT) { s.Reclaim = s.Ranges[1:] }
	r.listed(ranges(2), reclaim)
	for _, i := range on[second] {
		r.leaves(native4, syn(i).With(func(p *pkt.Packet) { p.Flags = pkt.ACK }))
	}
	for i := range 8 {
		to := pkt.TCP(own(native4, 50000+i), otherRemote4, pkt.SYN)
		if got := model.RangeOf(r.leaves(native4, to).SourcePort); got != firstRange {
			t.Errorf("a new flow has a port of range %d", got)
		}
	}
	r.listed(ranges(1))
	for _, i := range on[second] {
		if got := r.verdict("to_uplink", syn(i).With(func(p *pkt.Packet) { p.Flags = pkt.ACK })); got != "pass_no_flow" {
			t.Errorf("on a range that was lost: verdict is %s", got)
		}
	}
	for _, i := range on[firstRange] {
		r.leaves(native4, syn(i).With(func(p *pkt.Packet) { p.Flags = pkt.ACK }))
	}
}

// TestSNATAgainstOracle runs random connections over few ports; a slow model says which are free.
func TestSNATAgainstOracle(t *testing.T) {
	r := snatRig(t)
	random := rand.New(rand.NewPCG(1, 2))
	type flow struct{ port, remote int }
	held := make(map[flow]uint16)
	for i := range 2000 {
		f := flow{1024 + random.IntN(12), random.IntN(3)}
		p := pkt.TCP(own(native4, f.port), fmt.Sprintf("198.51.100.%d:443", 1+f.remote), pkt.SYN)
		external, live := held[f]
		inUse := make(map[uint16]bool)
		for other, port := range held {
			if other.remote == f.remote {
				inUse[port] = true
			}
		}
		if live {
			p.Flags = pkt.ACK
			if random.IntN(3) == 0 {
				p.Flags = pkt.RST
				delete(held, f)
			}
			if out := r.leaves(native4, p); out.SourcePort != external {
				t.Fatalf("step %d: %v leaves from %d, not %d", i, f, out.SourcePort, external)
			}
			continue
		}
		if len(inUse) == 8 {
			if got := r.verdict("to_uplink", p); got != "snat_queue" && got != "drop_snat_queue_full" {
				t.Fatalf("step %d: no port is free, verdict is %s", i, got)
			}
			workload, remote := netip.MustParseAddrPort(own(native4, f.port)), netip.AddrPortFrom(p.IP.Destination, 443)
			if err := r.EndFlow(snat.Flow{Protocol: model.TCP, Workload: workload, Remote: remote}); err != nil {
				t.Fatal(err)
			}
			if err := r.ReleaseQueued(1, 1); err != nil {
				t.Fatal(err)
			}
			continue
		}
		out := r.leaves(native4, p)
		if inUse[out.SourcePort] {
			t.Fatalf("step %d: %v has port %d, which another has", i, f, out.SourcePort)
		}
		held[f] = out.SourcePort
	}
}
