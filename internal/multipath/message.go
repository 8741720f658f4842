package multipath

import (
	"encoding/binary"
	"net/netip"
)

// GUE as hosts of Weir read it: bpf/abi/shared/gue.h.
const (
	gueVersion   = 1
	gueKindToken = 4
	gueWords     = 2 // 32-bit words of what every such packet says
	protocolIPv4 = 4
	protocolIPv6 = 41
	protocolTCP  = 6
	tcpHeader    = 20
	tcpOffset    = tcpHeader / 4 << 4
	tcpACK       = 0x10
	ttl          = 64
)

// Tell is what hosts tell each other, from UDP to the GUE port: that a workload behind the tunnel has the token. With StepHolder
// the home behind the tunnel asks whether the tunnel that the message goes to still has it. Inside is the head of a segment of the
// client, which is never delivered; it names the endpoint.
func Tell(name Name, tunnel netip.Addr, client netip.AddrPort, step Step) []byte {
	words, inside := gueWords+len(tunnel.AsSlice())/4, byte(protocolIPv4)
	if name.Endpoint.VIP.Is6() {
		inside = protocolIPv6
	}
	b := []byte{byte(words), inside, 0, 0, gueVersion, byte(step), gueKindToken, 0}
	b = binary.BigEndian.AppendUint32(b, uint32(name.Token))
	b = append(b, tunnel.AsSlice()...)
	return append(appendIP(b, client.Addr(), name.Endpoint.VIP), segment(client.Port(), name.Endpoint.Port)...)
}

// appendIP appends a header from a client to the VIP.
func appendIP(b []byte, client, vip netip.Addr) []byte {
	at := len(b)
	if vip.Is6() {
		b = append(b, 0x60, 0, 0, 0, 0, tcpHeader, protocolTCP, ttl)
		return append(append(b, client.AsSlice()...), vip.AsSlice()...)
	}
	const length = 20
	b = append(b, 0x45, 0, 0, length+tcpHeader, 0, 0, 0, 0, ttl, protocolTCP, 0, 0)
	b = append(append(b, client.AsSlice()...), vip.AsSlice()...)
	var sum uint32
	for i := at; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	sum = sum>>16 + sum&0xffff
	binary.BigEndian.PutUint16(b[at+10:], ^uint16(sum>>16+sum))
	return b
}

// segment is a TCP header from one port to another. An endpoint of all ports takes any.
func segment(from, to uint16) []byte {
	b := make([]byte, tcpHeader)
	binary.BigEndian.PutUint16(b, from)
	binary.BigEndian.PutUint16(b[2:], max(to, 1))
	b[12], b[13] = tcpOffset, tcpACK
	return b
}
