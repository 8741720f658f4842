// Package inet is what oracles know of the headers of IP, TCP and UDP. For tests only.
package inet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

const (
	flagSYN   = 0x02 // of TCP
	answerTTL = 64
)

// Checksum is that of RFC 1071 over all parts, the parts but the last of even length.
func Checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for i, b := range part {
			if i%2 == 0 {
				sum += uint32(b) << 8
			} else {
				sum += uint32(b)
			}
			sum = sum>>16 + sum&0xffff
		}
	}
	return ^uint16(sum)
}

// Mended is a checksum after a word under it changed (RFC 1624, equation 3).
func Mended(sum, from, to uint16) uint16 {
	n := uint32(^sum) + uint32(^from) + uint32(to)
	n = n>>16 + n&0xffff
	n = n>>16 + n&0xffff
	return ^uint16(n)
}

// FixedHeader is the length of an IP header without options.
func FixedHeader(v4 bool) int {
	if v4 {
		return 20
	}
	return 40
}

// EtherType is that of a family.
func EtherType(v4 bool) []byte {
	if v4 {
		return []byte{0x08, 0x00}
	}
	return []byte{0x86, 0xdd}
}

// ECN is the inner header's class after decapsulation (RFC 6040, figure 4).
func ECN(outer, inner uint8) uint8 {
	switch {
	case outer&3 == 3:
		return inner | 3
	case outer&3 == 1 && inner&3 == 2:
		return inner&^3 | 1
	}
	return inner
}

// Clamp lowers the MSS that a SYN announces.
func Clamp(segment []byte, most int) {
	if segment[13]&flagSYN == 0 || most <= 0 {
		return
	}
	options := segment[20 : int(segment[12]>>4)*4]
	for len(options) >= 2 && options[0] != 0 {
		if options[0] == 1 {
			options = options[1:]
			continue
		}
		if options[1] < 2 || int(options[1]) > len(options) {
			return
		}
		if options[0] == 2 {
			if options[1] == 4 && int(binary.BigEndian.Uint16(options[2:])) > most {
				binary.BigEndian.PutUint16(options[2:], uint16(most))
			}
			return
		}
		options = options[options[1]:]
	}
}

// Pseudo is the header that TCP's checksum covers beside the segment (RFC 9293, 3.1; RFC 8200, 8.1).
func Pseudo(from, to netip.Addr, length int) []byte {
	b := append(from.AsSlice(), to.AsSlice()...)
	b = binary.BigEndian.AppendUint32(b, uint32(length))
	return append(b, 0, 0, 0, 6)
}

// Rechecked is the checksum at an offset of what is: wrong by as much as it was in what was.
func Rechecked(was, is []byte, at int) uint16 {
	sum := func(b []byte) uint32 {
		b = bytes.Clone(b)
		b[at], b[at+1] = 0, 0
		return uint32(^Checksum(b))
	}
	n := uint32(^binary.BigEndian.Uint16(was[at:])) + (0xffff - sum(was)) + sum(is)
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}

// Timestamps are TSval and TSecr among TCP's options (RFC 7323).
func Timestamps(options []byte) (value, echo uint32, ok bool) {
	for len(options) > 0 {
		if options[0] == 0 { // end of the list
			break
		}
		if options[0] == 1 { // padding
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			break
		}
		if options[0] == 8 && options[1] == 10 {
			return binary.BigEndian.Uint32(options[2:]), binary.BigEndian.Uint32(options[6:]), true
		}
		options = options[options[1]:]
	}
	return 0, 0, false
}

// IsHost says whether an answer to the address can reach one (RFC 1122, section 3.2.1.3; RFC 4443,
// section 2.4).
func IsHost(a netip.Addr) bool {
	if a.Is4() {
		first := a.As4()[0]
		return first != 0 && first != 127 && first < 224
	}
	return !a.IsMulticast() && !a.IsUnspecified() && !a.IsLoopback()
}

// Relabel has the IP header of a packet that was made of another one say how long it is, and what follows it. Its checksum
// is as right, or wrong, as it was.
func Relabel(was, ip []byte, next uint8) {
	if ip[0]>>4 == 6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(ip)-40))
		ip[6] = next
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[9] = next
	header := int(ip[0]&15) * 4
	binary.BigEndian.PutUint16(ip[10:], Rechecked(was[:header], ip[:header], 10))
}

// Turn has the ends of an IP header change places, and gives it a fresh life.
func Turn(ip []byte, v4 bool) {
	ttl, addresses, size := 7, 8, 16
	if v4 {
		ttl, addresses, size = 8, 12, 4
		word := binary.BigEndian.Uint16(ip[8:])
		binary.BigEndian.PutUint16(ip[10:], Mended(binary.BigEndian.Uint16(ip[10:]), word, answerTTL<<8|word&0xff))
	}
	ends := ip[addresses : addresses+2*size]
	copy(ends, append(bytes.Clone(ends[size:]), ends[:size]...))
	ip[ttl] = answerTTL
}

// PseudoUDP is RFC 8200's, section 8.1.
func PseudoUDP(from, to netip.Addr, length int) []byte {
	b := append(from.AsSlice(), to.AsSlice()...)
	return append(binary.BigEndian.AppendUint32(b, uint32(length)), 0, 0, 0, 17)
}

// Header is an IP header before a packet.
type Header struct {
	Source, Destination netip.Addr
	TOS                 uint8
	Protocol            uint8
	Label               uint32 // IPv6
	Length              int    // of what it carries
}

// Bytes are the header.
func (h Header) Bytes() []byte {
	var b []byte
	if h.Destination.Is4() {
		b = append(b, 0x45, h.TOS)
		b = binary.BigEndian.AppendUint16(b, uint16(20+h.Length))
		b = append(b, 0, 0, 0x40, 0) // id 0, may not be fragmented
		b = append(b, answerTTL, h.Protocol, 0, 0)
		b = append(b, h.Source.AsSlice()...)
		b = append(b, h.Destination.AsSlice()...)
		binary.BigEndian.PutUint16(b[10:], Checksum(b))
		return b
	}
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(h.TOS)<<20|h.Label&0xfffff)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Length))
	b = append(b, h.Protocol, answerTTL)
	b = append(b, h.Source.AsSlice()...)
	return append(b, h.Destination.AsSlice()...)
}
