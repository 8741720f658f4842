package admission

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Pools says whether pools, each valid alone, fit together and with s, in which they replace those
// of the same names: no pool overlaps another, and the VIPs that are there keep to them. VIPs that are
// applied along with them are left to VIPs. The paths of its field errors begin with pools[i].
func Pools(s desired.State, pools []model.AddressPool, along []model.VIP) error {
	var errs model.FieldErrorList
	refuse := func(field, format string, args ...any) {
		errs.Refuse(field, format, args...)
	}
	after := With(s, nil, pools)
	applied := map[string]bool{}
	for _, vip := range along {
		applied[vip.Name] = true
	}
	seen := map[string]int{}
	for i, p := range pools {
		path := fmt.Sprintf("pools[%d]", i)
		if j, twice := seen[p.Name]; twice {
			refuse(path+".name", "is %s again, as pools[%d]", p.Name, j)
			continue
		}
		seen[p.Name] = i
		for j, prefix := range p.Prefixes {
			if other, overlapped := overlaps(after, p.Name, prefix); other != "" {
				refuse(fmt.Sprintf("%s.prefixes[%d]", path, j), "%s overlaps %s of pool %s", prefix, overlapped, other)
			}
		}
		for vip := range s.VIPsIn(s.Pools.At(p.Name)) {
			if vip.Pool == p.Name && !p.Covers(vip.Address) && !applied[vip.Name] {
				refuse(path+".prefixes", "VIP %s has %s: they must have it until the VIP is gone", vip.Name, vip.Address)
			}
			if reason := scrubs(after, vip); reason != "" && !applied[vip.Name] {
				refuse(path+".scrubbers", "the overload policy of VIP %s needs it: %s", vip.Name, reason)
			}
		}
		for vip := range s.VIPsIn(p) {
			if field, reason := refuses(p, vip); reason != "" && !applied[vip.Name] {
				refuse(path+"."+field, "VIP %s has %s: %s", vip.Name, vip.Address, reason)
			}
		}
	}
	return errs.Err()
}

// overlaps returns another pool than name that has addresses of prefix, and the prefix that has them.
func overlaps(s desired.State, name string, prefix netip.Prefix) (string, netip.Prefix) {
	for other, pool := range s.Pools.All() {
		if other == name {
			continue
		}
		for _, p := range pool.Prefixes {
			if p.Overlaps(prefix) {
				return other, p
			}
		}
	}
	return "", netip.Prefix{}
}

// PoolRemoval says why the pool can't go: a VIP names it.
func PoolRemoval(s desired.State, name string) error {
	var users []string
	for vip := range s.VIPsIn(s.Pools.At(name)) {
		if vip.Pool == name || vip.Overload.Step(model.ActionScrub) >= 0 {
			users = append(users, vip.Name)
		}
	}
	if len(users) == 0 {
		return nil
	}
	return &model.FieldError{Field: "name", Reason: fmt.Sprintf("%s is the pool of %d VIPs: %s", name, len(users), list(users))}
}

// keptAddress is the address that vip has in s and goes on to have when it asks its pool for one.
func keptAddress(s desired.State, vip model.VIP) netip.Addr {
	pool, old := s.Pools.At(vip.Pool), s.VIPs.At(vip.Name)
	if !pool.Covers(old.Address) || pool.Excludes(old.Address) || !vip.WantedFamily().Of(old.Address) {
		return netip.Addr{}
	}
	return old.Address
}

// allocate gives vip an address of its pool, the first one that nobody has.
func (a *admission) allocate(path string, vip model.VIP) model.VIP {
	pool, there := a.Pools.Get(vip.Pool)
	if !there {
		return vip // told by pooled
	}
	if a.Restored.Pending() {
		a.refuse(path+".pool", "%s gives no address yet: the store was restored from a backup, and not all nodes have told what they have: "+
			"try again in some minutes", pool.Name)
		return vip
	}
	family := vip.WantedFamily()
	prefixes := slices.Clone(pool.Prefixes)
	if family == "" { // IPv4 first
		slices.SortStableFunc(prefixes, func(x, y netip.Prefix) int { return cmp.Compare(x.Addr().BitLen(), y.Addr().BitLen()) })
	}
	some := false
	for _, prefix := range prefixes {
		if !family.Of(prefix.Addr()) {
			continue
		}
		some = true
		if address := a.free(pool, prefix); address.IsValid() {
			vip.Address = address
			return vip
		}
	}
	if some {
		a.refuse(path+".pool", "%s has no free address left: add a prefix to it", pool.Name)
	} else {
		a.refuse(path+".pool", "%s has no %s addresses", pool.Name, family)
	}
	return vip
}

// free is the first free address of prefix. It goes on where the last search of this admission ended.
func (a *admission) free(pool model.AddressPool, prefix netip.Prefix) netip.Addr {
	next, searched := a.searched[prefix]
	if !searched {
		next = prefix.Addr()
	}
	for prefix.Contains(next) {
		before := next
		for u := range a.Addresses.From(next) {
			if u.Address.Compare(next) > 0 {
				break
			}
			if u.Address == next {
				next = next.Next()
			}
		}
		if around, excluded := exclusion(pool, next); excluded {
			next = last(around).Next()
		} else if spread(a.State, next) != "" || ofOverlay(a.State, next) != "" {
			next = next.Next()
		}
		if next == before {
			a.searched[prefix] = next.Next()
			return next
		}
	}
	a.searched[prefix] = next
	return netip.Addr{}
}

func exclusion(pool model.AddressPool, address netip.Addr) (netip.Prefix, bool) {
	i := slices.IndexFunc(pool.Exclusions, func(p netip.Prefix) bool { return p.Contains(address) })
	if i < 0 {
		return netip.Prefix{}, false
	}
	return pool.Exclusions[i], true
}

// last is the last address of p.
func last(p netip.Prefix) netip.Addr {
	bytes := p.Addr().AsSlice()
	for bit := p.Bits(); bit < len(bytes)*8; bit++ {
		bytes[bit/8] |= 1 << (7 - bit%8)
	}
	address, _ := netip.AddrFromSlice(bytes)
	return address
}

// pooled holds vip to the pool that it names, and to the one that has its address.
func (a *admission) pooled(path string, vip model.VIP) {
	if vip.Pool != "" {
		pool, there := a.Pools.Get(vip.Pool)
		switch {
		case !there:
			a.refuse(path+".pool", "there is no pool %s: %s", vip.Pool, a.pools(vip.Tenant))
			return
		case vip.Address.IsValid() && !pool.Covers(vip.Address):
			a.refuse(path+".address", "%s is not of pool %s", vip.Address, vip.Pool)
		case !pool.Serves(vip.Tenant):
			a.refuse(path+".pool", "%s is not for tenant %s", vip.Pool, vip.Tenant)
			return
		}
	}
	for pool := range a.Pools.Values() {
		if _, reason := refuses(pool, vip); reason != "" {
			if !pool.Serves(vip.Tenant) {
				reason = "a pool that is not for tenant " + vip.Tenant + " has it"
			}
			a.refuse(path+".address", "%s: %s", vip.Address, reason)
		}
	}
}

// pools lists those that the tenant may take addresses of.
func (a *admission) pools(tenant string) string {
	var known []string
	for name, pool := range a.Pools.All() {
		if pool.Serves(tenant) {
			known = append(known, name)
		}
	}
	if len(known) == 0 {
		return "there is none yet, apply an AddressPool first"
	}
	return list(known)
}

// refuses says why vip may not have its address, by the pool that has it, and the pool's field that says so.
func refuses(p model.AddressPool, vip model.VIP) (field, reason string) {
	switch {
	case !p.Covers(vip.Address):
	case p.Excludes(vip.Address):
		return "exclusions", fmt.Sprintf("pool %s excludes it", p.Name)
	case !p.Serves(vip.Tenant):
		return "tenants", fmt.Sprintf("pool %s is not for tenant %s", p.Name, vip.Tenant)
	}
	return "", ""
}

// scrubs says why vip can't be sent through the scrubber that it names; empty: it can, or names none.
func scrubs(s desired.State, vip model.VIP) (reason string) {
	step := vip.Overload.Step(model.ActionScrub)
	if step < 0 {
		return ""
	}
	name := vip.Overload.Steps[step].Scrubber
	pool, there := s.PoolOf(vip.Address)
	if !there {
		return fmt.Sprintf("there is no scrubber %.64s: the address is in no pool, and pools have the scrubbers", name)
	}
	var known []string
	for _, scrubber := range pool.Scrubbers {
		if known = append(known, scrubber.Name); scrubber.Name != name {
			continue
		}
		if !scrubber.Diverts(vip.Address) {
			return fmt.Sprintf("scrubber %s of pool %s has neither an %s next hop nor a community", name, pool.Name, model.FamilyOf(vip.Address))
		}
		return ""
	}
	if len(known) == 0 {
		return fmt.Sprintf("pool %s has no scrubber", pool.Name)
	}
	return fmt.Sprintf("pool %s has no scrubber %.64s: %s", pool.Name, name, list(known))
}
