package oracle

import (
	"encoding/binary"
	"net/netip"
)

// outerHeader is an IP header before a packet.
type outerHeader struct {
	source, destination netip.Addr
	tos                 uint8
	protocol            uint8
	label               uint32 // IPv6
	length              int    // of what it carries
}

const outerTTL = 64

func (h outerHeader) bytes() []byte {
	var b []byte
	if h.destination.Is4() {
		b = append(b, 0x45, h.tos)
		b = binary.BigEndian.AppendUint16(b, uint16(20+h.length))
		b = append(b, 0, 0, 0x40, 0) // id 0, may not be fragmented
		b = append(b, outerTTL, h.protocol, 0, 0)
		b = append(b, h.source.AsSlice()...)
		b = append(b, h.destination.AsSlice()...)
		binary.BigEndian.PutUint16(b[10:], checksum(b))
		return b
	}
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.tos)<<20|h.label&0xfffff)
	b = binary.BigEndian.AppendUint16(b, uint16(h.length))
	b = append(b, h.protocol, outerTTL)
	b = append(b, h.source.AsSlice()...)
	return append(b, h.destination.AsSlice()...)
}
