package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// MaxSources bounds Endpoint.Allow, and Endpoint.Deny.
const MaxSources = 4096

// Lists are prefix lists, by their names.
type Lists func(name string) PrefixSet

// Takes says whether packets of the source may come to the endpoint. Without prefix lists it needs none.
func (e Endpoint) Takes(source netip.Addr, lists Lists) bool {
	return takes(e.Allow, e.AllowLists, e.Deny, e.DenyLists, source, lists)
}

// Takes says whether packets of the source may come to the endpoint.
func (e MuxEndpoint) Takes(source netip.Addr, lists Lists) bool {
	return takes(e.Allow, e.AllowLists, e.Deny, e.DenyLists, source, lists)
}

func takes(allow []netip.Prefix, allowLists []string, deny []netip.Prefix, denyLists []string, source netip.Addr, lists Lists) bool {
	inList := func(name string) bool { return lists(name).Contains(source) }
	in := func(p netip.Prefix) bool { return p.Contains(source) }
	allowed := len(allow)+len(allowLists) == 0 || slices.ContainsFunc(allow, in) || slices.ContainsFunc(allowLists, inList)
	return allowed && !slices.ContainsFunc(deny, in) && !slices.ContainsFunc(denyLists, inList)
}

// sources holds that the list is one of prefixes of the VIP's family, each once.
func (v *validator) sources(path string, vip netip.Addr, list []netip.Prefix) {
	if n := len(list); n > MaxSources {
		v.refuse(path, "must be at most %d, are %d", MaxSources, n)
		return
	}
	first := make(map[netip.Prefix]int, len(list))
	for i, p := range list {
		field := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case !p.IsValid():
			v.refuse(field, "must be an address or a prefix such as 198.51.100.0/24")
			continue
		case p.Addr().Is4In6():
			v.refuse(field, "must be written as IPv4, is %s", p)
		case p != p.Masked():
			v.refuse(field, "must have no bits set behind its length, is %s", p)
		case vip.IsValid() && p.Addr().Is4() != vip.Is4():
			v.refuse(field, "must be of the VIP's family (%s), is %s", family(vip), p)
		}
		if j, taken := first[p]; taken {
			v.refuse(field, "is %s again, as [%d]", p, j)
			continue
		}
		first[p] = i
	}
}
