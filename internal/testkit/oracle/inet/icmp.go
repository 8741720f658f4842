package inet

import (
	"bytes"
	"encoding/binary"
)

const networkControl = 0xc0 // RFC 1812, section 4.3.2.5

// FragmentationNeeded is RFC 792's message of type 3 and code 4, with RFC 1191's MTU, of no more than
// 576 bytes (RFC 1812, section 4.3.2.3).
func FragmentationNeeded(about []byte, mtu int) []byte {
	icmp := []byte{3, 4, 0, 0, 0, 0}
	icmp = binary.BigEndian.AppendUint16(icmp, uint16(mtu))
	icmp = append(icmp, about[:min(len(about), 576-20-8)]...)
	binary.BigEndian.PutUint16(icmp[2:], Checksum(icmp))

	ip := binary.BigEndian.AppendUint16([]byte{0x45, networkControl}, uint16(20+len(icmp)))
	ip = append(ip, 0, 0, 0, 0, answerTTL, 1, 0, 0)
	ip = append(ip, about[16:20]...)
	ip = append(ip, about[12:16]...)
	binary.BigEndian.PutUint16(ip[10:], Checksum(ip))
	return append(ip, icmp...)
}

// PacketTooBig is RFC 4443's message of type 2, of no more than 1280 bytes (section 3.2).
func PacketTooBig(about []byte, mtu int) []byte {
	icmp := []byte{2, 0, 0, 0}
	icmp = binary.BigEndian.AppendUint32(icmp, uint32(mtu))
	icmp = append(icmp, about[:min(len(about), 1280-40-8)]...)

	addresses := append(bytes.Clone(about[24:40]), about[8:24]...)
	pseudo := binary.BigEndian.AppendUint32(addresses[:32:32], uint32(len(icmp)))
	pseudo = append(pseudo, 0, 0, 0, 58)
	binary.BigEndian.PutUint16(icmp[2:], Checksum(pseudo, icmp))

	ip := binary.BigEndian.AppendUint32(nil, 6<<28|networkControl<<20)
	ip = binary.BigEndian.AppendUint16(ip, uint16(len(icmp)))
	ip = append(ip, 58, answerTTL)
	return append(append(ip, addresses...), icmp...)
}
