package inet

import (
	"bytes"
	"encoding/binary"
	"net/netip"
)

// Quote is the packet of TCP or UDP that an ICMP error quotes.
type Quote struct {
	Protocol uint8
	From, To netip.AddrPort
	at       int // of the ports
}

// ReadQuote reads as much as must be there: an IP header of the family, of IPv6 maybe that of a fragment, and
// ports right behind it.
func ReadQuote(b []byte, v4 bool) (q Quote, ok bool) {
	var from, to netip.Addr
	if v4 {
		if len(b) < 20 || b[0]>>4 != 4 || b[0]&15 < 5 || binary.BigEndian.Uint16(b[6:])&0x1fff != 0 {
			return q, false
		}
		q.at, q.Protocol = int(b[0]&15)*4, b[9]
		from, to = netip.AddrFrom4([4]byte(b[12:])), netip.AddrFrom4([4]byte(b[16:]))
	} else {
		if len(b) < 40 || b[0]>>4 != 6 {
			return q, false
		}
		q.at, q.Protocol = 40, b[6]
		from, to = netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:]))
		if fragment := b[40:]; q.Protocol == 44 { // a first one has the ports
			if len(fragment) < 8 || binary.BigEndian.Uint16(fragment[2:])&0xfff8 != 0 {
				return q, false
			}
			q.at, q.Protocol = 48, fragment[0]
		}
	}
	if q.Protocol != 6 && q.Protocol != 17 || len(b) < q.at+4 {
		return q, false
	}
	q.From = netip.AddrPortFrom(from, binary.BigEndian.Uint16(b[q.at:]))
	q.To = netip.AddrPortFrom(to, binary.BigEndian.Uint16(b[q.at+2:]))
	return q, true
}

// TranslateError is an IP packet that is an ICMP error behind header bytes, between other ends; what it quotes went the other
// way. Of what is quoted one port becomes another one: the destination's, or the source's. Its checksums are as right, or
// wrong, as they were.
func TranslateError(ip []byte, header int, q Quote, from, to netip.Addr, ofSource bool, port uint16, tos uint8) []byte {
	out, v4, addresses := bytes.Clone(ip), ip[0]>>4 == 4, 8
	if v4 {
		addresses = 12
	}
	size := len(from.AsSlice())
	icmp := out[header:]
	quoted := icmp[8:]
	copy(out[addresses:], append(from.AsSlice(), to.AsSlice()...))
	copy(quoted[addresses:], append(to.AsSlice(), from.AsSlice()...))
	at := q.at + 2
	if ofSource {
		at = q.at
	}
	binary.BigEndian.PutUint16(quoted[at:], port)
	if !v4 {
		out[0], out[1] = out[0]&0xf0|tos>>4, out[1]&0x0f|tos<<4
		was := append(bytes.Clone(ip[8:8+2*size]), ip[header:]...)
		is := append(bytes.Clone(out[8:8+2*size]), icmp...)
		binary.BigEndian.PutUint16(icmp[2:], Rechecked(was, is, 2*size+2))
		return out
	}
	out[1] = tos
	binary.BigEndian.PutUint16(out[10:], Rechecked(ip[:header], out[:header], 10))
	binary.BigEndian.PutUint16(quoted[10:], Rechecked(ip[header+8:header+8+q.at], quoted[:q.at], 10))
	binary.BigEndian.PutUint16(icmp[2:], Rechecked(ip[header:], icmp, 2))
	return out
}
