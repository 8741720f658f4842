package clos

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/weirlb/weir/internal/lab/netns"
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

// Ways counts a router's ways to a prefix of IPv4.
func Ways(ns *netns.NS, to netip.Prefix) (int, error) {
	out, err := ns.Run("ip", "-4", "route", "show", to.String())
	_, id, has := strings.Cut(out, "nhid ")
	if ways := strings.Count(out, " via "); ways > 0 || err != nil || !has {
		return ways, err
	}
	// With nexthop_compat_mode 0, which driver linux sets, a route has its group's number alone.
	id, _, _ = strings.Cut(id, " ")
	if out, err = ns.Run("ip", "nexthop", "show", "id", id); err != nil {
		return 0, err
	}
	_, group, isGroup := strings.Cut(out, " group ")
	if !isGroup {
		return strings.Count(out, " via "), nil
	}
	members, _, _ := strings.Cut(group, " ")
	return strings.Count(members, "/") + 1, nil
}
