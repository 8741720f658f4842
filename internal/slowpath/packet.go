package slowpath

import (
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/mux"
	"github.com/weirlb/weir/internal/model"
)

// Numbers of IP protocols.
const (
	hopOptions  = 0
	routing     = 43
	fragment    = 44
	options     = 60
	protoICMP   = 1
	protoICMPv6 = 58
	protoIPv4   = 4
	protoIPv6   = 41
)

// Bounds on IPv6 extension headers, those of bpf/net/packet.h.
const (
	maxExtensions     = 4
	maxExtensionBytes = 128
)

// packet is what the slow path must know of a frame. Offsets are from the frame's first byte.
type packet struct {
	source, destination netip.Addr
	protocol            uint8
	l3, l4, end         int // IP header, what follows it, end of the packet as the IP header says
	id                  uint32
	offset              int // of a fragment, in bytes
	more                bool
}

func (p packet) is4() bool { return p.source.Is4() }

func (p packet) isFragment() bool { return p.more || p.offset != 0 }

// key names the datagram of a fragment.
func (p packet) key() mux.FragmentKey {
	return mux.FragmentKey{Source: p.source, Destination: p.destination, Protocol: p.protocol, ID: p.id}
}

// parse reads the IP header at l3 and what of IPv6 follows it. The packet may be cut, as a quoted one
// is: only its headers must be there.
func parse(frame []byte, l3 int) (packet, bool) {
	if l3 < 0 || l3 >= len(frame) {
		return packet{}, false
	}
	if frame[l3]>>4 == 4 {
		return parse4(frame, l3)
	}
	return parse6(frame, l3)
}

func parse4(frame []byte, l3 int) (packet, bool) {
	ip := frame[l3:]
	if len(ip) < 20 {
		return packet{}, false
	}
	header, total := int(ip[0]&15)*4, int(binary.BigEndian.Uint16(ip[2:]))
	if header < 20 || len(ip) < header || total < header {
		return packet{}, false
	}
	word := binary.BigEndian.Uint16(ip[6:])
	return packet{
		source: netip.AddrFrom4([4]byte(ip[12:])), destination: netip.AddrFrom4([4]byte(ip[16:])),
		protocol: ip[9], l3: l3, l4: l3 + header, end: l3 + total,
		id: uint32(binary.BigEndian.Uint16(ip[4:])), offset: int(word&0x1fff) * 8, more: word&0x2000 != 0,
	}, true
}

func parse6(frame []byte, l3 int) (packet, bool) {
	ip := frame[l3:]
	if len(ip) < 40 || ip[0]>>4 != 6 {
		return packet{}, false
	}
	p := packet{
		source: netip.AddrFrom16([16]byte(ip[8:])), destination: netip.AddrFrom16([16]byte(ip[24:])),
		protocol: ip[6], l3: l3, l4: l3 + 40, end: l3 + 40 + int(binary.BigEndian.Uint16(ip[4:])),
	}
	for range maxExtensions {
		if !isExtension(p.protocol) || p.offset != 0 {
			break
		}
		if p.l4+8 > len(frame) || p.l4 > l3+40+maxExtensionBytes {
			return packet{}, false
		}
		p.skip(frame[p.l4:])
	}
	return p, p.l4 <= len(frame)
}

func isExtension(protocol uint8) bool {
	return protocol == hopOptions || protocol == routing || protocol == fragment || protocol == options
}

// skip goes past an extension header of IPv6.
func (p *packet) skip(header []byte) {
	length := 8
	if p.protocol == fragment {
		word := binary.BigEndian.Uint16(header[2:])
		p.offset, p.more = int(word&0xfff8), word&1 != 0
		p.id = binary.BigEndian.Uint32(header[4:])
	} else {
		length += int(header[1]) * 8
	}
	p.protocol = header[0]
	p.l4 += length
}

// quotedFlow is the connection that an ICMP error is about, in the direction from the client.
func quotedFlow(frame []byte, l3 int) (model.Flow, bool) {
	outer, ok := parse(frame, l3)
	if !ok || outer.protocol != protoICMP && outer.protocol != protoICMPv6 {
		return model.Flow{}, false
	}
	q, ok := parse(frame, outer.l4+8)
	if !ok || q.offset != 0 || q.l4+4 > len(frame) || q.source != outer.destination {
		return model.Flow{}, false
	}
	protocol := model.Protocol(q.protocol)
	if protocol != model.TCP && protocol != model.UDP {
		return model.Flow{}, false
	}
	return model.Flow{
		Protocol:    protocol,
		Source:      netip.AddrPortFrom(q.destination, binary.BigEndian.Uint16(frame[q.l4+2:])),
		Destination: netip.AddrPortFrom(q.source, binary.BigEndian.Uint16(frame[q.l4:])),
	}, true
}
