package inet

import (
	"bytes"
	"encoding/binary"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// VXLAN is a frame of a virtual network in IP, UDP and VXLAN. Over IPv6 UDP's checksum, if there is to be one, is
// right if that inside is.
func VXLAN(hash uint64, tos uint8, f model.Flow, inside []byte, from, to netip.Addr, checked bool) []byte {
	udp := binary.BigEndian.AppendUint16(nil, 49152+uint16(hash>>32%16384))
	udp = binary.BigEndian.AppendUint16(udp, 4789)
	udp = binary.BigEndian.AppendUint16(udp, uint16(16+len(inside)))
	udp = append(udp, 0, 0, 8, 0, 0, 0)
	udp = binary.BigEndian.AppendUint32(udp, f.VNI<<8)
	if to.Is6() && checked {
		sum := Checksum(PseudoUDP(from, to, 16+len(inside)), append(bytes.Clone(udp), rightInside(f, inside)...))
		if sum == 0 {
			sum = 0xffff // 0 says that there is none
		}
		binary.BigEndian.PutUint16(udp[6:], sum)
	}
	udp = append(udp, inside...)
	header := Header{Source: from, Destination: to, TOS: tos, Protocol: 17, Length: len(udp), Label: uint32(hash)}
	return append(header.Bytes(), udp...)
}

// rightInside is the frame with the checksum that its segment should have.
func rightInside(f model.Flow, inside []byte) []byte {
	inside = bytes.Clone(inside)
	segment := inside[14+FixedHeader(f.Source.Addr().Is4()):]
	segment[16], segment[17] = 0, 0
	sum := Checksum(Pseudo(f.Source.Addr(), f.Destination.Addr(), len(segment)), segment)
	binary.BigEndian.PutUint16(segment[16:], sum)
	return inside
}
