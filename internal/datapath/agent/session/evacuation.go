package session

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// EvacuatedSessions are the open connections of workloads that have moved to another host. The new host knows nothing
// of a connection until its client sends something, and what the workload sends before that leaves with its own
// address. A client that waits for an answer sends nothing.
type EvacuatedSessions struct{ probes Probes }

// Len is how many connections there are.
func (d EvacuatedSessions) Len() int { return len(d.probes) }

// EvacuateSessions ends the sessions of workloads that have left the host, and returns those of TCP that were open.
func (t *Tracker) EvacuateSessions(workloads map[netip.Addr]bool) (EvacuatedSessions, error) {
	var departed EvacuatedSessions
	for _, table := range t.Tables() {
		err := Each(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			if !workloads[bpf.FromAddress(key.Dip)] {
				return nil
			}
			if StateOf(key.Protocol, row.Events) == StateEstablished {
				departed.probes = append(departed.probes, newClientProbe(key, row))
			}
			return endSession(table, key, nil)
		})
		if err != nil {
			return departed, fmt.Errorf("end sessions of workloads that left: %w", err)
		}
	}
	return departed, nil
}

// Ask sends each client a keepalive probe, an old segment as from its VIP: its answer tells the new host of the
// connection (RFC 9293, section 3.10.7.4). It must be called in the uplink's network namespace.
func (d EvacuatedSessions) Ask() error {
	_, err := d.probes.Send()
	return err
}

// newClientProbe is a segment as the workload would have sent it when the session last noted its numbers, and one
// before them.
func newClientProbe(key bpf.AgentSessionKey, row bpf.AgentSession) Probe {
	p := Probe{
		From: bpf.FromAddrPort(row.Vip, row.VipPort), To: bpf.FromAddrPort(key.Client, key.ClientPort),
		Seq: row.WorkloadSeq + row.Shift - 1, Ack: row.ClientNext,
	}
	if row.Cookie != 0 && row.Tsval != 0 {
		const mask = 1<<CookieBits - 1
		p.Tsval, p.Tsecr = row.Tsval<<row.CookieScale&^mask|uint32(row.Cookie), row.ClientTsval
	}
	return p
}
