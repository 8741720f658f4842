package multipath

import (
	"crypto/sha256"
	"encoding/binary"
	"net/netip"
)

// Token names a connection: all its further subflows bring it.
type Token uint32

// TokenOf is the token of a server's key (RFC 8684, section 3.2).
func TokenOf(key [8]byte) Token {
	sum := sha256.Sum256(key[:])
	return Token(binary.BigEndian.Uint32(sum[:]))
}

// Cells is how many cells tokens fall into.
const Cells = 256

// cellFactor spreads tokens over cells: 2^32 by the golden ratio.
const cellFactor = 0x9e3779b1

// Cell is the cell that a token falls into.
func (t Token) Cell() uint8 { return uint8(uint32(t) * cellFactor >> 24) }

// Homes are, by cell, the two hosts that know who has a token, the first to be asked first; zero: there is none.
type Homes [Cells][2]netip.Addr

// HomesOf chooses homes among hosts by rendezvous hashing: if the first home of a cell leaves, the second becomes the first, and
// if a host becomes the first, the one before becomes the second. The order of hosts does not matter.
func HomesOf(hosts []netip.Addr) *Homes {
	homes := &Homes{}
	seeds := make([]uint64, len(hosts))
	for i, host := range hosts {
		sum := sha256.Sum256(host.AsSlice())
		seeds[i] = binary.BigEndian.Uint64(sum[:])
	}
	for cell := range homes {
		var ranks [2]uint64
		for i, host := range hosts {
			rank := mix(seeds[i] + uint64(cell)*0x9e3779b97f4a7c15)
			switch {
			case !homes[cell][0].IsValid() || above(rank, host, ranks[0], homes[cell][0]):
				homes[cell][1], ranks[1] = homes[cell][0], ranks[0]
				homes[cell][0], ranks[0] = host, rank
			case !homes[cell][1].IsValid() || above(rank, host, ranks[1], homes[cell][1]):
				homes[cell][1], ranks[1] = host, rank
			}
		}
	}
	return homes
}

// above says whether a host ranks above another one, also where ranks are equal.
func above(rank uint64, host netip.Addr, other uint64, than netip.Addr) bool {
	return rank > other || rank == other && host.Compare(than) > 0
}

// mix is the finalizer of SplitMix64.
func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}
