package clos

import (
	"fmt"
	"net/netip"
)

// Converged says what a fabric lacks until each router has all its ways up to a prefix that is beside the border, and the
// border all its ways down to those in racks. Hops counts a router's ways to a prefix.
func (f Fabric) Converged(hops func(router string, to netip.Prefix) (int, error), beside netip.Prefix, racks []netip.Prefix) error {
	want := func(router string, to netip.Prefix, ways int) error {
		got, err := hops(router, to)
		if err == nil && got < ways {
			err = fmt.Errorf("%s has %d of %d ways to %s", router, got, ways, to)
		}
		return err
	}
	for _, name := range f.Switches {
		ways := 0
		for _, l := range f.Links {
			if l.Lower == name {
				ways++
			}
		}
		if err := want(name, beside, ways); err != nil {
			return err
		}
	}
	for _, rack := range racks {
		if err := want(f.border, rack, len(f.Cores)); err != nil {
			return err
		}
	}
	return nil
}
