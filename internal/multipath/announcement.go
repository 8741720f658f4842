package multipath

import (
	"net/netip"
	"slices"
)

// Options of TCP, and of Multipath TCP, by kind and subtype.
const (
	optionEnd, optionPadding, optionMultipath = 0, 1, 30
	subtypeAddAddress                         = 3
	echoed                                    = 1 // of an announcement of the other end: none of one's own
	shortestAnnouncement, shortestOfIPv6      = 8, 20
	announcedAt                               = 4 // where the address stands in the option
)

// withHMAC are lengths of announcements with a HMAC, as version 1 has them: of an address of either family, and a port or none.
var withHMAC = []int{16, 18, 28, 30}

// RemoveAnnouncements is a workload's TCP options as a client gets them: what announces another address than the VIP has neither
// address nor HMAC, and is refused; without a HMAC it is padding. An option that contradicts itself ends them, as it does for
// receivers.
func RemoveAnnouncements(options []byte, vip netip.Addr) []byte {
	out := slices.Clone(options)
	for rest := out; len(rest) > 1 && rest[0] != optionEnd; {
		size := 1
		if rest[0] != optionPadding {
			size = int(rest[1])
		}
		if size == 0 || size > len(rest) || size < 2 && rest[0] != optionPadding {
			break
		}
		if option := rest[:size]; announces(option) && announced(option) != vip {
			remove(option)
		}
		rest = rest[size:]
	}
	return out
}

// remove has an announcement name nothing. A client's first segment must go on being one of Multipath TCP.
func remove(option []byte) {
	if slices.Contains(withHMAC, len(option)) {
		clear(option[announcedAt:])
		return
	}
	for i := range option {
		option[i] = optionPadding
	}
}

func announces(option []byte) bool {
	return option[0] == optionMultipath && len(option) >= shortestAnnouncement && option[2]>>4 == subtypeAddAddress && option[2]&echoed == 0
}

// announced is the address in an announcement.
func announced(option []byte) netip.Addr {
	length := 4
	if len(option) >= shortestOfIPv6 {
		length = 16
	}
	address, _ := netip.AddrFromSlice(option[announcedAt : announcedAt+length])
	return address.Unmap() // as the programs have addresses
}
