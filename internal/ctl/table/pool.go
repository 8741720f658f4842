package table

import (
	"cmp"
	"fmt"
	"math"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Pools has a row for each address pool.
func Pools(pools []*weirv1.AddressPool) *Table {
	t := New("", "no address pools: weir apply -f FILE makes some",
		"NAME", "PREFIXES", "EXCLUSIONS", "TENANTS", "IPV4", "IPV6")
	for _, p := range pools {
		t.Add(p.GetName(), strings.Join(p.GetPrefixes(), ","), strings.Join(p.GetExclusions(), ","),
			cmp.Or(strings.Join(p.GetTenants(), ","), "all"), poolUse(p.GetStatus().GetIpv4()), poolUse(p.GetStatus().GetIpv6()))
	}
	return t
}

// poolUse is "3/256": the addresses of a family that VIPs have, of all.
func poolUse(u *weirv1.PoolUse) string {
	switch {
	case u == nil:
		return ""
	case u.GetTotal() == math.MaxUint64:
		return fmt.Sprintf("%d", u.GetUsed())
	}
	return fmt.Sprintf("%d/%d", u.GetUsed(), u.GetTotal())
}
