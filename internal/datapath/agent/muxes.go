package agent

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/agent/bpf"
)

// SetMuxes makes the addresses of prefixes the only outer sources whose packets are decapsulated,
// beside those of a rule's peers.
func (d *Datapath) SetMuxes(prefixes []netip.Prefix) error {
	rows := make(map[bpf.AgentPrefix]uint8, len(prefixes))
	for _, p := range prefixes {
		rows[bpf.ToPrefix(p.Masked())] = 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := bpf.WriteTable(d.objects.Muxes, rows); err != nil {
		return fmt.Errorf("set muxes: %w", err)
	}
	return nil
}
