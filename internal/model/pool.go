package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// AddressPool holds addresses that VIPs may ask for. No two pools overlap.
type AddressPool struct {
	Name       string // unique among pools; a DNS label
	Labels     map[string]string
	Prefixes   []netip.Prefix // of either family; none overlaps another
	Exclusions []netip.Prefix // within Prefixes: no VIP may have an address of them
	TIPs       []netip.Prefix // within Exclusions: VIPs of Tenants may have these as TIPs
	Tenants    []string       // that may have addresses; none: all tenants
	Scrubbers  []Scrubber     // that VIPs of the pool may be sent through; names are unique
	Blackhole  *Diversion     // how VIPs that are black-holed are announced; nil: not at all
}

// Family is a version of IP.
type Family string

// The families. The empty string means either.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// Of says whether a is of the family.
func (f Family) Of(a netip.Addr) bool { return f == "" || a.IsValid() && (f == IPv4) == a.Is4() }

// FamilyOf is the family of an address.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// WantedFamily is that of the address to take from the VIP's pool: as it says, or as its backends or the workloads
// of its SNAT are.
func (vip VIP) WantedFamily() Family {
	if vip.Family != "" {
		return vip.Family
	}
	for _, e := range vip.Endpoints {
		if len(e.Backends) > 0 {
			return FamilyOf(e.Backends[0].Address)
		}
	}
	if vip.SNAT != nil && len(vip.SNAT.Workloads) > 0 {
		return FamilyOf(vip.SNAT.Workloads[0].Address)
	}
	return ""
}

// Covers says whether a is an address of the pool, excluded or not.
func (p AddressPool) Covers(a netip.Addr) bool { return within(p.Prefixes, a) }

// Excludes says whether no VIP may have a.
func (p AddressPool) Excludes(a netip.Addr) bool { return within(p.Exclusions, a) }

// HasTIP says whether a VIP may have a as a TIP.
func (p AddressPool) HasTIP(a netip.Addr) bool { return within(p.TIPs, a) }

// Serves says whether the tenant may have addresses of the pool.
func (p AddressPool) Serves(tenant string) bool {
	return len(p.Tenants) == 0 || slices.Contains(p.Tenants, tenant)
}

func within(prefixes []netip.Prefix, a netip.Addr) bool {
	return slices.ContainsFunc(prefixes, func(p netip.Prefix) bool { return p.Contains(a) })
}

// MaxPoolParts bounds the prefixes of a pool, its exclusions, its TIPs, and its tenants.
const MaxPoolParts = 256

// Validate says everything that is wrong with the pool taken alone, as joined FieldErrors.
func (p AddressPool) Validate() error {
	var v validator
	v.name("name", p.Name)
	if len(p.Prefixes) == 0 {
		v.refuse("prefixes", "must have at least one")
	}
	v.prefixes("prefixes", p.Prefixes, "", nil)
	v.prefixes("exclusions", p.Exclusions, "prefixes", p.Prefixes)
	v.prefixes("tips", p.TIPs, "exclusions", p.Exclusions)
	v.most("tenants", len(p.Tenants))
	for i, tenant := range p.Tenants {
		field := fmt.Sprintf("tenants[%d]", i)
		v.name(field, tenant)
		if j := slices.Index(p.Tenants, tenant); j < i {
			v.refuse(field, "is %s again, as tenants[%d]", tenant, j)
		}
	}
	p.validateDiversions(&v)
	return v.errs.Err()
}

func (v *validator) most(field string, n int) {
	if n > MaxPoolParts {
		v.refuse(field, "must be at most %d, are %d", MaxPoolParts, n)
	}
}

// prefixes holds that a list has prefixes of addresses that do not overlap, in those of another list, if one is named.
func (v *validator) prefixes(name string, list []netip.Prefix, in string, around []netip.Prefix) {
	v.most(name, len(list))
	for i, prefix := range list {
		field := fmt.Sprintf("%s[%d]", name, i)
		v.addresses(field, prefix)
		inside := func(p netip.Prefix) bool { return p.Bits() <= prefix.Bits() && p.Contains(prefix.Addr()) }
		if in != "" && prefix.IsValid() && !slices.ContainsFunc(around, inside) {
			v.refuse(field, "%s is in none of the %s", prefix, in)
		}
		for j, other := range list[:i] {
			if prefix.Overlaps(other) {
				v.refuse(field, "overlaps %s[%d], %s", name, j, other)
			}
		}
	}
}

// addresses holds that p is a prefix of addresses that a VIP may have.
func (v *validator) addresses(field string, p netip.Prefix) {
	switch {
	case !p.IsValid():
		v.refuse(field, "must be a prefix such as 203.0.113.0/24")
	case p != p.Masked():
		v.refuse(field, "must have no bits set behind its length, is %s", p)
	case p.Bits() == 0:
		v.refuse(field, "must be longer than /0")
	default:
		v.address(field, p.Addr())
	}
}
