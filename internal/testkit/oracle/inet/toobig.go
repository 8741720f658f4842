package inet

import (
	"bytes"
	"encoding/binary"
)

// TooBig is the ICMP packet that tells a packet's sender what would fit, in its destination's name. Of TCP's or UDP's checksum,
// which may be yet to be filled in, it quotes one that stays what it is when it is. Front bytes stand before the transport's
// header: of an extension header.
func TooBig(ip []byte, protocol uint8, front, room int) []byte {
	v4 := ip[0]>>4 == 4
	from, to := ip[12:16], ip[16:20]
	if !v4 {
		from, to = ip[8:24], ip[24:40]
	}
	quote := bytes.Clone(ip[:FixedHeader(v4)+20])
	transport := quote[len(quote)-20:]
	at := map[uint8]int{6: 16, 17: 6}[protocol] + front
	transport[at], transport[at+1] = 0, 0
	half := Checksum(transport)
	binary.BigEndian.PutUint16(transport[at:], half>>1|half<<15)
	icmp := []byte{3, 4, 0, 0}
	if !v4 {
		icmp[0], icmp[1] = 2, 0
	}
	icmp = binary.BigEndian.AppendUint32(icmp, uint32(room))
	var header []byte
	if v4 {
		header = []byte{0x45, 0, 0, byte(20 + 8 + len(quote)), 0, 0, 0, 0, 64, 1, 0, 0}
		header = append(append(header, to...), from...)
		binary.BigEndian.PutUint16(header[10:], Checksum(header))
		binary.BigEndian.PutUint16(icmp[2:], Checksum(icmp, transport)) // a right header sums up to nothing
	} else {
		header = []byte{0x60, 0, 0, 0, 0, byte(8 + len(quote)), 58, 64}
		header = append(append(header, to...), from...)
		pseudo := append(bytes.Clone(header[8:]), 0, 0, 0, header[5], 0, 0, 0, 58)
		binary.BigEndian.PutUint16(icmp[2:], Checksum(pseudo, icmp, quote))
	}
	return append(append(header, icmp...), quote...)
}
