package slowpath

import (
	"encoding/binary"
	"slices"
)

const (
	dontFragment  = 0x4000
	moreFragments = 0x2000
)

// split cuts the IPv4 packet of a frame into fragments of at most size bytes from the IP header on
// (RFC 791, section 3.2), each in a frame of its own. It gives none for what may or can not be cut.
func split(frame []byte, l3, size int) [][]byte {
	p, ok := parse(frame, l3)
	if !ok || !p.is4() || p.end > len(frame) {
		return nil
	}
	word := binary.BigEndian.Uint16(frame[l3+6:])
	header := slices.Clone(frame[:p.l4])
	later := slices.Concat(header[:l3], copiedOptions(header[l3:]))
	room := (size - (p.l4 - l3)) &^ 7 // options that are not copied make later headers shorter only
	if word&dontFragment != 0 || room < 8 {
		return nil
	}
	var parts [][]byte
	payload := frame[p.l4:p.end]
	for at := 0; at < len(payload); at += room {
		end := min(at+room, len(payload))
		head := header
		if at > 0 {
			head = later
		}
		part := append(slices.Clone(head), payload[at:end]...)
		offset := word&0x1fff + uint16(at/8)
		if end < len(payload) || word&moreFragments != 0 {
			offset |= moreFragments
		}
		ip := part[l3:]
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
		binary.BigEndian.PutUint16(ip[6:], offset)
		writeChecksum(ip[:len(head)-l3])
		parts = append(parts, part)
	}
	return parts
}

// copiedOptions is the header with only those options that every fragment must carry.
func copiedOptions(header []byte) []byte {
	kept := slices.Clone(header[:20])
	for rest := header[20:]; len(rest) > 0 && rest[0] != 0; {
		if rest[0] == 1 { // no operation
			rest = rest[1:]
			continue
		}
		if len(rest) < 2 || rest[1] < 2 || int(rest[1]) > len(rest) {
			break
		}
		if rest[0]&0x80 != 0 {
			kept = append(kept, rest[:rest[1]]...)
		}
		rest = rest[rest[1]:]
	}
	for len(kept)%4 != 0 {
		kept = append(kept, 0)
	}
	kept[0] = 0x40 | byte(len(kept)/4)
	return kept
}

// writeChecksum puts the header's checksum in its place.
func writeChecksum(header []byte) {
	header[10], header[11] = 0, 0
	sum := uint32(0)
	for i := 0; i < len(header); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(header[i:]))
	}
	for sum > 0xffff {
		sum = sum&0xffff + sum>>16
	}
	binary.BigEndian.PutUint16(header[10:], ^uint16(sum))
}
