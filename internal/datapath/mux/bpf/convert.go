package bpf

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/datapath/mux/alloc"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// The layout of endpoint.slices.
const (
	bucketBitsShift   = MuxEndpointLayoutENDPOINT_BUCKET_BITS_SHIFT
	firstBackendShift = MuxEndpointLayoutENDPOINT_FIRST_BACKEND_SHIFT
	slotBitsShift     = MuxEndpointLayoutENDPOINT_SLOT_BITS_SHIFT
	NoBuckets         = int(MuxEndpointLayoutENDPOINT_NO_BUCKETS)
)

// Bounds of the tables, so that endpoint.slices has bits for every row.
const (
	MostBucketRows = 1 << bucketBitsShift
	MostBackends   = 1 << (slotBitsShift - firstBackendShift)
)

// What one row holds.
const (
	RowBuckets    = len(MuxBucketRow{}.Slots)
	IndexPerRow   = len(MuxEndpointIndexRow{}.Ids)
	SNATRowRanges = len(MuxSnatRow{}.Owners)
)

// SNATRanges are those of a VIP.
const SNATRanges = 1 << 16 / model.RangePorts

// SourceSetRows is how many rows of source_sets there are for each endpoint: two, and two more while they change.
const SourceSetRows = 4

// ToAddress is the address as tables have it.
func ToAddress(a netip.Addr) MuxAddress { return MuxAddress{Words: abi.Words(a)} }

// FromAddress is what ToAddress wrote.
func FromAddress(a MuxAddress) netip.Addr { return abi.Address(a.Words) }

// ToKey is the key of the endpoint's row.
func ToKey(k model.EndpointKey) MuxEndpointKey {
	return MuxEndpointKey{Vip: ToAddress(k.VIP), Port: abi.Port(k.Port), Protocol: uint8(k.Protocol)}
}

// FromKey is what ToKey wrote.
func FromKey(k MuxEndpointKey) model.EndpointKey {
	return model.EndpointKey{
		VIP: FromAddress(k.Vip), Port: abi.Port(k.Port), Protocol: model.Protocol(k.Protocol),
	}
}

// SlicePair is what endpoint.slices packs. BucketBits is NoBuckets for an endpoint that drops.
type SlicePair struct {
	FirstBucketRow uint32
	BucketBits     int
	Backends       alloc.Span
}

// Pack is the pair as one word, so that packets see all of it or nothing.
func (p SlicePair) Pack() uint64 {
	return uint64(p.FirstBucketRow) | uint64(p.BucketBits)<<bucketBitsShift |
		uint64(p.Backends.First)<<firstBackendShift | uint64(p.Backends.Bits)<<slotBitsShift
}

// UnpackSlices is what Pack wrote.
func UnpackSlices(word uint64) SlicePair {
	return SlicePair{
		FirstBucketRow: uint32(word & (1<<bucketBitsShift - 1)),
		BucketBits:     int(word>>bucketBitsShift) & NoBuckets,
		Backends: alloc.Span{
			First: uint32(word >> firstBackendShift & (1<<(slotBitsShift-firstBackendShift) - 1)),
			Bits:  int(word >> slotBitsShift),
		},
	}
}

// BucketSpan is the rows that hold the buckets and, if there are any, behind them as many that hold
// the previous ones; false when there are none.
func (p SlicePair) BucketSpan(previous bool) (alloc.Span, bool) {
	if p.BucketBits == NoBuckets {
		return alloc.Span{}, false
	}
	bits := max(0, p.BucketBits-bits.Len(uint(RowBuckets-1)))
	if previous {
		bits++
	}
	return alloc.Span{First: p.FirstBucketRow, Bits: bits}, true
}

// ToNextHop is the row of next_hops.
func ToNextHop(h model.NextHop) MuxNextHop {
	var bytes [12]byte
	copy(bytes[0:], h.Destination[:])
	copy(bytes[6:], h.Source[:])
	var out MuxNextHop
	for i := range out.Macs {
		out.Macs[i] = binary.LittleEndian.Uint32(bytes[4*i:])
	}
	return out
}

// FromNextHop is what ToNextHop wrote.
func FromNextHop(h MuxNextHop) (out model.NextHop) {
	var bytes [12]byte
	for i, word := range h.Macs {
		binary.LittleEndian.PutUint32(bytes[4*i:], word)
	}
	copy(out.Destination[:], bytes[0:])
	copy(out.Source[:], bytes[6:])
	return out
}

// ToHashKey is the key as the program hashes by it.
func ToHashKey(key flowhash.Key) (out MuxFlowhashKey) {
	for i := range out.Words {
		out.Words[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	return out
}

// FromHashKey is what ToHashKey wrote.
func FromHashKey(key MuxFlowhashKey) (out flowhash.Key) {
	for i, word := range key.Words {
		binary.LittleEndian.PutUint32(out[4*i:], word)
	}
	return out
}

// ToSpread is the first address of the prefix, and the bits that may differ in it.
func ToSpread(p netip.Prefix) (first, spread MuxAddress) {
	p = p.Masked()
	first = ToAddress(p.Addr())
	ones := p.Bits()
	if p.Addr().Is4() {
		ones += 96
	}
	var mask [16]byte
	for i := ones; i < 128; i++ {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return first, ToAddress(netip.AddrFrom16(mask))
}

// FromSpread is what ToSpread wrote.
func FromSpread(first, spread MuxAddress) netip.Prefix {
	host := 0
	for _, word := range spread.Words {
		host += bits.OnesCount32(word)
	}
	addr := FromAddress(first)
	return netip.PrefixFrom(addr, addr.BitLen()-host)
}

// BackendFlags are those of the backend's row.
func BackendFlags(b model.MuxBackend) MuxBackendFlag {
	flags := MuxBackendFlagBACKEND_VALID
	if b.Tunnel.Is4() {
		flags |= MuxBackendFlagBACKEND_V4
	}
	if b.Down {
		flags |= MuxBackendFlagBACKEND_DOWN
	}
	return flags | MuxBackendFlag(b.Host)<<MuxBackendFlagBACKEND_HOST_SHIFT
}
