package agent

import (
	"fmt"
	"net/netip"
)

// SetMuxes makes addresses the only outer sources whose packets are decapsulated.
func (d *Datapath) SetMuxes(addresses []netip.Addr) error {
	rows := make(map[agentAddress]uint8, len(addresses))
	for _, a := range addresses {
		rows[toAddress(a)] = 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := writeTable(d.objects.Muxes, rows); err != nil {
		return fmt.Errorf("set muxes: %w", err)
	}
	return nil
}
