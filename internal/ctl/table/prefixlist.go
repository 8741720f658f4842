package table

import (
	"cmp"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// PrefixLists has a row for each prefix list.
func PrefixLists(lists []*weirv1.PrefixList) *Table {
	t := New("", "no prefix lists: weir prefixlist replace makes one", "NAME", "TENANT", "IPV4", "IPV6", "VIPS")
	for _, p := range lists {
		status := p.GetStatus()
		t.Add(p.GetName(), cmp.Or(p.GetTenant(), "all"), status.GetIpv4(), status.GetIpv6(),
			strings.Join(status.GetVips(), ","))
	}
	return t
}
