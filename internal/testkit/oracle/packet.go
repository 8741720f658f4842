package oracle

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// packet is a frame that was understood.
type packet struct {
	frame []byte
	l3    int    // offset of the IP header
	ip    []byte // the IP packet, as long as its header says
	v4    bool
	tos   uint8
	df    bool // IPv4: routers must not fragment it
	cut   bool // as an ICMP error quotes it: the end is missing

	from, to netip.Addr
	protocol uint8
	l4       []byte    // of ip, from the transport header on
	fragment *fragment // nil: it is none

	flow  model.Flow // of TCP and UDP
	flags uint8      // TCP's
}

// fragment is what a header says of a fragment.
type fragment struct {
	id     [4]byte // as on the wire; IPv4's has two bytes
	offset int     // in units of 8 bytes; 0: it has the datagram's ports
}

const (
	flagSYN = 0x02
	flagACK = 0x10
)

// opens says whether the packet is the first of a connection.
func (p *packet) opens() bool {
	return p.flow.Protocol == model.TCP && p.flags&(flagSYN|flagACK) == flagSYN
}

// at is the offset of l4 in the frame.
func (p *packet) at() int { return p.l3 + len(p.ip) - len(p.l4) }

// parse reads the frame, or gives the verdict on one that is not TCP or UDP in one piece.
func parse(frame []byte) (*packet, string) {
	p := &packet{frame: frame, l3: 14}
	if len(frame) < 14 {
		return nil, "pass_malformed"
	}
	ethertype := binary.BigEndian.Uint16(frame[12:])
	for range 2 {
		if ethertype != 0x8100 && ethertype != 0x88a8 {
			break
		}
		if len(frame) < p.l3+4 {
			return nil, "pass_malformed"
		}
		ethertype = binary.BigEndian.Uint16(frame[p.l3+2:])
		p.l3 += 4
	}
	verdict := "pass_not_ip"
	switch ethertype {
	case 0x0800:
		verdict = p.parse4()
	case 0x86dd:
		verdict = p.parse6()
	}
	if verdict == "" {
		verdict = p.parseTransport()
	}
	return p, verdict
}

func (p *packet) parse4() string {
	at := p.frame[p.l3:]
	if len(at) < 20 {
		return "pass_malformed"
	}
	header, length := int(at[0]&15)*4, int(binary.BigEndian.Uint16(at[2:]))
	if p.cut {
		length = min(length, len(at))
	}
	if at[0]>>4 != 4 || header < 20 || length < header || length > len(at) {
		return "pass_malformed"
	}
	p.v4, p.ip, p.tos, p.protocol = true, at[:length], at[1], at[9]
	p.from, p.to = netip.AddrFrom4([4]byte(at[12:])), netip.AddrFrom4([4]byte(at[16:]))
	p.l4 = p.ip[header:]
	word := binary.BigEndian.Uint16(at[6:])
	p.df = word&0x4000 != 0
	if word&0x3fff != 0 {
		p.fragment = &fragment{id: [4]byte{at[4], at[5]}, offset: int(word & 0x1fff)}
		return "pass_fragment"
	}
	return ""
}

func (p *packet) parse6() string {
	next, verdict := p.parse6Header()
	if verdict != "" {
		return verdict
	}
	return p.skipExtensions(next)
}

// parse6Header reads the fixed header, and tells what follows.
func (p *packet) parse6Header() (next uint8, verdict string) {
	at := p.frame[p.l3:]
	if len(at) < 40 {
		return 0, "pass_malformed"
	}
	length := 40 + int(binary.BigEndian.Uint16(at[4:]))
	if p.cut {
		length = min(length, len(at))
	}
	if at[0]>>4 != 6 || length > len(at) {
		return 0, "pass_malformed"
	}
	p.ip, p.tos = at[:length], uint8(binary.BigEndian.Uint16(at)>>4)
	p.from, p.to = netip.AddrFrom16([16]byte(at[8:])), netip.AddrFrom16([16]byte(at[24:]))
	if p.from.Is4In6() || p.to.Is4In6() { // RFC 4291, 2.5.5.2: not on a wire
		return 0, "pass_malformed"
	}
	p.l4 = p.ip[40:]
	return at[6], ""
}

// Extension headers of IPv6 that a mux goes behind, and the bounds of its patience.
const (
	extensionHopByHop    = 0
	extensionRouting     = 43
	extensionFragment    = 44
	extensionDestination = 60

	mostExtensions     = 4
	mostExtensionBytes = 128
)

// skipExtensions moves l4 behind the extension headers (RFC 8200, section 4) and sets what follows.
// The bounds come first: only within them are lengths held against the packet's. Nothing is skipped
// behind the header of a fragment: the other fragments of its datagram do not have it.
func (p *packet) skipExtensions(next uint8) (verdict string) {
	rest, at, skipped, word, id := p.frame[p.l3+40:], 0, 0, uint16(0), [4]byte{}
	for isExtension(next) && skipped < mostExtensions && !isFragment(word) {
		if len(rest) < at+8 {
			return "pass_malformed"
		}
		header, length := rest[at:], 8
		if next == extensionRouting && header[3] != 0 { // we are not the last that it goes to
			return "pass_other_protocol"
		}
		if next == extensionFragment {
			word, id = binary.BigEndian.Uint16(header[2:]), [4]byte(header[4:])
		} else {
			length += 8 * int(header[1])
		}
		if at+length > mostExtensionBytes {
			return "pass_other_protocol"
		}
		next, at, skipped = header[0], at+length, skipped+1
	}
	if at > len(p.l4) {
		return "pass_malformed"
	}
	p.l4, p.protocol = p.l4[at:], next
	switch {
	case isFragment(word):
		p.fragment = &fragment{id: id, offset: int(word >> 3)}
		return "pass_fragment"
	case isExtension(next):
		return "pass_other_protocol"
	}
	return ""
}

// isFragment reads the fragment header's word. One that is the whole datagram is none (RFC 6946).
func isFragment(word uint16) bool { return word>>3 != 0 || word&1 != 0 }

func isExtension(protocol uint8) bool {
	return protocol == extensionHopByHop || protocol == extensionRouting ||
		protocol == extensionFragment || protocol == extensionDestination
}

func (p *packet) parseTransport() string {
	switch p.protocol {
	case 1, 58:
		return "pass_icmp"
	case 6:
		if len(p.l4) < 20 {
			return "pass_malformed"
		}
		if header := int(p.l4[12]>>4) * 4; header < 20 || header > len(p.l4) {
			return "pass_malformed"
		}
		p.flags = p.l4[13]
	case 17:
		if len(p.l4) < 8 {
			return "pass_malformed"
		}
	default:
		return "pass_other_protocol"
	}
	p.readFlow(p.l4)
	return ""
}

// readFlow has the addresses and the ports that TCP and UDP begin with.
func (p *packet) readFlow(ports []byte) {
	p.flow = model.Flow{
		Protocol:    model.Protocol(p.protocol),
		Source:      netip.AddrPortFrom(p.from, binary.BigEndian.Uint16(ports)),
		Destination: netip.AddrPortFrom(p.to, binary.BigEndian.Uint16(ports[2:])),
	}
}
