package desired

import (
	"cmp"
	"fmt"
	"iter"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
)

// PrefixLists are all lists, by name, with what finds the VIPs that name them. A copy that was not made by Clone is read
// only.
type PrefixLists struct {
	sorted.Map[string, model.PrefixList]
	naming sorted.Map[naming, none]
	counts sorted.Map[string, int] // prefixes, by tenant; of "" all
}

// Clone returns PrefixLists that may be written to.
func (l PrefixLists) Clone() PrefixLists {
	return PrefixLists{l.Map.Clone(), l.naming.Clone(), l.counts.Clone()}
}

// Set adds or replaces a list.
func (l *PrefixLists) Set(name string, list model.PrefixList) {
	l.count(l.At(name), -1)
	l.Map.Set(name, list)
	l.count(list, 1)
}

// Delete forgets a list.
func (l *PrefixLists) Delete(name string) {
	l.count(l.At(name), -1)
	l.Map.Delete(name)
}

// count adds the prefixes of a list n times; n is 1 or -1.
func (l *PrefixLists) count(list model.PrefixList, n int) {
	tenants := []string{"", list.Tenant}
	if list.Tenant == "" {
		tenants = tenants[:1]
	}
	for _, tenant := range tenants {
		if has := l.counts.At(tenant) + n*list.Prefixes.Len(); has != 0 {
			l.counts.Set(tenant, has)
		} else {
			l.counts.Delete(tenant)
		}
	}
}

// ReplaceVIP takes over which lists vip names, in the place of old.
func (l *PrefixLists) ReplaceVIP(old, vip model.VIP) { replace(&l.naming, eachNaming, old, vip) }

// naming says that an endpoint of a VIP names a prefix list.
type naming struct{ list, vip string }

// Compare orders them by list.
func (n naming) Compare(other naming) int {
	return cmp.Or(cmp.Compare(n.list, other.list), cmp.Compare(n.vip, other.vip))
}

var _ = sorted.Register(naming.Compare)

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

// VIPsUsingList are the VIPs with an endpoint that names the list, by name.
func (s State) VIPsUsingList(list string) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for n := range s.PrefixLists.naming.From(naming{list: list}) {
			if n.list != list || !yield(s.VIPs.At(n.vip)) {
				return
			}
		}
	}
}

// Used are the names of the lists that endpoints name, in order.
func (l PrefixLists) Used() iter.Seq[string] {
	return func(yield func(string) bool) {
		last := ""
		for n := range l.naming.Keys() {
			if n.list != last && !yield(n.list) {
				return
			}
			last = n.list
		}
	}
}

// IsUsed says whether an endpoint names the list.
func (l PrefixLists) IsUsed(list string) bool {
	for n := range l.naming.From(naming{list: list}) {
		return n.list == list
	}
	return false
}

// Count is how many prefixes are in the lists of a tenant, or in all lists.
func (l PrefixLists) Count(tenant string) int { return l.counts.At(tenant) }

// Prefixes are those of a list.
func (l PrefixLists) Prefixes(list string) model.PrefixSet { return l.At(list).Prefixes }

// Denies names the list that has the source and keeps it out, with the prefix, or is empty.
func (l PrefixLists) Denies(e model.Endpoint, source netip.Addr) string {
	for _, p := range e.Deny {
		if p.Contains(source) {
			return fmt.Sprintf("%s in deny", p)
		}
	}
	for _, name := range e.DenyLists {
		if p, listed := l.Prefixes(name).Covering(netip.PrefixFrom(source, source.BitLen())); listed {
			return fmt.Sprintf("%s in prefix list %s", p, name)
		}
	}
	return ""
}
