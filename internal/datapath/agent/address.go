package agent

import (
	"encoding/binary"
	"net/netip"
)

// toAddress writes a as the programs load it: 16 bytes of the wire, v4 mapped into v6.
func toAddress(a netip.Addr) agentAddress {
	wire := a.As16()
	var to agentAddress
	for i := range to.Words {
		to.Words[i] = binary.NativeEndian.Uint32(wire[4*i:])
	}
	return to
}

func fromAddress(a agentAddress) netip.Addr {
	var wire [16]byte
	for i, word := range a.Words {
		binary.NativeEndian.PutUint32(wire[4*i:], word)
	}
	return netip.AddrFrom16(wire).Unmap()
}

// port turns a port between the wire's byte order and the CPU's, either way.
func port(p uint16) uint16 {
	var wire [2]byte
	binary.BigEndian.PutUint16(wire[:], p)
	return binary.NativeEndian.Uint16(wire[:])
}

func fromAddrPort(a agentAddress, p uint16) netip.AddrPort {
	return netip.AddrPortFrom(fromAddress(a), port(p))
}
