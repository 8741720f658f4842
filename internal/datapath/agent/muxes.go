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
		rows[toPrefix(p.Masked())] = 1
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := writeTable(d.objects.Muxes, rows); err != nil {
		return fmt.Errorf("set muxes: %w", err)
	}
	return nil
}

// mappedBits are those that every IPv4 address has before its own.
const mappedBits = 96

func toPrefix(p netip.Prefix) bpf.AgentPrefix {
	bits := p.Bits()
	if p.Addr().Is4() {
		bits += mappedBits
	}
	return bpf.AgentPrefix{Bits: uint32(bits), Address: toAddress(p.Addr())}
}

func fromPrefix(p bpf.AgentPrefix) netip.Prefix {
	address, bits := fromAddress(p.Address), int(p.Bits)
	if address.Is4() {
		bits -= mappedBits
	}
	return netip.PrefixFrom(address, bits)
}
