package snat

import (
	"hash/fnv"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// Digest sums up which ranges of a VIP lead to a tunnel. That of several workloads, or of several VIPs, is the
// exclusive or of theirs, in any order; of nothing it is 0. Muxes and hosts compute it of what stands in their
// tables, the manager of what should.
func Digest(vip, tunnel netip.Addr, ranges ...model.Range) uint64 {
	h := fnv.New64a()
	for _, a := range []netip.Addr{vip, tunnel} {
		b := a.As16()
		h.Write(b[:])
	}
	return sumRanges(h.Sum64(), ranges)
}

// sumRanges sums up ranges, and nothing to 0, in a way of its own for each base.
func sumRanges(base uint64, ranges []model.Range) (sum uint64) {
	for _, r := range ranges {
		sum ^= mix(base + uint64(r)*0x9e3779b97f4a7c15)
	}
	return sum
}

// mix is the finisher of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
