package admission

import (
	"fmt"
	"net/netip"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// tips holds that a VIP's TIPs are nobody else's addresses. What of them is a backend's is refused there.
func (a *admission) tips(path string, vip model.VIP) {
	if vip.Hardware == nil {
		return
	}
	for i, t := range vip.Hardware.TIPs {
		field := fmt.Sprintf("%s.tips[%d].address", path, i)
		for _, as := range []desired.Purpose{desired.AsVIP, desired.AsTIP} {
			for u := range a.Addresses.Of(t.Address, as) {
				if u.Name != vip.Name {
					a.refuse(field, "%s is an address of %s already", t.Address, a.other(u.Name, vip))
					break
				}
			}
		}
		if holder := a.holder(t.Address, vip); holder != "" {
			a.refuse(field, "%s is still in a switch for %s: apply this when it is gone from there", t.Address, holder)
		}
		if user, used := a.dip(t.Address); used && user != vip.Name {
			a.refuse(field, "%s is the address of a backend of %s", t.Address, a.other(user, vip))
		}
		for u := range a.Addresses.Of(t.Address, desired.AsNode) {
			a.refuse(field, "%s is an address of node %s", t.Address, u.Name)
			break
		}
		if mux := spread(a.State, t.Address); mux != "" {
			a.refuse(field, "%s is in a prefix of mux %s", t.Address, mux)
		}
		if reason := ofOverlay(a.State, t.Address); reason != "" {
			a.refuse(field, "%s %s", t.Address, reason)
		}
		for pool := range a.Pools.Values() {
			switch {
			case !pool.Covers(t.Address), pool.Excludes(t.Address):
			case pool.Serves(vip.Tenant):
				a.refuse(field, "%s is an address for VIPs, of pool %s: exclude it there", t.Address, pool.Name)
			default:
				a.refuse(field, "%s is an address for VIPs of other tenants", t.Address)
			}
			if pool.HasTIP(t.Address) && !pool.Serves(vip.Tenant) {
				a.refuse(field, "%s is an address for TIPs of other tenants", t.Address)
			}
		}
	}
}

// holder is another VIP that gave an address up, or gives it up by this write, and whose entry of it a switch may still
// have: a switch has one entry of an address, and what ends the one would end the other.
func (a *admission) holder(address netip.Addr, vip model.VIP) string {
	for _, at := range a.Placements.HoldersOf(address) {
		if is, there := a.VIPAt(at); at == vip.Address || there && a.uses(is, address) {
			continue // its own, or refused as the other's already
		}
		if state := a.Placements.At(at); state.Tenant == vip.Tenant {
			return "VIP " + state.VIP
		}
		return "a VIP of another tenant"
	}
	return ""
}

// uses says whether a VIP has an address as its own or as a TIP.
func (a *admission) uses(vip model.VIP, address netip.Addr) bool {
	for _, as := range []desired.Purpose{desired.AsVIP, desired.AsTIP} {
		for u := range a.Addresses.Of(address, as) {
			if u.Name == vip.Name {
				return true
			}
		}
	}
	return false
}
