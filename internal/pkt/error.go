package pkt

import (
	"encoding/binary"
	"net/netip"
	"slices"
)

// Error is a frame with an ICMP error, "fragmentation needed" or "packet too big", that quotes so many bytes of a packet.
func Error(from, to netip.Addr, quoted Packet, bytes int) []byte {
	const mtu, hops = 1400, 64
	frame := quoted.Frame()
	quote := frame[quoted.L3():]
	quote = quote[:min(len(quote), bytes)]
	head := slices.Concat(quoted.Destination[:], quoted.Source[:])
	if to.Is4() {
		icmp := slices.Concat([]byte{3, 4, 0, 0, 0, 0, mtu >> 8, mtu & 0xff}, quote)
		binary.BigEndian.PutUint16(icmp[2:], sum(icmp))
		ip := []byte{0x45, 0, 0, 0, 0, 0, 0, 0, hops, 1, 0, 0}
		binary.BigEndian.PutUint16(ip[2:], uint16(20+len(icmp)))
		ip = slices.Concat(ip, from.AsSlice(), to.AsSlice())
		sealHeader(ip)
		return slices.Concat(head, []byte{8, 0}, ip, icmp)
	}
	icmp := slices.Concat([]byte{2, 0, 0, 0, 0, 0, mtu >> 8, mtu & 0xff}, quote)
	ends := slices.Concat(from.AsSlice(), to.AsSlice())
	length := binary.BigEndian.AppendUint32(nil, uint32(len(icmp)))
	binary.BigEndian.PutUint16(icmp[2:], sum(slices.Concat(ends, length, []byte{0, 0, 0, 58}, icmp)))
	return slices.Concat(head, []byte{0x86, 0xdd, 0x60, 0, 0, 0}, length[2:], []byte{58, hops}, ends, icmp)
}

// sum is the checksum of RFC 1071.
func sum(b []byte) uint16 {
	n := uint32(0)
	for i, octet := range b {
		if i%2 == 0 {
			n += uint32(octet) << 8
		} else {
			n += uint32(octet)
		}
		n = n>>16 + n&0xffff
	}
	return ^uint16(n)
}
