package reset

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Packet is a TCP reset with its IP header.
func Packet(from, to netip.AddrPort, seq uint32) []byte {
	const hops, tcp, rst, words = 64, 6, 0x04, 5
	s := binary.BigEndian.AppendUint16(nil, from.Port())
	s = binary.BigEndian.AppendUint16(s, to.Port())
	s = binary.BigEndian.AppendUint32(s, seq)
	s = append(s, 0, 0, 0, 0, words<<4, rst, 0, 0, 0, 0, 0, 0)
	source, destination := from.Addr().AsSlice(), to.Addr().AsSlice()
	binary.BigEndian.PutUint16(s[16:], Checksum(slices.Concat(source, destination, s), tcp+uint32(len(s))))
	if to.Addr().Is6() {
		header := []byte{0x60, 0, 0, 0, 0, byte(len(s)), tcp, hops}
		return append(append(append(header, source...), destination...), s...)
	}
	header := []byte{0x45, 0, 0, byte(20 + len(s)), 0, 0, 0x40, 0, hops, tcp, 0, 0}
	header = append(append(header, source...), destination...)
	binary.BigEndian.PutUint16(header[10:], Checksum(header, 0))
	return append(header, s...)
}

// VXLAN is its header and the Ethernet header of the frame inside (RFC 7348, section 5).
func VXLAN(vni uint32, to, from [6]byte, v4 bool) []byte {
	b := []byte{8, 0, 0, 0}
	b = binary.BigEndian.AppendUint32(b, vni<<8)
	b = append(append(b, to[:]...), from[:]...)
	if v4 {
		return append(b, 0x08, 0x00)
	}
	return append(b, 0x86, 0xdd)
}

// Checksum is that of IP and TCP: of data, and of a sum of what is before it, all of an even length.
func Checksum(data []byte, sum uint32) uint16 {
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
}
