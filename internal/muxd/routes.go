package muxd

import (
	"fmt"
	"net/netip"
	"slices"
)

// Routes says what is announced for VIPs.
type Routes struct {
	// Aggregates are announced instead of routes to single VIPs, each while a VIP lies in it. None:
	// a route for every VIP.
	Aggregates []netip.Prefix
}

// prefixes are the routes for vips, in order, and what an operator should know of those without one.
func (r Routes) prefixes(vips []netip.Addr) (prefixes []netip.Prefix, warnings []string) {
	for _, vip := range vips {
		prefix, ok := r.prefix(vip)
		if !ok {
			warnings = append(warnings, fmt.Sprintf("VIP %s is not announced: no aggregate holds it", vip))
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes), warnings
}

func (r Routes) prefix(vip netip.Addr) (netip.Prefix, bool) {
	if len(r.Aggregates) == 0 {
		return netip.PrefixFrom(vip, vip.BitLen()), true
	}
	for _, aggregate := range r.Aggregates {
		if aggregate.Contains(vip) {
			return aggregate.Masked(), true
		}
	}
	return netip.Prefix{}, false
}
