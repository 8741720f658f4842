package agent

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// EvacuatedSessions are the open connections of workloads that have moved to another host. The new host knows nothing
// of a connection until its client sends something, and what the workload sends before that leaves with its own
// address. A client that waits for an answer sends nothing.
type EvacuatedSessions struct{ probes KeepaliveProbes }

// Len is how many connections there are.
func (d EvacuatedSessions) Len() int { return len(d.probes) }

// EvacuateSessions ends the sessions of workloads that have left the host, and returns those of TCP that were open.
func (d *Datapath) EvacuateSessions(workloads map[netip.Addr]bool) (EvacuatedSessions, error) {
	var departed EvacuatedSessions
	for _, table := range d.sessionTables() {
		err := eachSession(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			if !workloads[fromAddress(key.Dip)] {
				return nil
			}
			if stateOf(key.Protocol, row.Events) == StateEstablished {
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
func newClientProbe(key bpf.AgentSessionKey, row bpf.AgentSession) keepaliveProbe {
	p := keepaliveProbe{
		from: fromAddrPort(row.Vip, row.VipPort), to: fromAddrPort(key.Client, key.ClientPort),
		seq: row.WorkloadSeq + row.Shift - 1, ack: row.ClientNext,
	}
	if row.Cookie != 0 && row.Tsval != 0 {
		const mask = 1<<cookieBits - 1
		p.tsval, p.tsecr = row.Tsval<<row.CookieScale&^mask|uint32(row.Cookie), row.ClientTsval
	}
	return p
}
