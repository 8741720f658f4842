package nodeconfig

import (
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// fastpathClients are the clients whose connections to e may leave the muxes: the sources of its VIP's Fastpath, as far as
// e takes them, but for those of stay. They are none if the lists of e have so many of them that hosts would get
// more than model.MaxSources: then all connections stay.
func fastpathClients(lists desired.PrefixLists, f *model.Fastpath, e model.Endpoint) (leave, stay []netip.Prefix) {
	if f == nil {
		return nil, nil
	}
	allow, deny := prefixSets(lists, e.Allow, e.AllowLists), prefixSets(lists, e.Deny, e.DenyLists)
	leave = f.Sources
	if len(e.Allow)+len(e.AllowLists) > 0 {
		leave = common(f.Sources, allow, false)
	}
	stay = common(leave, deny, true)
	if len(leave) > max(model.MaxSources, len(f.Sources)) || len(stay) > model.MaxSources {
		return nil, nil
	}
	return leave, stay
}

// prefixSets are prefixes, and those of lists.
func prefixSets(lists desired.PrefixLists, prefixes []netip.Prefix, names []string) []model.PrefixSet {
	all := []model.PrefixSet{model.NewPrefixSet(prefixes)}
	for _, name := range names {
		all = append(all, lists.Prefixes(name))
	}
	return all
}

// common are the addresses that both sources and one of the sets have: in the prefixes of the sets if whole, else in
// what both have. It ends when they are more than hosts get.
func common(sources []netip.Prefix, sets []model.PrefixSet, whole bool) []netip.Prefix {
	var all []netip.Prefix
	for _, source := range sources {
		for _, set := range sets {
			if around, covered := set.Covering(source); covered {
				if !whole {
					around = source
				}
				all = append(all, around)
				continue // with what lies in it
			}
			for inner := range set.Within(source) {
				if len(all) > 2*model.MaxSources {
					return all
				}
				all = append(all, inner)
			}
		}
	}
	slices.SortFunc(all, netip.Prefix.Compare)
	return slices.Compact(all)
}
