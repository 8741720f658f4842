package fabric

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
)

// rackIndex finds the rack of an address by longest prefix.
type rackIndex struct {
	racks   map[netip.Prefix]int32
	lengths []int // of prefixes, the longest first
}

func newRackIndex(racks []Rack) (rackIndex, error) {
	x := rackIndex{racks: map[netip.Prefix]int32{}}
	lengths := map[int]bool{}
	for i, r := range racks {
		for _, p := range r.Prefixes {
			if other, ok := x.racks[p.Masked()]; ok {
				return x, fmt.Errorf("racks %q and %q both have prefix %s: remove it from one", racks[other].Name, r.Name, p.Masked())
			}
			x.racks[p.Masked()], lengths[p.Bits()] = int32(i), true
		}
	}
	x.lengths = slices.SortedFunc(maps.Keys(lengths), func(a, b int) int { return cmp.Compare(b, a) })
	return x, nil
}

// HasPrefixes says whether any rack has one.
func (f *Fabric) HasPrefixes() bool { return len(f.byPrefix.racks) > 0 }

// RackOf is the rack whose prefixes have the longest one with the address; false: none has one.
func (f *Fabric) RackOf(a netip.Addr) (int32, bool) {
	a = a.Unmap().WithZone("")
	for _, bits := range f.byPrefix.lengths {
		if p, err := a.Prefix(bits); err == nil { // else it is too long for the family
			if rack, ok := f.byPrefix.racks[p]; ok {
				return rack, true
			}
		}
	}
	return 0, false
}
