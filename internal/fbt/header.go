package fbt

import "encoding/binary"

// HeaderProtocol is the number of the bypass header, which says what the option does of packets that can't have one: see
// bpf/abi/shared/bypass_header.h. Its length is Length.
const HeaderProtocol = 253

const headerWords = 1 // of 8 bytes, without the first

// EncodeHeader returns the header before what is of a protocol, under a key of the host that receives it.
func EncodeHeader(key Key, next uint8, s Segment, c Content) (header [Length]byte) {
	option := Encode(key, s, c) // for all but its first bytes and the MAC
	header[0], header[1] = next, headerWords
	binary.BigEndian.PutUint16(header[2:], s.Client.Port())
	binary.BigEndian.PutUint16(header[4:], s.VIP.Port())
	copy(header[7:], option[7:macOffset])
	binary.LittleEndian.PutUint32(header[macOffset:], mac(key, headerOption(header, c.VNI), s))
	return header
}

// headerOption is the option that says the same in a network, whose MAC the header has.
func headerOption(header [Length]byte, vni uint32) (option [Length]byte) {
	option = header
	binary.BigEndian.PutUint16(option[2:], exID)
	option[4], option[5], option[6] = byte(vni>>16), byte(vni>>8), byte(vni)
	return option
}

// CheckHeader reads a header that one of keys made for the packet, in a network.
func CheckHeader(keys []Key, vni uint32, s Segment, header [Length]byte) (Content, error) {
	if header[1] != headerWords || header[6] != 0 {
		return Content{}, ErrNone
	}
	c, err := Decode(readable(headerOption(header, vni)))
	if err != nil {
		return Content{}, err
	}
	return c, checkMAC(keys, s, headerOption(header, vni))
}

// readable has the option's own kind and length.
func readable(option [Length]byte) [Length]byte {
	option[0], option[1] = Kind, Length
	return option
}
