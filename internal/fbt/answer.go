package fbt

import (
	"cmp"
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/dchest/siphash"
)

// Answer is what a server's host says of an answer that a mux is to send on: see bpf/net/answer.h.
type Answer struct {
	VNI         uint32
	Host        uint32 // number of the client's host
	Client, VIP netip.AddrPort
	ClientMAC   [6]byte // the inner frame's destination
	UDP         bool    // it is a datagram, else a segment of TCP
}

// MAC is SipHash-2-4 of the answer under a key of the server's host: the inner frame's source.
func (a Answer) MAC(key Key) (mac [6]byte) {
	const domain = 0x41 // FBTs begin with Kind
	protocol := byte(6)
	if a.UDP {
		protocol = 17
	}
	client, vip := a.Client.Addr().As16(), a.VIP.Addr().As16()
	b := []byte{domain, byte(a.VNI), byte(a.VNI >> 8), byte(a.VNI >> 16)}
	b = binary.LittleEndian.AppendUint32(b, a.Host)
	b = append(b, a.ClientMAC[:]...)
	b = binary.BigEndian.AppendUint16(b, a.Client.Port())
	b = append(append(b, client[:]...), vip[:]...)
	b = append(binary.BigEndian.AppendUint16(b, a.VIP.Port()), protocol)
	k0, k1 := binary.LittleEndian.Uint64(key.Secret[:8]), binary.LittleEndian.Uint64(key.Secret[8:])
	return [6]byte(binary.LittleEndian.AppendUint64(nil, siphash.Hash(k0, k1, b)))
}

// VXLAN is the header of the answer, under a key.
func (a Answer) VXLAN(key Key) []byte {
	const flags, answer = 0x08, 0x58
	b := binary.BigEndian.AppendUint32(nil, flags<<24|a.Host)
	return binary.BigEndian.AppendUint32(b, a.VNI<<8|answer|key.ID%Keys)
}

// MakesOf is the key, of those of a host that are valid, that all muxes know: that of the master of Makes. The zero Key: there
// is none.
func MakesOf(keys []Key) Key {
	sorted := slices.SortedFunc(slices.Values(keys), func(a, b Key) int { return cmp.Compare(a.ID, b.ID) })
	switch n := len(sorted); n {
	case 0:
		return Key{}
	case 1:
		return sorted[0]
	default:
		return sorted[n-2]
	}
}
