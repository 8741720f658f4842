package desired

import (
	"cmp"
	"errors"
	"fmt"
	"iter"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// naming says that an endpoint of a VIP names a prefix list.
type naming struct{ list, vip string }

// Compare orders them by list.
func (n naming) Compare(other naming) int {
	return cmp.Or(cmp.Compare(n.list, other.list), cmp.Compare(n.vip, other.vip))
}

func eachNaming(vip model.VIP, do func(naming)) {
	named := map[string]bool{}
	for _, e := range vip.Endpoints {
		for _, list := range e.Lists() {
			if !named[list] {
				named[list] = true
				do(naming{list, vip.Name})
			}
		}
	}
}

// PutPrefixList adds or replaces a list.
func (s *State) PutPrefixList(list model.PrefixList) { s.PrefixLists.Set(list.Name, list) }

// VIPsUsingList are the VIPs with an endpoint that names the list, by name.
func (s State) VIPsUsingList(list string) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for n := range s.naming.From(naming{list: list}) {
			if n.list != list || !yield(s.VIPs.At(n.vip)) {
				return
			}
		}
	}
}

// UsedLists are the names of the lists that endpoints name, in order.
func (s State) UsedLists() iter.Seq[string] {
	return func(yield func(string) bool) {
		last := ""
		for n := range s.naming.Keys() {
			if n.list != last && !yield(n.list) {
				return
			}
			last = n.list
		}
	}
}

// IsListUsed says whether an endpoint names the list.
func (s State) IsListUsed(list string) bool {
	for range s.VIPsUsingList(list) {
		return true
	}
	return false
}

// WithPrefixLists is s with these lists in it.
func (s State) WithPrefixLists(lists []model.PrefixList) State {
	if len(lists) == 0 {
		return s
	}
	next := s.Clone()
	for _, list := range lists {
		next.PutPrefixList(list)
	}
	return next
}

// AdmitPrefixLists says whether lists, each valid alone, fit with s, in which they replace those of the same names,
// with the VIPs that are written with them, and with what their tenants may have. The paths of its field errors begin
// with prefixLists[i].
func (s State) AdmitPrefixLists(lists []model.PrefixList, vips []model.VIP, tenants map[string]model.Tenant) error {
	if len(lists) == 0 {
		return nil
	}
	var errs []error
	refuse := func(i int, field, format string, args ...any) {
		errs = append(errs, &model.FieldError{Field: fmt.Sprintf("prefixLists[%d].%s", i, field), Reason: fmt.Sprintf(format, args...)})
	}
	written := map[string]bool{}
	for _, vip := range vips {
		written[vip.Name] = true
	}
	next, seen := s.WithPrefixLists(lists), map[string]int{}
	for i, list := range lists {
		if j, twice := seen[list.Name]; twice {
			refuse(i, "name", "is %s again, as prefixLists[%d]", list.Name, j)
		}
		seen[list.Name] = i
		for vip := range s.VIPsUsingList(list.Name) {
			if !list.Serves(vip.Tenant) && !written[vip.Name] {
				refuse(i, "tenant", "a VIP of another tenant names the list: leave the tenant as it is, or take another name")
				break
			}
		}
	}
	last := len(lists) - 1
	if n := next.PrefixLists.Len(); n > model.MaxPrefixLists && n > s.PrefixLists.Len() {
		refuse(last, "name", "there may be %d prefix lists, and would be %d", model.MaxPrefixLists, n)
	}
	if before, after := s.ListedPrefixes(""), next.ListedPrefixes(""); after > model.MaxListedOfAll && after > before {
		refuse(last, "prefixes", "all prefix lists together may have %d prefixes, and would have %d", model.MaxListedOfAll, after)
	}
	for i, list := range lists {
		limit := tenants[list.Tenant].Limits.Prefixes
		if list.Tenant == "" || limit == nil {
			continue
		}
		if before, after := s.ListedPrefixes(list.Tenant), next.ListedPrefixes(list.Tenant); after > int(*limit) && after > before {
			refuse(i, "prefixes", "tenant %s may have %d prefixes in its prefix lists, and would have %d", list.Tenant, *limit, after)
		}
	}
	return errors.Join(errs...)
}

// ListedPrefixes is how many prefixes are in the lists of a tenant, or in all lists.
func (s State) ListedPrefixes(tenant string) int {
	n := 0
	for list := range s.PrefixLists.Values() {
		if tenant == "" || list.Tenant == tenant {
			n += list.Prefixes.Len()
		}
	}
	return n
}

// AdmitPrefixListRemoval says why the list can't go: a VIP names it. sees says which VIPs may be told.
func (s State) AdmitPrefixListRemoval(name string, sees func(model.VIP) bool) error {
	var users []string
	others := 0
	for vip := range s.VIPsUsingList(name) {
		if sees(vip) {
			users = append(users, vip.Name)
		} else {
			others++
		}
	}
	switch {
	case len(users) > 0:
		return &model.FieldError{Field: "name", Reason: fmt.Sprintf(
			"endpoints of %d VIPs name %s: %s: take it out of them first", len(users)+others, name, list(users))}
	case others > 0:
		return &model.FieldError{Field: "name", Reason: fmt.Sprintf("endpoints of %d VIPs of other tenants name %s", others, name)}
	}
	return nil
}

// named holds that the lists that e names are there, for its tenant.
func (a *admission) named(path string, vip model.VIP, e model.Endpoint) {
	for _, side := range []struct {
		field string
		names []string
	}{{"allowLists", e.AllowLists}, {"denyLists", e.DenyLists}} {
		for i, name := range side.names {
			if known, there := a.PrefixLists.Get(name); !there || !known.Serves(vip.Tenant) {
				a.refuse(fmt.Sprintf("%s.%s[%d]", path, side.field, i), "there is no prefix list %s for tenant %s: %s",
					name, vip.Tenant, a.listsFor(vip.Tenant))
			}
		}
	}
}

// listsFor lists those that endpoints of the tenant may name.
func (a *admission) listsFor(tenant string) string {
	var known []string
	for name, l := range a.PrefixLists.All() {
		if l.Serves(tenant) {
			known = append(known, name)
		}
	}
	if len(known) == 0 {
		return "there is none yet, apply a PrefixList first"
	}
	return list(known)
}

// sets are those of the named lists.
func (s State) sets(names []string) []model.PrefixSet {
	var sets []model.PrefixSet
	for _, name := range names {
		sets = append(sets, s.Lists(name))
	}
	return sets
}

// Lists are the prefix lists, by name.
func (s State) Lists(name string) model.PrefixSet { return s.PrefixLists.At(name).Prefixes }

// Denies names the list that has the source and keeps it out, with the prefix, or is empty.
func (s State) Denies(e model.Endpoint, source netip.Addr) string {
	for _, p := range e.Deny {
		if p.Contains(source) {
			return fmt.Sprintf("%s in deny", p)
		}
	}
	for _, name := range e.DenyLists {
		if p, listed := s.Lists(name).Covering(netip.PrefixFrom(source, source.BitLen())); listed {
			return fmt.Sprintf("%s in prefix list %s", p, name)
		}
	}
	return ""
}
