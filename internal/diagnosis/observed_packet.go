package diagnosis

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Protocols, and the headers of IPv6 before them.
const (
	protocolHopByHop    = 0
	protocolICMP        = 1
	protocolTCP         = 6
	protocolUDP         = 17
	protocolRouting     = 43
	protocolFragment    = 44
	protocolICMPv6      = 58
	protocolDestination = 60
)

// observe reads what is told of a packet of a mux, and the flow that it is of. What is cut short, or is none of IP, is told
// as far as it goes.
func observe(mux string, p *weirv1.CapturedPacket) (*weirv1.ObservedPacket, seenFlow) {
	o := &weirv1.ObservedPacket{Time: p.GetTime(), Mux: mux, Verdict: p.GetVerdict(), Length: p.GetLength(), Comment: p.GetComment()}
	h := readHeaders(p.GetFrame())
	if !h.source.IsValid() {
		return o, seenFlow{mux: mux}
	}
	o.Protocol = protocolName(h.protocol)
	o.SourceAddress, o.SourcePort = h.source.String(), uint32(h.sourcePort)
	o.DestinationAddress, o.DestinationPort = h.destination.String(), uint32(h.destinationPort)
	if h.protocol == protocolTCP {
		o.TcpFlags = flagNames(h.flags)
	}
	return o, seenFlow{
		mux: mux, protocol: h.protocol,
		source: netip.AddrPortFrom(h.source, h.sourcePort), destination: netip.AddrPortFrom(h.destination, h.destinationPort),
	}
}

func protocolName(n uint8) string {
	switch n {
	case protocolTCP:
		return "TCP"
	case protocolUDP:
		return "UDP"
	case protocolICMP, protocolICMPv6:
		return "ICMP"
	}
	return strconv.Itoa(int(n))
}

// flagNames are the flags of TCP, from the lowest bit on.
func flagNames(flags uint8) string {
	var names []string
	for i, name := range []string{"FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"} {
		if flags>>i&1 == 1 {
			names = append(names, name)
		}
	}
	return strings.Join(names, ",")
}

// headers are those of a frame; without an address it is none of IP.
type headers struct {
	source, destination         netip.Addr
	protocol                    uint8
	sourcePort, destinationPort uint16
	flags                       uint8
}

// readHeaders reads the outermost headers of an Ethernet frame.
func readHeaders(frame []byte) (h headers) {
	const (
		ethernet = 12 // two addresses
		vlans    = 2
	)
	if len(frame) < ethernet {
		return h
	}
	frame = frame[ethernet:]
	for range vlans + 1 {
		if len(frame) < 4 {
			return h
		}
		switch binary.BigEndian.Uint16(frame) {
		case 0x8100, 0x88a8:
			frame = frame[4:]
			continue
		case 0x0800:
			return readV4(frame[2:])
		case 0x86dd:
			return readV6(frame[2:])
		}
		return h
	}
	return h
}

func readV4(b []byte) (h headers) {
	const fixed = 20
	if len(b) < fixed || b[0]>>4 != 4 {
		return h
	}
	h.source, h.destination, h.protocol = netip.AddrFrom4([4]byte(b[12:16])), netip.AddrFrom4([4]byte(b[16:20])), b[9]
	length := int(b[0]&15) * 4
	if length < fixed || length > len(b) || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
		return h // a later fragment has no ports
	}
	h.readPorts(b[length:])
	return h
}

func readV6(b []byte) (h headers) {
	const (
		fixed = 40
		most  = 8 // headers before the transport's
	)
	if len(b) < fixed || b[0]>>4 != 6 {
		return h
	}
	h.source, h.destination, h.protocol = netip.AddrFrom16([16]byte(b[8:24])), netip.AddrFrom16([16]byte(b[24:40])), b[6]
	b = b[fixed:]
	for range most {
		var length int
		switch h.protocol {
		case protocolHopByHop, protocolRouting, protocolDestination:
			if len(b) < 2 {
				return h
			}
			length = 8 * (int(b[1]) + 1)
		case protocolFragment:
			if len(b) < 8 {
				return h
			}
			if binary.BigEndian.Uint16(b[2:])>>3 != 0 {
				h.protocol = b[0]
				return h
			}
			length = 8
		default:
			h.readPorts(b)
			return h
		}
		if len(b) < length {
			return h
		}
		h.protocol, b = b[0], b[length:]
	}
	return h
}

// readPorts reads what TCP and UDP have alike, and the flags of TCP.
func (h *headers) readPorts(b []byte) {
	if h.protocol != protocolTCP && h.protocol != protocolUDP || len(b) < 4 {
		return
	}
	h.sourcePort, h.destinationPort = binary.BigEndian.Uint16(b), binary.BigEndian.Uint16(b[2:])
	if h.protocol == protocolTCP && len(b) > 13 {
		h.flags = b[13]
	}
}
