package abi

import (
	"encoding/binary"
	"net/netip"
)

// Words are those of struct address: the 16 bytes of the wire, v4 mapped into v6, as the CPU loads
// them. The address that is not set is all zero.
func Words(a netip.Addr) (words [4]uint32) {
	if !a.IsValid() {
		return words
	}
	wire := a.As16()
	for i := range words {
		words[i] = binary.NativeEndian.Uint32(wire[4*i:])
	}
	return words
}

// Address is the address of the words; the zero Addr when it is not set.
func Address(words [4]uint32) netip.Addr {
	if words == [4]uint32{} {
		return netip.Addr{}
	}
	var wire [16]byte
	for i, word := range words {
		binary.NativeEndian.PutUint32(wire[4*i:], word)
	}
	return netip.AddrFrom16(wire).Unmap()
}

// Port turns a port between the CPU's byte order and the wire's, either way.
func Port(port uint16) uint16 {
	var wire [2]byte
	binary.BigEndian.PutUint16(wire[:], port)
	return binary.NativeEndian.Uint16(wire[:])
}
