package segment

import (
	"bytes"
	"encoding/binary"
	"net/netip"
	"slices"
)

// MAC is an Ethernet address.
type MAC = [6]byte

const (
	etherARP  = 0x0806
	etherIPv6 = 0x86dd

	ethernetLength = 14
	arpLength      = 28
	ipv6Length     = 40

	arpRequest = 1

	protocolICMPv6  = 58
	ndpHopLimit     = 255
	ndpSolicitation = 135
	ndpAdvertised   = 136
	ndpOverride     = 0x20
	ndpTargetMAC    = 2
	ndpLength       = 24 // of a message, without options
)

var (
	broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	allNodes  = netip.MustParseAddr("ff02::1")
)

// announcement says that mac has the address: an ARP announcement (RFC 5227, section 2.3), or an unsolicited neighbor
// advertisement (RFC 4861, section 7.2.6).
func announcement(address netip.Addr, mac MAC) []byte {
	if address.Is4() {
		return arp(mac, address, address)
	}
	return ndp(mac, address, allNodes, ndpAdvertised, ndpOverride, address, []byte{ndpTargetMAC, 1, mac[0], mac[1], mac[2], mac[3], mac[4], mac[5]})
}

// probe asks who has the address, and tells nobody of ours: an ARP probe (RFC 5227, section 2.1.1), or the solicitation of
// duplicate address detection (RFC 4862, section 5.4.2).
func probe(address netip.Addr, mac MAC) []byte {
	if address.Is4() {
		return arp(mac, netip.IPv4Unspecified(), address)
	}
	return ndp(mac, netip.IPv6Unspecified(), solicitedNode(address), ndpSolicitation, 0, address, nil)
}

// solicitedNode is the group that an address is asked for in (RFC 4291, section 2.7.1).
func solicitedNode(address netip.Addr) netip.Addr {
	group, is := netip.MustParseAddr("ff02::1:ff00:0").As16(), address.As16()
	copy(group[13:], is[13:])
	return netip.AddrFrom16(group)
}

func ethernet(to, from MAC, ethertype uint16) []byte {
	frame := slices.Concat(to[:], from[:])
	return binary.BigEndian.AppendUint16(frame, ethertype)
}

func arp(mac MAC, sender, target netip.Addr) []byte {
	frame := ethernet(broadcast, mac, etherARP)
	frame = append(frame, 0, 1, 8, 0, 6, 4, 0, arpRequest)
	frame = append(append(frame, mac[:]...), sender.AsSlice()...)
	return append(append(frame, make([]byte, 6)...), target.AsSlice()...)
}

func ndp(mac MAC, source, destination netip.Addr, kind, flags byte, target netip.Addr, option []byte) []byte {
	group := destination.As16()
	frame := ethernet(MAC{0x33, 0x33, group[12], group[13], group[14], group[15]}, mac, etherIPv6)
	frame = append(frame, 0x60, 0, 0, 0)
	frame = binary.BigEndian.AppendUint16(frame, uint16(ndpLength+len(option)))
	frame = append(frame, protocolICMPv6, ndpHopLimit)
	frame = append(append(frame, source.AsSlice()...), destination.AsSlice()...)
	message := append([]byte{kind, 0, 0, 0, flags, 0, 0, 0}, target.AsSlice()...)
	message = append(message, option...)
	sum := checksum(frame[ethernetLength+8:], []byte{0, 0, 0, byte(len(message)), 0, 0, 0, protocolICMPv6}, message)
	binary.BigEndian.PutUint16(message[2:], sum)
	return append(frame, message...)
}

// checksum is the Internet checksum (RFC 1071) of parts of even length.
func checksum(parts ...[]byte) uint16 {
	sum := uint32(0)
	for _, part := range parts {
		for i := 0; i+1 < len(part); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(part[i:]))
		}
	}
	for sum>>16 != 0 {
		sum = sum&0xffff + sum>>16
	}
	return ^uint16(sum)
}

// Claim is what a frame says: that a station has an address.
type Claim struct {
	Address netip.Addr
	MAC     MAC
}

// claimOf is what the frame says; false: it says nothing of that kind.
func claimOf(frame []byte) (Claim, bool) {
	if len(frame) < ethernetLength {
		return Claim{}, false
	}
	body := frame[ethernetLength:]
	switch binary.BigEndian.Uint16(frame[12:]) {
	case etherARP:
		if len(body) < arpLength || !bytes.Equal(body[:6], []byte{0, 1, 8, 0, 6, 4}) {
			return Claim{}, false
		}
		sender := netip.AddrFrom4([4]byte(body[14:18]))
		return Claim{sender, MAC(body[8:14])}, !sender.IsUnspecified()
	case etherIPv6:
		if len(body) < ipv6Length+ndpLength || body[6] != protocolICMPv6 || body[7] != ndpHopLimit ||
			body[ipv6Length] != ndpAdvertised || body[ipv6Length+1] != 0 {
			return Claim{}, false
		}
		return Claim{netip.AddrFrom16([16]byte(body[ipv6Length+8 : ipv6Length+24])), MAC(frame[6:12])}, true
	}
	return Claim{}, false
}
