package pkt

import (
	"encoding/binary"
	"net/netip"
	"slices"

	"github.com/gopacket/gopacket/layers"
)

// MAC is an Ethernet address.
type MAC [6]byte

// Flags are TCP's, as in the 14th byte of its header.
type Flags uint8

// The flags of TCP.
const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// IP is an IP header. Its family is that of the addresses.
type IP struct {
	Source, Destination netip.Addr
	TOS                 uint8 // DSCP and ECN
	TTL                 uint8
	ID                  uint16 // IPv4, and of an IPv6 fragment
	DontFragment        bool   // IPv4
	MoreFragments       bool
	FragmentOffset      uint16 // in 8 bytes
	Options             []byte // IPv4, a multiple of 4 bytes
}

// Is4 says whether the header is IPv4.
func (ip IP) Is4() bool { return ip.Source.Is4() }

// IsFragment says whether the header is that of any fragment.
func (ip IP) IsFragment() bool { return ip.MoreFragments || ip.FragmentOffset != 0 }

// Packet is what a frame holds.
type Packet struct {
	Source, Destination MAC
	VLANs               []uint16 // outermost first; of two the first is 802.1ad
	Outer               *IP      // of IP-in-IP; nil: not encapsulated
	IP                  IP
	Protocol            layers.IPProtocol

	SourcePort, DestinationPort uint16 // TCP and UDP
	Flags                       Flags  // TCP
	Seq, Ack                    uint32 // TCP
	Options                     []layers.TCPOption

	Payload []byte // of TCP, UDP, ICMP echo; of another protocol and of later fragments: after IP
	Padding int    // bytes behind the IP packet
}

// TCP makes a segment between two addresses with ports, "198.51.100.7:40000" or "[2001:db8::7]:40000".
func TCP(source, destination string, flags Flags, changes ...func(*Packet)) Packet {
	p := transport(layers.IPProtocolTCP, source, destination)
	p.Flags = flags
	p.Seq = 1000
	if flags&ACK != 0 {
		p.Ack = 2000
	}
	return p.With(changes...)
}

// UDP makes a datagram between two addresses with ports.
func UDP(source, destination string, changes ...func(*Packet)) Packet {
	return transport(layers.IPProtocolUDP, source, destination).With(changes...)
}

// ICMP makes an echo request between two addresses, of ICMPv4 or ICMPv6 after their family.
func ICMP(source, destination string, changes ...func(*Packet)) Packet {
	p := base(netip.MustParseAddr(source), netip.MustParseAddr(destination))
	p.Protocol = layers.IPProtocolICMPv4
	if !p.IP.Is4() {
		p.Protocol = layers.IPProtocolICMPv6
	}
	return p.With(changes...)
}

func transport(protocol layers.IPProtocol, source, destination string) Packet {
	from, to := netip.MustParseAddrPort(source), netip.MustParseAddrPort(destination)
	p := base(from.Addr(), to.Addr())
	p.Protocol = protocol
	p.SourcePort, p.DestinationPort = from.Port(), to.Port()
	return p
}

func base(source, destination netip.Addr) Packet {
	return Packet{
		Source:      MAC{0x02, 0, 0, 0, 0, 0x01},
		Destination: MAC{0x02, 0, 0, 0, 0, 0x02},
		IP:          IP{Source: source, Destination: destination, TTL: 64},
		Payload:     []byte("weir spreads a river"),
	}
}

// With returns a copy of p with the changes made.
func (p Packet) With(changes ...func(*Packet)) Packet {
	p.VLANs = slices.Clone(p.VLANs)
	p.Options = slices.Clone(p.Options)
	p.Payload = slices.Clone(p.Payload)
	if p.Outer != nil {
		outer := *p.Outer
		p.Outer = &outer
	}
	for _, change := range changes {
		change(&p)
	}
	return p
}

// Inside returns p encapsulated: IP-in-IP of the families of outer and p.
func (p Packet) Inside(outer IP) Packet {
	return p.With(func(p *Packet) { p.Outer = &outer })
}

// L3 is the offset of the outermost IP header in p's frame.
func (p Packet) L3() int { return 14 + 4*len(p.VLANs) }

// L4 is the offset of what follows the inner IP header.
func (p Packet) L4() int {
	offset := p.L3() + p.IP.headerLen()
	if p.Outer != nil {
		offset += p.Outer.headerLen()
	}
	if !p.IP.Is4() && p.IP.IsFragment() {
		offset += 8
	}
	return offset
}

func (ip IP) headerLen() int {
	if ip.Is4() {
		return 20 + len(ip.Options)
	}
	return 40
}

// Changes of one thing, for the constructors and With.

// VLANs tags the frame, outermost first.
func VLANs(ids ...uint16) func(*Packet) { return func(p *Packet) { p.VLANs = ids } }

// Payload replaces what the transport carries.
func Payload(data []byte) func(*Packet) { return func(p *Packet) { p.Payload = data } }

// Padding appends n bytes that belong to no IP packet.
func Padding(n int) func(*Packet) { return func(p *Packet) { p.Padding = n } }

// TOS sets DSCP and ECN of the inner header.
func TOS(tos uint8) func(*Packet) { return func(p *Packet) { p.IP.TOS = tos } }

// IPOptions appends n bytes of no-operation options to the inner IPv4 header; n divides by 4.
func IPOptions(n int) func(*Packet) {
	return func(p *Packet) { p.IP.Options = slices.Repeat([]byte{1}, n) }
}

// Fragment makes p a fragment at offset (in 8 bytes).
func Fragment(offset uint16, more bool) func(*Packet) {
	return func(p *Packet) {
		p.IP.ID = 7
		p.IP.FragmentOffset, p.IP.MoreFragments = offset, more
	}
}

// MSS adds TCP's option of the maximum segment size.
func MSS(mss uint16) func(*Packet) {
	return TCPOptions(layers.TCPOption{
		OptionType: layers.TCPOptionKindMSS, OptionLength: 4,
		OptionData: []byte{byte(mss >> 8), byte(mss)},
	})
}

// Timestamps adds TCP's timestamps option (RFC 7323), without padding around it.
func Timestamps(tsval, tsecr uint32) func(*Packet) {
	data := binary.BigEndian.AppendUint32(nil, tsval)
	return TCPOptions(layers.TCPOption{
		OptionType: layers.TCPOptionKindTimestamps, OptionLength: 10,
		OptionData: binary.BigEndian.AppendUint32(data, tsecr),
	})
}

// NOP adds n of TCP's no-operation option.
func NOP(n int) func(*Packet) {
	return TCPOptions(slices.Repeat([]layers.TCPOption{{OptionType: layers.TCPOptionKindNop, OptionLength: 1}}, n)...)
}

// TCPOptions appends options to the TCP header.
func TCPOptions(options ...layers.TCPOption) func(*Packet) {
	return func(p *Packet) { p.Options = append(p.Options, options...) }
}

// Protocol makes the inner packet carry another protocol than TCP, UDP or ICMP.
func Protocol(protocol layers.IPProtocol) func(*Packet) {
	return func(p *Packet) { p.Protocol = protocol }
}
