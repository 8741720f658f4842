package pkt

import (
	"encoding/binary"
	"slices"
)

// InsertHeader puts a header behind the IP header of a frame without VLAN tags, whose protocol is then the header's. The
// checksum of IPv4's header is made anew.
func InsertHeader(frame []byte, protocol uint8, header []byte) []byte {
	const l3 = 14
	if frame[12] == 0x86 {
		out := slices.Concat(frame[:l3+40], header, frame[l3+40:])
		binary.BigEndian.PutUint16(out[l3+4:], binary.BigEndian.Uint16(out[l3+4:])+uint16(len(header)))
		out[l3+6] = protocol
		return out
	}
	l4 := l3 + int(frame[l3]&15)*4
	out := slices.Concat(frame[:l4], header, frame[l4:])
	binary.BigEndian.PutUint16(out[l3+2:], binary.BigEndian.Uint16(out[l3+2:])+uint16(len(header)))
	out[l3+9] = protocol
	sealHeader(out[l3:l4])
	return out
}

// RemoveHeader undoes InsertHeader: next is the protocol of what follows the header.
func RemoveHeader(frame []byte, next uint8, length int) []byte {
	const l3 = 14
	if frame[12] == 0x86 {
		out := slices.Concat(frame[:l3+40], frame[l3+40+length:])
		binary.BigEndian.PutUint16(out[l3+4:], binary.BigEndian.Uint16(out[l3+4:])-uint16(length))
		out[l3+6] = next
		return out
	}
	l4 := l3 + int(frame[l3]&15)*4
	out := slices.Concat(frame[:l4], frame[l4+length:])
	binary.BigEndian.PutUint16(out[l3+2:], binary.BigEndian.Uint16(out[l3+2:])-uint16(length))
	out[l3+9] = next
	sealHeader(out[l3:l4])
	return out
}

// sealHeader computes the checksum of an IPv4 header.
func sealHeader(header []byte) {
	header[10], header[11] = 0, 0
	binary.BigEndian.PutUint16(header[10:], sum(header))
}
