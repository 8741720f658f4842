// Package admission says whether what is written fits with the desired state: that an address is one VIP's and leads to
// one host, that VIPs keep to their pools and tenants, and that nodes take no address of somebody else. What each object
// must be alone is in package model. Pure: no I/O, no clock.
//
// Errors are model.FieldErrors, whose paths begin with the list that was written: vips[i], pools[i], prefixLists[i].
// Those of VIPs name no VIP, pool or list of another tenant.
package admission

import (
	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// With is s with lists and pools in the place of those of the same names.
func With(s desired.State, lists []model.PrefixList, pools []model.AddressPool) desired.State {
	if len(lists)+len(pools) == 0 {
		return s
	}
	s = s.Clone()
	for _, list := range lists {
		s.PrefixLists.Set(list.Name, list)
	}
	for _, pool := range pools {
		s.Pools.Set(pool.Name, pool)
	}
	return s
}
