package mux

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
)

// draft is a frame of random contents in the making: quicker than pkt.Packet, and it can say what
// that can't.
type draft struct {
	vlans     int
	from, to  netip.Addr
	tos, ttl  byte
	options   []byte // of IPv4, a multiple of 4 bytes
	extend    []extension
	fragment  uint16 // the word of IPv4's header: flags and offset
	id        uint16
	protocol  byte
	transport []byte // header and payload, the checksum still missing
	sumAt     int    // where the checksum stands; 0: there is none
	padding   int
}

// extension is an IPv6 extension header without its first byte.
type extension struct {
	protocol byte
	rest     []byte
}

// frame writes the draft down, with right lengths and checksums.
func (f draft) frame() []byte {
	b := []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1}
	for i := range f.vlans {
		tpid := uint16(0x8100)
		if i+1 < f.vlans {
			tpid = 0x88a8
		}
		b = binary.BigEndian.AppendUint16(b, tpid)
		b = binary.BigEndian.AppendUint16(b, uint16(7*i+5))
	}
	if f.to.Is4() {
		b = f.appendV4(b)
	} else {
		b = f.appendV6(b)
	}
	at := len(b)
	b = append(b, f.transport...)
	if f.sumAt != 0 {
		f.checksum(b[at:])
	}
	return append(b, make([]byte, f.padding)...)
}

func (f draft) appendV4(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0x0800)
	at := len(b)
	b = append(b, 0x45+byte(len(f.options)/4), f.tos)
	b = binary.BigEndian.AppendUint16(b, uint16(20+len(f.options)+len(f.transport)))
	b = binary.BigEndian.AppendUint16(b, f.id)
	b = binary.BigEndian.AppendUint16(b, f.fragment)
	b = append(b, f.ttl, f.protocol, 0, 0)
	b = append(b, f.from.AsSlice()...)
	b = append(b, f.to.AsSlice()...)
	b = append(b, f.options...)
	binary.BigEndian.PutUint16(b[at+10:], ^onesSum(0, b[at:]))
	return b
}

func (f draft) appendV6(b []byte) []byte {
	b = binary.BigEndian.AppendUint16(b, 0x86dd)
	b = binary.BigEndian.AppendUint32(b, 6<<28|uint32(f.tos)<<20|uint32(f.id))
	length := len(f.transport)
	for _, e := range f.extend {
		length += 1 + len(e.rest)
	}
	b = binary.BigEndian.AppendUint16(b, uint16(length))
	next := f.protocol
	if len(f.extend) > 0 {
		next = f.extend[0].protocol
	}
	b = append(b, next, f.ttl)
	b = append(b, f.from.AsSlice()...)
	b = append(b, f.to.AsSlice()...)
	for i, e := range f.extend {
		next := f.protocol
		if i+1 < len(f.extend) {
			next = f.extend[i+1].protocol
		}
		b = append(b, next)
		b = append(b, e.rest...)
	}
	return b
}

// checksum fills in the transport's, over the pseudo-header except in ICMPv4.
func (f draft) checksum(transport []byte) {
	sum := uint16(0)
	if f.protocol != 1 {
		pseudo := append(f.from.AsSlice(), f.to.AsSlice()...)
		pseudo = binary.BigEndian.AppendUint16(pseudo, uint16(len(transport)))
		sum = onesSum(0, append(pseudo, 0, f.protocol))
	}
	binary.BigEndian.PutUint16(transport[f.sumAt:], ^onesSum(sum, transport))
}

// onesSum is the one's complement sum of b's 16-bit words.
func onesSum(start uint16, b []byte) uint16 {
	sum := uint32(start)
	for i, v := range b {
		sum += uint32(v) << (8 * (1 - i%2))
		sum = sum>>16 + sum&0xffff
	}
	return uint16(sum)
}

// draftTCP has the options given, filled up with zeros to whole words.
func draftTCP(from, to netip.AddrPort, flags byte, options []byte, payload int, r *rand.Rand) draft {
	for len(options)%4 != 0 {
		options = append(options, 0)
	}
	t := binary.BigEndian.AppendUint16(nil, from.Port())
	t = binary.BigEndian.AppendUint16(t, to.Port())
	t = binary.BigEndian.AppendUint32(t, uint32(r.IntN(6)-1)<<16) // near enough to follow each other
	t = binary.BigEndian.AppendUint32(t, r.Uint32())
	t = append(t, byte(5+len(options)/4)<<4, flags, 0xff, 0xff, 0, 0, 0, 0)
	t = append(append(t, options...), noise(r, payload)...)
	return draft{
		from: from.Addr(), to: to.Addr(), ttl: 64, tos: byte(r.Uint32()), id: uint16(r.Uint32()),
		protocol: 6, transport: t, sumAt: 16,
	}
}

func draftUDP(from, to netip.AddrPort, payload int, r *rand.Rand) draft {
	t := binary.BigEndian.AppendUint16(nil, from.Port())
	t = binary.BigEndian.AppendUint16(t, to.Port())
	t = binary.BigEndian.AppendUint16(t, uint16(8+payload))
	t = append(append(t, 0, 0), noise(r, payload)...)
	return draft{
		from: from.Addr(), to: to.Addr(), ttl: 64, tos: byte(r.Uint32()), id: uint16(r.Uint32()),
		protocol: 17, transport: t, sumAt: 6,
	}
}

func noise(r *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return b
}
