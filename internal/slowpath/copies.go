package slowpath

import (
	"encoding/binary"
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/weirlb/weir/internal/datapath/mux"
)

// Bounds of copies of ICMP errors.
const (
	copiesPerSecond = 10000
	copiesAtOnce    = 8192 // enough for one error at the largest endpoint
)

// ownCopiesPerSecond is the rate that each VIP has of its own, beside the shared one.
const ownCopiesPerSecond = copiesPerSecond / 50

// copies limits the rate of copies of ICMP errors: by a bucket of all VIPs, and by one of each VIP when that is empty.
// The zero value is full.
type copies struct {
	all bucket
	own map[netip.Addr]*bucket
}

// take takes n tokens for the VIP, if there are that many.
func (c *copies) take(vip netip.Addr, n int, now time.Time) bool {
	if c.all.take(n, copiesAtOnce, copiesPerSecond, now) {
		return true
	}
	maps.DeleteFunc(c.own, func(_ netip.Addr, b *bucket) bool { return b.full.Before(now) })
	if c.own == nil {
		c.own = map[netip.Addr]*bucket{}
	}
	if c.own[vip] == nil {
		c.own[vip] = &bucket{}
	}
	return c.own[vip].take(n, n, ownCopiesPerSecond, now)
}

// bucket is a token bucket. The zero value is full.
type bucket struct {
	full time.Time // when it will be
}

// take takes n tokens, if there are that many, of a bucket of size most that is refilled at rate per second.
func (b *bucket) take(n, most, rate int, now time.Time) bool {
	each := time.Second / time.Duration(rate)
	from := b.full
	if from.Before(now) {
		from = now
	}
	next := from.Add(time.Duration(n) * each)
	if next.Sub(now) > time.Duration(most)*each {
		return false
	}
	b.full = next
	return true
}

// outerTTL is that of every outer header.
const outerTTL = 64

// encapsulate puts the packet of a frame into an outer IP header (RFC 2003, RFC 2473) to the tunnel
// and addresses the frame to its next hop. VLAN tags stay.
func encapsulate(frame []byte, l3 int, way mux.BackendRoute) []byte {
	p, ok := parse(frame, l3)
	if !ok || p.end > len(frame) {
		return nil
	}
	inner := frame[l3:p.end]
	out := append(slices.Clone(way.Hop.Destination[:]), way.Hop.Source[:]...)
	out = append(out, frame[12:l3]...)
	protocol := byte(protoIPv6)
	if p.is4() {
		protocol = protoIPv4
	}
	if way.Tunnel.Is4() {
		binary.BigEndian.PutUint16(out[l3-2:], 0x0800)
		out = append(out, outer4(way.Source, way.Tunnel, protocol, tos(inner), len(inner))...)
	} else {
		binary.BigEndian.PutUint16(out[l3-2:], 0x86dd)
		out = append(out, outer6(way.Source, way.Tunnel, protocol, tos(inner), len(inner))...)
	}
	return append(out, inner...)
}

func tos(ip []byte) byte {
	if ip[0]>>4 == 4 {
		return ip[1]
	}
	return ip[0]<<4 | ip[1]>>4
}

func outer4(source, destination netip.Addr, protocol, tos byte, length int) []byte {
	from, to := source.As4(), destination.As4()
	ip := make([]byte, 20)
	ip[0], ip[1], ip[8], ip[9] = 0x45, tos, outerTTL, protocol
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+length))
	binary.BigEndian.PutUint16(ip[6:], dontFragment)
	copy(ip[12:], from[:])
	copy(ip[16:], to[:])
	writeChecksum(ip)
	return ip
}

func outer6(source, destination netip.Addr, protocol, tos byte, length int) []byte {
	from, to := source.As16(), destination.As16()
	ip := make([]byte, 40)
	ip[0], ip[1], ip[6], ip[7] = 0x60|tos>>4, tos<<4, protocol, outerTTL
	binary.BigEndian.PutUint16(ip[4:], uint16(length))
	copy(ip[8:], from[:])
	copy(ip[24:], to[:])
	return ip
}
