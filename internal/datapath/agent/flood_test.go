package agent

import (
	"fmt"
	"testing"
	"time"

	"github.com/cilium/ebpf"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/pkt"
)

// TestFloodsSpareConnections sends many times more packets of unknown clients than there is room for
// sessions. Connections that have been idle meanwhile go on, also where the workload speaks first.
func TestFloodsSpareConnections(t *testing.T) {
	const connections, flood = 100, 20_000
	for name, first := range map[string]pkt.Packet{
		"SYN": pkt.TCP(client4, vip4, pkt.SYN), "ACK": pkt.TCP(client4, vip4, pkt.ACK), "UDP": pkt.UDP(client4, vip4),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(spec *ebpf.CollectionSpec) {
				spec.Maps["sessions"].MaxEntries = 1 << 12
				spec.Maps["new_sessions"].MaxEntries = 1 << 10
			})
			client := func(i int) string { return fmt.Sprintf("198.51.100.7:%d", 20_000+i) }
			in := func(i int, flags pkt.Flags) {
				r.run("from_uplink", pkt.TCP(client(i), vip4, flags).Inside(outer(native4)).Frame(), nil)
			}
			out := func(i int, flags pkt.Flags) string {
				reply := replyTo(delivered(pkt.TCP(client(i), vip4, flags), native4), flags)
				return r.run("to_uplink", reply.Frame(), nil).verdict
			}
			for i := range connections {
				in(i, pkt.SYN)
				out(i, pkt.SYN|pkt.ACK)
				in(i, pkt.ACK)
			}
			for i := range flood {
				forged := from(fmt.Sprintf("192.0.%d.%d:%d", i>>8&0xff, i&0xff, 1024+i>>16))
				r.quick("from_uplink", first.With(forged).Inside(outer(native4)).Frame())
			}
			for i := range connections {
				if got := out(i, pkt.ACK|pkt.PSH); got != "reply_native" {
					t.Fatalf("what the workload sends in connection %d is %s", i, got)
				}
			}
		})
	}
}

// age makes all sessions so much older.
func (r *rig) age(by time.Duration) {
	r.t.Helper()
	for _, table := range r.Tables() {
		rows, err := abi.ReadTable[bpf.AgentSessionKey, bpf.AgentSession](table)
		if err != nil {
			r.t.Fatal(err)
		}
		for key, row := range rows {
			row.LastSeen -= uint64(by)
			if err := table.Put(key, row); err != nil {
				r.t.Fatal(err)
			}
		}
	}
}

// TestChainPastSessions has a host whose session is over asked first: what has been silent since may be
// of an older connection. A host that is asked second takes it.
func TestChainPastSessions(t *testing.T) {
	r := newRig(t)
	ack := pkt.TCP(client4, vip4, pkt.ACK)
	out := delivered(ack, native4)
	ask, chained := step1(stepAsk, peer4), step1(stepChained, peer4)
	fin := pkt.TCP(client4, vip4, pkt.FIN|pkt.ACK)
	finOut := delivered(fin, native4)
	answer := replyTo(out, pkt.FIN|pkt.ACK, numbers(2000, fin.Seq+payloadBytes+1))
	direct := answer.With(from(vip4))
	r.check("client's FIN", carried(fin, outer(native4), gue{}, "deliver_native", &finOut))
	r.check("workload's FIN", outbound("to_uplink", answer, "reply_native", &direct))
	const soon = -time.Minute // however long the machine takes until the next check
	r.age(soon)
	r.check("the last acknowledgement", carried(ack, outer(native4), ask, "deliver_native", &out))
	r.age(3*time.Second - soon)
	r.check("asked first", carried(ack, outer(native4), ask, "chain_on", handed(ack, native4, peer4, stepChained)))
	r.check("asked second", carried(ack, fromTo(peer4, native4), chained, "deliver_native", &out))
	r.age(soon)
	r.check("alive again", carried(ack, outer(native4), ask, "deliver_native", &out))
}
