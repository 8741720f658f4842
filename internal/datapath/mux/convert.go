package mux

import (
	"encoding/binary"
	"math/bits"
	"net/netip"

	"github.com/weirlb/weir/internal/datapath/abi"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// The layout of endpoint.slices.
const (
	bucketBitsShift   = muxEndpointLayoutENDPOINT_BUCKET_BITS_SHIFT
	firstBackendShift = muxEndpointLayoutENDPOINT_FIRST_BACKEND_SHIFT
	slotBitsShift     = muxEndpointLayoutENDPOINT_SLOT_BITS_SHIFT
	noBuckets         = int(muxEndpointLayoutENDPOINT_NO_BUCKETS)
)

const rowBuckets = len(muxBucketRow{}.Slots)

func toAddress(a netip.Addr) muxAddress { return muxAddress{Words: abi.Words(a)} }

func fromAddress(a muxAddress) netip.Addr { return abi.Address(a.Words) }

func toKey(k model.EndpointKey) muxEndpointKey {
	return muxEndpointKey{Vip: toAddress(k.VIP), Port: abi.Port(k.Port), Protocol: uint8(k.Protocol)}
}

func fromKey(k muxEndpointKey) model.EndpointKey {
	return model.EndpointKey{
		VIP: fromAddress(k.Vip), Port: abi.Port(k.Port), Protocol: model.Protocol(k.Protocol),
	}
}

// slicePair is what endpoint.slices packs. bucketBits is noBuckets for an endpoint that drops.
type slicePair struct {
	firstBucketRow uint32
	bucketBits     int
	backends       span
}

func (p slicePair) pack() uint64 {
	return uint64(p.firstBucketRow) | uint64(p.bucketBits)<<bucketBitsShift |
		uint64(p.backends.first)<<firstBackendShift | uint64(p.backends.bits)<<slotBitsShift
}

func unpackSlices(word uint64) slicePair {
	return slicePair{
		firstBucketRow: uint32(word & (1<<bucketBitsShift - 1)),
		bucketBits:     int(word>>bucketBitsShift) & noBuckets,
		backends: span{
			first: uint32(word >> firstBackendShift & (1<<(slotBitsShift-firstBackendShift) - 1)),
			bits:  int(word >> slotBitsShift),
		},
	}
}

// bucketSpan is the rows that hold the buckets and, if there are any, behind them as many that hold
// the previous ones; false when there are none.
func (p slicePair) bucketSpan(previous bool) (span, bool) {
	if p.bucketBits == noBuckets {
		return span{}, false
	}
	bits := max(0, p.bucketBits-bits.Len(uint(rowBuckets-1)))
	if previous {
		bits++
	}
	return span{p.firstBucketRow, bits}, true
}

func toNextHop(h model.NextHop) muxNextHop {
	var bytes [12]byte
	copy(bytes[0:], h.Destination[:])
	copy(bytes[6:], h.Source[:])
	var out muxNextHop
	for i := range out.Macs {
		out.Macs[i] = binary.LittleEndian.Uint32(bytes[4*i:])
	}
	return out
}

func fromNextHop(h muxNextHop) (out model.NextHop) {
	var bytes [12]byte
	for i, word := range h.Macs {
		binary.LittleEndian.PutUint32(bytes[4*i:], word)
	}
	copy(out.Destination[:], bytes[0:])
	copy(out.Source[:], bytes[6:])
	return out
}

func toHashKey(key flowhash.Key) (out muxFlowhashKey) {
	for i := range out.Words {
		out.Words[i] = binary.LittleEndian.Uint32(key[4*i:])
	}
	return out
}

func fromHashKey(key muxFlowhashKey) (out flowhash.Key) {
	for i, word := range key.Words {
		binary.LittleEndian.PutUint32(out[4*i:], word)
	}
	return out
}

// toSpread is the first address of the prefix, and the bits that may differ in it.
func toSpread(p netip.Prefix) (first, spread muxAddress) {
	p = p.Masked()
	first = toAddress(p.Addr())
	ones := p.Bits()
	if p.Addr().Is4() {
		ones += 96
	}
	var mask [16]byte
	for i := ones; i < 128; i++ {
		mask[i/8] |= 0x80 >> (i % 8)
	}
	return first, toAddress(netip.AddrFrom16(mask))
}

func fromSpread(first, spread muxAddress) netip.Prefix {
	host := 0
	for _, word := range spread.Words {
		host += bits.OnesCount32(word)
	}
	addr := fromAddress(first)
	return netip.PrefixFrom(addr, addr.BitLen()-host)
}
