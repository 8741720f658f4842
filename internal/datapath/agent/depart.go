package agent

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Departed are the open connections of workloads that have moved to another host. The new host knows nothing of a
// connection until its client sends something, and what the workload sends before that leaves with its own address.
// A client that waits for an answer sends nothing.
type Departed struct{ prompts Prompts }

// Len is how many connections there are.
func (d Departed) Len() int { return len(d.prompts) }

// Depart ends the sessions of workloads that have left the host, and returns those of TCP that were open.
func (d *Datapath) Depart(workloads map[netip.Addr]bool) (Departed, error) {
	var departed Departed
	for _, table := range d.sessionTables() {
		err := eachSession(table, func(key bpf.AgentSessionKey, row bpf.AgentSession) error {
			if !workloads[fromAddress(key.Dip)] {
				return nil
			}
			if stateOf(key.Protocol, row.Events) == StateEstablished {
				departed.prompts = append(departed.prompts, newClientPrompt(key, row))
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
func (d Departed) Ask() error {
	_, err := d.prompts.Send()
	return err
}

// newClientPrompt is a segment as the workload would have sent it when the session last noted its numbers, and one
// before them.
func newClientPrompt(key bpf.AgentSessionKey, row bpf.AgentSession) prompt {
	p := prompt{
		from: fromAddrPort(row.Vip, row.VipPort), to: fromAddrPort(key.Client, key.ClientPort),
		seq: row.WorkloadSeq + row.Shift - 1, ack: row.ClientNext,
	}
	if row.Cookie != 0 && row.Tsval != 0 {
		const mask = 1<<cookieBits - 1
		p.tsval, p.tsecr = row.Tsval<<row.CookieScale&^mask|uint32(row.Cookie), row.ClientTsval
	}
	return p
}
