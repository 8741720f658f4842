package nat

import (
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux/bpf"
	"github.com/weirlb/weir/internal/datapath/overlay/reset"
)

// ends is what resets need of the tables, beside sessions.
type ends struct {
	prefixes    [2]netip.Prefix // of IPv4 and IPv6
	overlay     [2]netip.Addr   // where hosts send VXLAN to, from where clients' hosts have their answers
	attachments map[uint32]Attachment
}

func (t *Table) ends() (e ends, err error) {
	if e.prefixes[0], e.prefixes[1], err = t.Prefixes(); err != nil {
		return e, err
	}
	var row bpf.MuxMuxOverlay
	if err := t.tables.Overlay.Lookup(uint32(0), &row); err != nil {
		return e, fmt.Errorf("read overlay's settings: %w", err)
	}
	for i := range e.overlay {
		e.overlay[i] = bpf.FromAddress(row.Addresses[i])
	}
	e.attachments, err = ReadAttachments(t.tables)
	return e, err
}

// prefix is that of a family; not valid: there is none.
func (e ends) prefix(v4 bool) netip.Prefix {
	if v4 {
		return e.prefixes[0]
	}
	return e.prefixes[1]
}

// nat is the NAT address and port of a row.
func (e ends) nat(row uint32, v4 bool) netip.AddrPort {
	prefix := e.prefix(v4)
	address, bits := prefix.Addr().AsSlice(), prefix.Addr().BitLen()-prefix.Bits()
	low := address[len(address)-4:]
	binary.BigEndian.PutUint32(low, binary.BigEndian.Uint32(low)|row&(1<<bits-1))
	a, _ := netip.AddrFromSlice(address)
	return netip.AddrPortFrom(a, uint16(bpf.MuxNatLayoutNAT_PORT)|uint16(row>>bits))
}

// resets end a session at both ends, from the numbers that each of them acknowledged last; false: too little is known of it.
func (t *Table) resets(e ends, s Session) (r reset.Pair, ok bool) {
	v4, of := s.Client.Addr().Is4(), e.attachments[s.Attachment]
	backend, known := t.backends[s.Backend]
	if !known || of.VNI == 0 || !e.prefix(v4).IsValid() {
		return r, false
	}
	server := backend.Address
	if server.Port() == 0 {
		server = netip.AddrPortFrom(server.Addr(), s.Port)
	}
	r.ToServer, r.Server = reset.Packet(e.nat(s.Row, v4), server, s.clientNext), server.Addr()
	r.ToClient = append(reset.VXLAN(of.VNI, s.clientMAC, of.GatewayMAC, v4), reset.Packet(netip.AddrPortFrom(of.VIP, s.Port), s.Client, s.serverNext)...)
	r.Tunnel, r.Host, r.Bare = e.overlay[0], t.hosts[s.Host].V4, true
	if s.overV6 {
		r.Tunnel, r.Host = e.overlay[1], t.hosts[s.Host].V6
	}
	return r, true
}
