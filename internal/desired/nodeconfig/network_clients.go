package nodeconfig

import (
	"net/netip"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// networkClients are the clients in virtual networks that an endpoint takes: those of allow, or all if that is empty, but
// for those of deny. Muxes see the first segment of a connection, so the host ends those that a change forbids. Where the
// lists have more prefixes than hosts get, such connections go on.
func networkClients(lists desired.PrefixLists, vip model.VIP, e model.Endpoint) (allow, deny []netip.Prefix) {
	if len(e.Allow)+len(e.AllowLists)+len(e.Deny)+len(e.DenyLists) == 0 || !vip.Address.IsValid() || len(vip.Attachments) == 0 {
		return nil, nil
	}
	whole := netip.IPv6Unspecified()
	if vip.Address.Is4() {
		whole = netip.IPv4Unspecified()
	}
	all := []netip.Prefix{netip.PrefixFrom(whole, 0)}
	if len(e.Allow)+len(e.AllowLists) > 0 {
		if allow = common(all, prefixSets(lists, e.Allow, e.AllowLists), false); len(allow) == 0 {
			return nil, all // the lists are empty
		}
	}
	deny = common(all, prefixSets(lists, e.Deny, e.DenyLists), true)
	if len(allow) > model.MaxSources || len(deny) > model.MaxSources {
		return nil, nil
	}
	return allow, deny
}
