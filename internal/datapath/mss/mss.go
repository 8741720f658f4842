// Package mss chooses the maximum segment size that SYNs of a VIP announce to clients, whose segments a mux encapsulates.
package mss

const (
	v4Header, v6Header, tcpHeader = 20, 40, 20

	timestamps = 12 // bytes that nearly every segment has fewer of payload than the MSS says

	// Below these nothing is given up for whole buffers: a path's least (RFC 9293, section 3.7.1; RFC 8200).
	least4, least6 = 536, 1220

	maxPacket = 1<<16 - 1
)

// Programs that move bulk data write it in such blocks: iperf3, and proxies and file servers that copy by twos of 64 KiB.
const block = 128 << 10

// buffers are how many bytes of payload a Linux sender puts into one buffer at most: 64 KiB less MAX_TCP_HEADER and one,
// of kernels with WLAN or Hyper-V (those of distributions), with tunnels alone, with none of them.
var buffers = [...]int{65215, 65279, 65343}

// For is an MSS of which a full segment makes a packet of at most room bytes; 0: there is no room for any.
//
// It is the largest, or up to a sixteenth less for a sender's sake (GSO, sk_gso_max_size). A buffer holds whole segments alone. If two buffers leave more
// than a segment of a block, that goes as a small buffer of its own, which costs both ends as much as a large one: with
// an MTU of 1500, 1372 bytes a segment instead of 1358 cost one connection of iperf3 a third of its throughput.
func For(room int, v6 bool) int {
	headers, least := v4Header+tcpHeader, least4
	if v6 {
		headers, least = v6Header+tcpHeader, least6
	}
	most := min(room, maxPacket) - headers
	for mss := most; mss >= max(least, most-most/16); mss-- {
		if fillsBuffers(mss - timestamps) {
			return mss
		}
	}
	return max(most, 0)
}

// fewBytes are so few that a sender which has only these left is as slow as with a small buffer: 1 and 7 are, 50 are not.
const fewBytes = 32

// fillsBuffers says whether what two buffers leave of a block is less than a segment of so many bytes, and what they leave of
// two blocks is not one segment and few bytes: those would be left for long, for each pair of blocks adds as few.
func fillsBuffers(segment int) bool {
	for _, b := range buffers {
		whole := b / segment * segment
		if whole == 0 || block%whole >= segment {
			return false
		}
		if left := 2*(block%whole) - segment; left >= 0 && left < fewBytes {
			return false
		}
	}
	return true
}
