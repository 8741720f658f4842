package hoststate

import (
	"encoding/binary"
	"net/netip"
)

// LocalPrefixes are those of the addresses by which servers know clients; that of IPv6 has 48 bits.
type LocalPrefixes struct{ V4, V6 netip.Prefix }

// Address is that of a network's client whose session has a row.
func (l LocalPrefixes) Address(client netip.Addr, vni, row uint32) netip.Addr {
	if client.Is4() {
		a := l.V4.Masked().Addr().As4()
		return netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, binary.BigEndian.Uint32(a[:])|row)))
	}
	prefix := l.V6.Addr().As16()
	b := append([]byte(nil), prefix[:6]...)
	b = append(b, byte(vni>>16), byte(vni>>8), byte(vni))
	of := client.As16()
	digest := uint32(0)
	for at, factor := range map[int]uint32{0: 31 * 31 * 31, 4: 31 * 31, 8: 31, 12: 1} {
		digest += binary.LittleEndian.Uint32(of[at:]) * factor // as the programs' CPUs read it
	}
	b = binary.BigEndian.AppendUint32(b, digest)
	b = append(b, byte(row>>16), byte(row>>8), byte(row))
	return netip.AddrFrom16([16]byte(b))
}

// Row is the row that a local address is.
func (l LocalPrefixes) Row(a netip.Addr) uint32 {
	if a.Is4() {
		b := a.As4()
		return binary.BigEndian.Uint32(b[:]) & (1<<(32-l.V4.Bits()) - 1)
	}
	b := a.As16()
	return binary.BigEndian.Uint32(b[12:]) & 0xffffff
}
