package flood

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Kind is what a flood consists of.
type Kind string

// Kinds of packets.
const (
	SYN       Kind = "syn"
	Handshake Kind = "handshake" // SYNs, and behind each an ACK of the same source
	UDP       Kind = "udp"
	Segment   Kind = "segment"  // of TCP, as if of an established connection; every other one has timestamps
	Fragment  Kind = "fragment" // of UDP: first ones of which no other follows, and later ones without a first
	Ping      Kind = "ping"     // echo requests
)

// Kinds are all of them.
var Kinds = []Kind{SYN, Handshake, UDP, Segment, Fragment, Ping}

func (k Kind) valid() error {
	if slices.Contains(Kinds, k) {
		return nil
	}
	names := make([]string, 0, len(Kinds))
	for _, k := range Kinds {
		names = append(names, string(k))
	}
	return fmt.Errorf("%q is no kind of packets: it is one of %s", k, strings.Join(names, ", "))
}

const (
	header4, header6 = 20, 40
	fragmentHeader   = 8  // of IPv6
	transport        = 24 // bytes: a TCP header with the MSS, or a UDP or ICMP header with 16 bytes
	stamped          = 32 // of a TCP header with timestamps
	flagSYN, flagACK = 0x02, 0x10
)

// packet is one to a target, whose other fields spoof draws.
type packet struct {
	data     []byte
	kind     Kind
	follows  bool // the packet before it in a batch: it is of the same source
	protocol byte // of the transport
	l4       int  // where the transport begins
	sum      int  // where its checksum stands; 0: it has none
}

// template is the packet with a number of a batch: kinds that are of two sorts take turns.
func template(target netip.AddrPort, kind Kind, number int) packet {
	p := packet{kind: kind, protocol: unix.IPPROTO_TCP, l4: header4}
	is6, second, length := target.Addr().Is6(), number%2 == 1, transport
	if is6 {
		p.l4 = header6
	}
	switch kind {
	case UDP, Fragment:
		p.protocol = unix.IPPROTO_UDP
	case Ping:
		if p.protocol = unix.IPPROTO_ICMP; is6 {
			p.protocol = unix.IPPROTO_ICMPV6
		}
	case Segment:
		if second {
			length = stamped
		}
	}
	if kind == Fragment && is6 {
		p.l4 += fragmentHeader
	}
	p.follows = kind == Handshake && second
	p.data = make([]byte, p.l4+length)
	p.address(target.Addr())
	if kind == Fragment {
		p.fragment(is6, second)
	}
	if kind != Fragment || !second {
		p.transport(target.Port())
	}
	return p
}

// address writes the IP header, as far as it is the same for all.
func (p *packet) address(target netip.Addr) {
	if target.Is6() {
		p.data[0], p.data[6], p.data[7] = 0x60, p.protocol, 64
		binary.BigEndian.PutUint16(p.data[4:], uint16(len(p.data)-header6))
		source := Sources6.Addr().As16()
		copy(p.data[8:], source[:])
		copy(p.data[24:], target.AsSlice())
		return
	}
	p.data[0], p.data[8], p.data[9] = 0x45, 64, p.protocol
	binary.BigEndian.PutUint16(p.data[2:], uint16(len(p.data)))
	binary.BigEndian.PutUint16(p.data[6:], 0x4000) // do not fragment
	source := Sources4.Addr().As4()
	copy(p.data[12:], source[:])
	copy(p.data[16:], target.AsSlice())
}

// fragment makes it the first of a datagram, or a later one.
func (p *packet) fragment(is6, later bool) {
	const eighths = transport / 8 // where a later one begins
	switch {
	case is6:
		p.data[6] = unix.IPPROTO_FRAGMENT
		p.data[header6] = p.protocol
		field := uint16(1) // more follow
		if later {
			field = eighths << 3
		}
		binary.BigEndian.PutUint16(p.data[header6+2:], field)
	case later:
		binary.BigEndian.PutUint16(p.data[6:], eighths)
	default:
		binary.BigEndian.PutUint16(p.data[6:], 0x2000)
	}
}

func (p *packet) transport(port uint16) {
	l4 := p.data[p.l4:]
	switch p.kind {
	case UDP, Fragment:
		binary.BigEndian.PutUint16(l4[2:], port)
		binary.BigEndian.PutUint16(l4[4:], uint16(len(l4)))
		p.sum = p.l4 + 6
	case Ping:
		if l4[0] = 8; p.protocol == unix.IPPROTO_ICMPV6 {
			l4[0] = 128
		}
		p.sum = p.l4 + 2
	case SYN, Handshake, Segment:
		binary.BigEndian.PutUint16(l4[2:], port)
		l4[12], l4[13] = byte(len(l4)/4)<<4, flagSYN
		options := []byte{2, 4, 1460 >> 8, 1460 & 0xff}
		if p.kind == Segment || p.follows {
			l4[13], options = flagACK, []byte{1, 1, 1, 1}
		}
		if len(l4) == stamped {
			options = []byte{1, 1, 8, 10}
		}
		binary.BigEndian.PutUint16(l4[14:], 65535)
		copy(l4[20:], options)
		p.sum = p.l4 + 16
	}
}

// spoof draws where the packet comes from, and its numbers. The kernel writes the checksum of an IPv4 header
// itself.
func (p *packet) spoof(random *rand.Rand) {
	is6 := p.data[0]>>4 == 6
	if is6 {
		binary.BigEndian.PutUint64(p.data[16:], random.Uint64())
	} else {
		p.data[13] = Sources4.Addr().As4()[1] | byte(random.Uint32()&1)
		binary.BigEndian.PutUint16(p.data[14:], uint16(random.Uint32()))
	}
	l4 := p.data[p.l4:]
	switch p.kind {
	case Ping:
		binary.BigEndian.PutUint32(l4[4:], random.Uint32())
	case Fragment:
		if is6 {
			binary.BigEndian.PutUint32(p.data[header6+4:], random.Uint32())
		} else {
			binary.BigEndian.PutUint16(p.data[4:], uint16(1+random.Uint32N(65535))) // for 0 the kernel draws one
		}
	case Segment:
		binary.BigEndian.PutUint32(l4[8:], random.Uint32())
		if len(l4) == stamped {
			binary.BigEndian.PutUint64(l4[24:], random.Uint64())
		}
	}
	if p.sum == 0 {
		return
	}
	if p.kind != Ping {
		binary.BigEndian.PutUint16(l4, uint16(1024+random.Uint32N(64000)))
	}
	if p.protocol == unix.IPPROTO_TCP {
		binary.BigEndian.PutUint32(l4[4:], random.Uint32())
	}
	p.check(is6)
}

// follow has an ACK come from where the SYN did. What it acknowledges is a guess.
func (p *packet) follow(syn *packet, random *rand.Rand) {
	is6 := p.data[0]>>4 == 6
	if is6 {
		copy(p.data[8:24], syn.data[8:24])
	} else {
		copy(p.data[12:16], syn.data[12:16])
	}
	l4, before := p.data[p.l4:], syn.data[syn.l4:]
	copy(l4[:2], before[:2])
	binary.BigEndian.PutUint32(l4[4:], binary.BigEndian.Uint32(before[4:])+1)
	binary.BigEndian.PutUint32(l4[8:], random.Uint32())
	p.check(is6)
}

// check writes the checksum of the transport.
func (p *packet) check(is6 bool) {
	l4 := p.data[p.l4:]
	binary.BigEndian.PutUint16(p.data[p.sum:], 0)
	sum := add(0, l4)
	switch {
	case is6:
		sum = add(sum+uint32(p.protocol)+uint32(len(l4)), p.data[8:header6])
	case p.protocol != unix.IPPROTO_ICMP:
		sum = add(sum+uint32(p.protocol)+uint32(len(l4)), p.data[12:header4])
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(p.data[p.sum:], ^uint16(sum))
}

func add(sum uint32, data []byte) uint32 {
	for i := 0; i < len(data); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(data[i:]))
	}
	return sum
}
