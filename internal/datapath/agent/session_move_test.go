package agent

import (
	"fmt"
	"net/netip"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
	"github.com/weirlb/weir/internal/pkt"
)

// TestEventsWhileSessionsMove has the client's packet that moves a session to the confirmed ones, and one end's FIN, on
// two CPUs at once. The FIN is noted wherever the session is: one that never ends takes what begins on its ports by a
// SYN cookie for its own, and its workload, which waits in TIME-WAIT, does not answer it.
func TestEventsWhileSessionsMove(t *testing.T) {
	const rounds = 10_000
	for name, f := range families {
		for _, end := range []string{"workload", "client"} {
			t.Run(fmt.Sprintf("%s, FIN of the %s", name, end), func(t *testing.T) {
				r := newRig(t)
				r.rulesOfTwo(f.greedy, f.other)
				ours := r.answer(netip.AddrPortFrom(netip.MustParseAddr(f.client), 2000).String(), f.greedy, f.dip)
				proof, program := ours.in.Inside(outer(native4)).Frame(), "to_uplink"
				fin, event := ours.reply.With(func(p *pkt.Packet) { p.Flags = pkt.ACK | pkt.FIN }).Frame(), bpf.AgentSessionEventSESSION_WORKLOAD_FIN
				if end == "client" {
					program, event = "from_uplink", bpf.AgentSessionEventSESSION_FIN_NOTED // counts when the workload acknowledges it
					fin = ours.in.Inside(outer(native4)).With(func(p *pkt.Packet) { p.Flags, p.Seq = pkt.ACK|pkt.FIN, ours.row.ClientNext }).Frame()
				}
				finished := ours.row.ClientNext + payloadBytes + 1
				var begun, ended atomic.Int64
				await := func(count *atomic.Int64, n int64) {
					for count.Load() < n {
						runtime.Gosched()
					}
				}
				defer begun.Store(rounds)
				go func() {
					for i := range int64(rounds) {
						await(&begun, i+1)
						r.quick(program, fin)
						ended.Add(1)
					}
				}()
				lost := 0
				for i := range int64(rounds) {
					_ = r.objects.Sessions.Delete(ours.key) // there is none in the first round
					if err := r.objects.NewSessions.Put(ours.key, ours.row); err != nil {
						t.Fatal(err)
					}
					begun.Add(1)
					r.quick("from_uplink", proof)
					await(&ended, i+1)
					var row bpf.AgentSession
					if err := r.objects.Sessions.Lookup(ours.key, &row); err != nil {
						t.Fatalf("the session did not move: %v", err)
					}
					if row.Events&event == 0 || end == "client" && row.ClientFin != finished {
						lost++
					}
				}
				if lost != 0 {
					t.Errorf("of %d FINs %d were not noted", rounds, lost)
				}
			})
		}
	}
}
