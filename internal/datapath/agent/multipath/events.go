package multipath

import (
	"fmt"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// Events counts what became of joins, and what verdicts do not tell of Multipath TCP, since the tables were made.
type Events struct {
	Own, Brought, Asked, HandedOn, Unknown uint64 // joins
	Segments                               uint64 // that are no joins, to the host of their subflow
	Announcements                          uint64 // of workloads' addresses, which no client got
}

// MultipathEvents reads them.
func (d *Directory) MultipathEvents() (Events, error) {
	var e Events
	for event, to := range map[bpf.AgentMultipathEvent]*uint64{
		bpf.AgentMultipathEventMULTIPATH_JOIN_OWN:             &e.Own,
		bpf.AgentMultipathEventMULTIPATH_JOIN_BROUGHT:         &e.Brought,
		bpf.AgentMultipathEventMULTIPATH_JOIN_ASKED:           &e.Asked,
		bpf.AgentMultipathEventMULTIPATH_JOIN_HANDED_ON:       &e.HandedOn,
		bpf.AgentMultipathEventMULTIPATH_JOIN_UNKNOWN:         &e.Unknown,
		bpf.AgentMultipathEventMULTIPATH_SEGMENT_HANDED_ON:    &e.Segments,
		bpf.AgentMultipathEventMULTIPATH_ANNOUNCEMENT_REMOVED: &e.Announcements,
	} {
		n, err := abi.Counter(d.objects.MptcpEvents, uint32(event))
		if err != nil {
			return Events{}, fmt.Errorf("read counters of subflows: %w", err)
		}
		*to = n.Packets
	}
	return e, nil
}
