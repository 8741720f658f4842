package admission

import (
	"fmt"

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
			if pool.Covers(t.Address) && !pool.Excludes(t.Address) {
				a.refuse(field, "%s is an address for VIPs, of pool %s: exclude it there", t.Address, pool.Name)
			}
		}
	}
}
