package agent

import (
	"fmt"
	"maps"
	"reflect"
	"testing"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/model/look"
	"github.com/weirlb/weir/internal/pkt"
)

// An explanation is what the programs do then, by sessions, flows and ports as they are, and it changes no table.
func TestExplain(t *testing.T) {
	r := snatRig(t)
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	chained := inGUE(ack, outer(native4), step1(stepAsk, peer4)).Frame()
	syn := pkt.TCP(client4, vip4, pkt.SYN).Inside(outer(native4)).Frame()
	syn6 := pkt.TCP(client6, vip6, pkt.SYN, pkt.Timestamps(7, 0)).Inside(outer(native6)).Frame()
	stranger := outer(native4)
	stranger.Source = stranger.Source.Next()
	opens := pkt.TCP("10.1.0.8:5000", remote4, pkt.SYN)

	r.explains(syn, "deliver_native", look.ActionDeliver)
	r.explains(syn6, "deliver_native", look.ActionDeliver)
	r.explains(pkt.UDP(client6, vip6).Inside(outer(native4)).Frame(), "deliver_native", look.ActionDeliver)
	r.explains(pkt.TCP(client4, vip4, pkt.ACK).Inside(stranger).Frame(), "drop_not_a_mux", "drop")
	r.explains(pkt.TCP(client4, "203.0.113.10:81", pkt.SYN).Inside(outer(native4)).Frame(), "drop_no_rule", "drop")
	r.explains(pkt.TCP(client4, vip4, pkt.SYN).Inside(outer(down4)).Frame(), "drop_no_workload", "drop")
	r.explains(ack.Frame(), "pass_not_tunnel", "pass")

	// Of a connection that the workload has answered in, the bucket's other backend is not asked.
	r.explains(chained, "chain_on", "transmit")
	handshake := replyTo(delivered(pkt.TCP(client4, vip4, pkt.SYN), native4), pkt.SYN|pkt.ACK)
	if in, out := r.run("from_uplink", syn, nil), r.run("to_uplink", handshake.Frame(), nil); in.verdict != "deliver_native" || out.verdict != "reply_native" {
		t.Fatalf("the handshake met %s and %s", in.verdict, out.verdict)
	}
	r.explains(chained, "deliver_native", look.ActionDeliver)

	// An answer is let in when the workload has asked, and goes by its interface.
	sent := r.leaves(guest4, opens)
	answer := answered(sent, guest4, pkt.SYN|pkt.ACK).Frame()
	e := r.explains(answer, "deliver_interface", look.ActionDeliver)
	if e.Interface != "lo" || e.Workload.String() != guest4 {
		t.Errorf("it goes to %s by %q", e.Workload, e.Interface)
	}
	other := answered(sent.With(func(p *pkt.Packet) { p.SourcePort++ }), guest4, pkt.SYN|pkt.ACK).Frame()
	r.explains(other, "drop_no_rule", "drop")
}

// What a workload answers leaves as the VIP's, by the session that the packet would have made.
func TestExplainReply(t *testing.T) {
	r := snatRig(t)
	for _, c := range []struct {
		in    pkt.Packet
		flags pkt.Flags
	}{
		{pkt.TCP(client4, vip4, pkt.SYN).Inside(outer(native4)), pkt.SYN | pkt.ACK},
		{pkt.TCP(client4, vip4, pkt.ACK|pkt.PSH).Inside(outer(native6)), pkt.ACK},
		{pkt.TCP(client6, vip6, pkt.SYN).Inside(outer(native4)), pkt.SYN | pkt.ACK},
		{pkt.UDP(client6, vip6).Inside(outer(native6)), 0},
		{pkt.UDP("198.51.100.7:53", vip4).Inside(outer(native4)), 0}, // a port tells nothing of what is inside
	} {
		e := r.explains(c.in.Frame(), "deliver_native", look.ActionDeliver)
		if e.Reply == nil || e.Reply.Verdict != "reply_native" || e.Reply.Action != "transmit" {
			t.Fatalf("%v: the answer: %+v", c.in.IP, e.Reply)
		}
		got, err := pkt.Decode(e.Reply.Frame)
		if err != nil {
			t.Fatal(err)
		}
		if got.IP.Source != c.in.IP.Destination || got.SourcePort != c.in.DestinationPort ||
			got.IP.Destination != c.in.IP.Source || got.DestinationPort != c.in.SourcePort || got.Flags != c.flags {
			t.Errorf("the answer to %v is %+v", c.in.IP, got)
		}
	}
	reset := r.explains(pkt.TCP(client4, vip4, pkt.RST).Inside(outer(native4)).Frame(), "deliver_native", look.ActionDeliver)
	if reset.Reply != nil {
		t.Errorf("a reset is answered: %+v", reset.Reply)
	}
}

// explains explains a frame, and compares all tables with what they were.
func (r *rig) explains(frame []byte, verdict, action string) look.Explanation {
	r.t.Helper()
	before := r.tables()
	e, err := r.Explain(frame)
	if err != nil {
		r.t.Fatal(err)
	}
	if e.Verdict != verdict || e.Action != action {
		r.t.Errorf("it is %s, %s; want %s, %s", e.Verdict, e.Action, verdict, action)
	}
	for name, rows := range r.tables() {
		if !maps.Equal(rows, before[name]) {
			r.t.Errorf("explaining changed %s", name)
		}
	}
	return e
}

// tables are the rows of all tables, by name.
func (r *rig) tables() map[string]map[string]string {
	r.t.Helper()
	all := map[string]map[string]string{}
	tables := reflect.ValueOf(r.objects.AgentMaps)
	for i := range tables.NumField() {
		m, ok := tables.Field(i).Interface().(*ebpf.Map)
		if !ok || m.Type() == ebpf.RingBuf {
			continue
		}
		rows := map[string]string{}
		var key, value []byte
		var each [][]byte // of CPUs
		into := any(&value)
		if m.Type() == ebpf.PerCPUArray {
			into = &each
		}
		rest := m.Iterate()
		for rest.Next(&key, into) {
			rows[string(key)] = fmt.Sprint(string(value), each)
		}
		if err := rest.Err(); err != nil {
			r.t.Fatal(err)
		}
		all[tables.Type().Field(i).Name] = rows
	}
	return all
}
