package admission

import (
	"fmt"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// PrefixLists says whether lists, each valid alone, fit with s, in which they replace those of the same names,
// with the VIPs that are written with them, and with what their tenants may have. The paths of its field errors begin
// with prefixLists[i].
func PrefixLists(s desired.State, lists []model.PrefixList, vips []model.VIP, tenants *Tenants) error {
	if len(lists) == 0 {
		return nil
	}
	var errs model.FieldErrorList
	refuse := func(i int, field, format string, args ...any) {
		errs.Refuse(fmt.Sprintf("prefixLists[%d].%s", i, field), format, args...)
	}
	written := map[string]bool{}
	for _, vip := range vips {
		written[vip.Name] = true
	}
	next, seen := With(s, lists, nil), map[string]int{}
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
	if before, after := s.PrefixLists.Count(""), next.PrefixLists.Count(""); after > model.MaxListedOfAll && after > before {
		refuse(last, "prefixes", "all prefix lists together may have %d prefixes, and would have %d", model.MaxListedOfAll, after)
	}
	for i, list := range lists {
		limit := tenants.all[list.Tenant].Limits.Prefixes
		if list.Tenant == "" || limit == nil {
			continue
		}
		if before, after := s.PrefixLists.Count(list.Tenant), next.PrefixLists.Count(list.Tenant); after > int(*limit) && after > before {
			refuse(i, "prefixes", "tenant %s may have %d prefixes in its prefix lists, and would have %d", list.Tenant, *limit, after)
		}
	}
	return errs.Err()
}

// PrefixListRemoval says why the list can't go: a VIP names it. sees says which VIPs may be told.
func PrefixListRemoval(s desired.State, name string, sees func(model.VIP) bool) error {
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
