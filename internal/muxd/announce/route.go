package announce

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/bgp"
)

// prefixes are the usual routes of VIPs, in order, and a warning for each VIP without one.
func (a *Announcer) prefixes(vips []netip.Addr) (prefixes []netip.Prefix, warnings []string) {
	for _, vip := range vips {
		prefix, ok := a.prefix(vip)
		if !ok {
			warnings = append(warnings, fmt.Sprintf("VIP %s is not announced: no aggregate holds it", vip))
			continue
		}
		prefixes = append(prefixes, prefix)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes), warnings
}

func (a *Announcer) prefix(vip netip.Addr) (netip.Prefix, bool) {
	if len(a.config.Aggregates) == 0 {
		return netip.PrefixFrom(vip, vip.BitLen()), true
	}
	for _, aggregate := range a.config.Aggregates {
		if aggregate.Contains(vip) {
			return aggregate.Masked(), true
		}
	}
	return netip.Prefix{}, false
}

// undiverted warns of VIPs that ARP and NDP bring packets of although their routes lead elsewhere.
func (a *Announcer) undiverted(vips map[netip.Addr]bool) (warnings []string) {
	for vip, route := range a.overrides {
		in := func(p netip.Prefix) bool { return p.Contains(vip) }
		if vips[vip] && !route.Withdrawn && slices.ContainsFunc(a.config.Neighbors, in) {
			warnings = append(warnings, fmt.Sprintf(
				"VIP %s has another route for %s, but ARP and NDP for it are answered: its packets come from the segment as before", vip, route.Action))
		}
	}
	slices.Sort(warnings)
	return warnings
}

// routes are what is announced of VIPs: their usual routes, but for those with an override.
func (a *Announcer) routes(vips map[netip.Addr]bool) (routes []bgp.Route, warnings []string) {
	var plain []netip.Addr
	for _, vip := range slices.SortedFunc(maps.Keys(vips), netip.Addr.Compare) {
		route, is := a.overrides[vip]
		// An aggregate goes on being announced beside the route of one VIP.
		if !is || !route.Withdrawn && len(a.config.Aggregates) > 0 {
			plain = append(plain, vip)
		}
		if is && !route.Withdrawn {
			routes = append(routes, bgp.Route{
				Prefix: netip.PrefixFrom(vip, vip.BitLen()), NextHop: route.NextHop, Communities: route.Communities,
			})
		}
	}
	prefixes, _ := a.prefixes(plain)
	for _, p := range prefixes {
		routes = append(routes, bgp.Plain(p))
	}
	slices.SortFunc(routes, func(a, b bgp.Route) int { return a.Prefix.Compare(b.Prefix) })
	for vip, route := range a.overrides {
		aggregate, is := a.prefix(vip)
		if vips[vip] && route.Withdrawn && is && slices.Contains(prefixes, aggregate) {
			warnings = append(warnings, fmt.Sprintf(
				"VIP %s is to be black-holed, but aggregate %s still brings its packets: give its pool a blackhole", vip, aggregate))
		}
	}
	slices.Sort(warnings)
	return routes, warnings
}
