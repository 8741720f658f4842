package agent

import (
	"fmt"
	"net/netip"
)

// SetMuxes makes sources the only outer sources whose packets are decapsulated.
func (d *Datapath) SetMuxes(sources []netip.Prefix) error {
	rows := make(map[agentAddress]uint8, len(sources))
	for _, p := range sources {
		if !p.IsSingleIP() {
			return fmt.Errorf("set muxes: %s is no single address", p)
		}
		rows[toAddress(p.Addr())] = 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := writeTable(d.objects.Muxes, rows); err != nil {
		return fmt.Errorf("set muxes: %w", err)
	}
	return nil
}
