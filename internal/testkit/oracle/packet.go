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
	flow  model.Flow
	l4    []byte // of ip, from the transport header on
	flags uint8  // TCP's
}

const (
	flagSYN = 0x02
	flagACK = 0x10
)

// opens says whether the packet is the first of a connection.
func (p *packet) opens() bool {
	return p.flow.Protocol == model.TCP && p.flags&(flagSYN|flagACK) == flagSYN
}

// parse reads the frame, or gives the verdict on one that is no business of the mux.
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
	switch ethertype {
	case 0x0800:
		return p, p.parse4()
	case 0x86dd:
		return p, p.parse6()
	}
	return nil, "pass_not_ip"
}

func (p *packet) parse4() string {
	at := p.frame[p.l3:]
	if len(at) < 20 {
		return "pass_malformed"
	}
	header, length := int(at[0]&15)*4, int(binary.BigEndian.Uint16(at[2:]))
	if at[0]>>4 != 4 || header < 20 || length < header || length > len(at) {
		return "pass_malformed"
	}
	p.v4, p.ip, p.tos = true, at[:length], at[1]
	source, destination := netip.AddrFrom4([4]byte(at[12:])), netip.AddrFrom4([4]byte(at[16:]))
	if binary.BigEndian.Uint16(at[6:])&0x3fff != 0 {
		return "pass_fragment"
	}
	p.l4 = p.ip[header:]
	return p.parseTransport(at[9], source, destination)
}

func (p *packet) parse6() string {
	at := p.frame[p.l3:]
	if len(at) < 40 {
		return "pass_malformed"
	}
	length := 40 + int(binary.BigEndian.Uint16(at[4:]))
	if at[0]>>4 != 6 || length > len(at) {
		return "pass_malformed"
	}
	p.ip, p.tos = at[:length], uint8(binary.BigEndian.Uint16(at)>>4)
	source, destination := netip.AddrFrom16([16]byte(at[8:])), netip.AddrFrom16([16]byte(at[24:]))
	if source.Is4In6() || destination.Is4In6() { // RFC 4291, 2.5.5.2: not on a wire
		return "pass_malformed"
	}
	p.l4 = p.ip[40:]
	protocol, verdict := p.skipExtensions(at[6])
	if verdict != "" {
		return verdict
	}
	return p.parseTransport(protocol, source, destination)
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

// skipExtensions moves l4 behind the extension headers (RFC 8200, section 4) and tells what follows.
// The bounds come first: only within them are lengths held against the packet's.
func (p *packet) skipExtensions(next uint8) (protocol uint8, verdict string) {
	rest, at, skipped, fragment := p.frame[p.l3+40:], 0, 0, uint16(0)
	for isExtension(next) && skipped < mostExtensions && fragment>>3 == 0 {
		if len(rest) < at+8 {
			return 0, "pass_malformed"
		}
		header, length := rest[at:], 8
		if next == extensionRouting && header[3] != 0 { // we are not the last that it goes to
			return 0, "pass_other_protocol"
		}
		if next == extensionFragment {
			fragment = binary.BigEndian.Uint16(header[2:])
		} else {
			length += 8 * int(header[1])
		}
		if at+length > mostExtensionBytes {
			return 0, "pass_other_protocol"
		}
		next, at, skipped = header[0], at+length, skipped+1
	}
	if at > len(p.l4) {
		return 0, "pass_malformed"
	}
	p.l4 = p.l4[at:]
	switch {
	case fragment>>3 != 0 || fragment&1 != 0: // one that is the whole datagram is none (RFC 6946)
		return next, "pass_fragment"
	case isExtension(next):
		return 0, "pass_other_protocol"
	}
	return next, ""
}

func isExtension(protocol uint8) bool {
	return protocol == extensionHopByHop || protocol == extensionRouting ||
		protocol == extensionFragment || protocol == extensionDestination
}

func (p *packet) parseTransport(protocol uint8, source, destination netip.Addr) string {
	switch protocol {
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
	p.flow = model.Flow{
		Protocol:    model.Protocol(protocol),
		Source:      netip.AddrPortFrom(source, binary.BigEndian.Uint16(p.l4)),
		Destination: netip.AddrPortFrom(destination, binary.BigEndian.Uint16(p.l4[2:])),
	}
	return ""
}

// timestampEcho is TSecr of TCP's timestamps option (RFC 7323).
func (p *packet) timestampEcho() (uint32, bool) {
	options := p.l4[20 : int(p.l4[12]>>4)*4]
	for len(options) > 0 {
		if options[0] == 0 { // end of the list
			break
		}
		if options[0] == 1 { // padding
			options = options[1:]
			continue
		}
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			break
		}
		if options[0] == 8 && options[1] == 10 {
			return binary.BigEndian.Uint32(options[6:]), true
		}
		options = options[options[1]:]
	}
	return 0, false
}
