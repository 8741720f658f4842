package inet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// ARPReply answers the request in a frame (RFC 826).
func ARPReply(frame []byte, mac [6]byte) []byte {
	out := append(bytes.Clone(frame[6:12]), mac[:]...)
	out = append(append(out, frame[12:20]...), 0, 2)
	out = append(append(out, mac[:]...), frame[38:42]...)
	out = append(out, frame[22:32]...)
	return append(out, frame[42:]...)
}

// Advertisement answers a neighbor solicitation for a target (RFC 4861, section 4.4).
func Advertisement(frame []byte, target netip.Addr, mac [6]byte) []byte {
	to, flags := netip.AddrFrom16([16]byte(frame[22:])), byte(0x60)
	if to.IsUnspecified() {
		to, flags = netip.MustParseAddr("ff02::1"), 0x20
	}
	body := append([]byte{136, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	body = append(append(body, 2, 1), mac[:]...)
	header := append([]byte{0x60, 0, 0, 0, 0, 32, 58, 255}, target.AsSlice()...)
	header = append(header, to.AsSlice()...)
	binary.BigEndian.PutUint16(body[2:], Checksum(header[8:], []byte{0, 0, 0, 32, 0, 0, 0, 58}, body))
	out := append(bytes.Clone(frame[6:12]), mac[:]...)
	out = append(append(append(out, 0x86, 0xdd), header...), body...)
	return out
}
