package model

import (
	"fmt"
	"net/netip"
	"slices"
)

// PrefixList is a list of sources that endpoints name.
type PrefixList struct {
	Name     string // unique among prefix lists; a DNS label
	Tenant   string // whose endpoints may name it; empty: those of all tenants
	Labels   map[string]string
	Prefixes PrefixSet
}

// Bounds of prefix lists.
const (
	MaxListed        = 1_000_000 // prefixes of one list
	MaxListedOfAll   = 4_000_000 // of all lists together
	MaxPrefixLists   = 4096      // lists
	MaxEndpointLists = 4         // of Endpoint.AllowLists, and of DenyLists
)

// Validate says everything that is wrong with the list taken alone, as joined FieldErrors.
func (l PrefixList) Validate() error {
	var v validator
	v.name("name", l.Name)
	if l.Tenant != "" {
		v.name("tenant", l.Tenant)
	}
	if n := l.Prefixes.Len(); n > MaxListed {
		v.refuse("prefixes", "must be at most %d, are %d", MaxListed, n)
	}
	return v.errs.Err()
}

// Serves says whether endpoints of the tenant may name the list.
func (l PrefixList) Serves(tenant string) bool { return l.Tenant == "" || l.Tenant == tenant }

// ListedPrefix says what is wrong with p as a prefix of a list, or nothing.
func ListedPrefix(p netip.Prefix) (reason string) {
	switch {
	case !p.IsValid():
		return "must be an address or a prefix such as 198.51.100.0/24"
	case p.Addr().Is4In6():
		return "must be written as IPv4, is " + p.String()
	case p != p.Masked():
		return "must have no bits set behind its length, is " + p.String() + ": did you mean " + p.Masked().String() + "?"
	}
	return ""
}

// MuxPrefixList is a list as a mux runs it.
type MuxPrefixList struct {
	Name     string
	Prefixes PrefixSet
}

// Lists are the names of all prefix lists that e names, in order, each once.
func (e Endpoint) Lists() []string {
	names := slices.Sorted(slices.Values(slices.Concat(e.AllowLists, e.DenyLists)))
	return slices.Compact(names)
}

// Restricted says whether not every source may come.
func (e Endpoint) Restricted() bool {
	return len(e.Allow)+len(e.Deny)+len(e.AllowLists)+len(e.DenyLists) > 0
}

// lists holds that the names are those that prefix lists may have, each once.
func (v *validator) lists(path string, names []string) {
	if n := len(names); n > MaxEndpointLists {
		v.refuse(path, "must be at most %d, are %d", MaxEndpointLists, n)
		return
	}
	for i, name := range names {
		field := fmt.Sprintf("%s[%d]", path, i)
		v.name(field, name)
		if j := slices.Index(names, name); j < i {
			v.refuse(field, "is %s again, as [%d]", name, j)
		}
	}
}
