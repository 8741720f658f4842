package matrix

import (
	"cmp"
	"encoding/binary"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
)

// MaxPrefixes bounds the prefixes of racks that agents are told. Those beyond are taken for outside.
const MaxPrefixes = 1 << 14

// Racks are the prefixes of racks. They are read only; the zero value has none.
type Racks struct {
	version  uint64
	prefixes map[netip.Prefix]bool
	lengths  []int // of prefixes, the longest first
}

// NewRacks makes Racks of their prefixes, in any order.
func NewRacks(prefixes []netip.Prefix) Racks {
	sorted := slices.Clone(prefixes)
	for i, p := range sorted {
		sorted[i] = p.Masked()
	}
	slices.SortFunc(sorted, comparePrefix)
	sorted = slices.Compact(sorted)
	sorted = sorted[:min(len(sorted), MaxPrefixes)]
	r := Racks{prefixes: make(map[netip.Prefix]bool, len(sorted))}
	if len(sorted) == 0 {
		return r
	}
	hash, lengths := fnv.New64a(), map[int]bool{}
	for _, p := range sorted {
		r.prefixes[p], lengths[p.Bits()] = true, true
		address := p.Addr().As16()
		hash.Write(binary.BigEndian.AppendUint16(address[:], uint16(p.Bits()))) // it never fails
	}
	r.version = hash.Sum64()
	r.lengths = slices.SortedFunc(maps.Keys(lengths), func(a, b int) int { return cmp.Compare(b, a) })
	return r
}

// Version tells Racks with other prefixes apart; 0: there are none.
func (r Racks) Version() uint64 { return r.version }

// Prefixes are all, in order.
func (r Racks) Prefixes() []netip.Prefix {
	return slices.SortedFunc(maps.Keys(r.prefixes), comparePrefix)
}

// Has says whether a prefix is one of a rack's.
func (r Racks) Has(p netip.Prefix) bool { return r.prefixes[p] }

// Of is the longest prefix with the address; the zero value: it is outside.
func (r Racks) Of(a netip.Addr) netip.Prefix {
	for _, bits := range r.lengths {
		if p, err := a.Prefix(bits); err == nil && r.prefixes[p] { // else it is too long for the family
			return p
		}
	}
	return netip.Prefix{}
}

func comparePrefix(a, b netip.Prefix) int {
	return cmp.Or(a.Addr().Compare(b.Addr()), cmp.Compare(a.Bits(), b.Bits()))
}
