package desired

import (
	"iter"
	"math"
	"net/netip"

	"github.com/weirlb/weir/internal/model"
)

// VIPsIn are the VIPs that have an address of the pool, in order of their addresses.
func (s State) VIPsIn(p model.AddressPool) iter.Seq[model.VIP] {
	return func(yield func(model.VIP) bool) {
		for _, prefix := range p.Prefixes {
			for u := range s.Addresses.In(prefix) {
				if u.As == AsVIP && !yield(s.VIPs.At(u.Name)) {
					return
				}
			}
		}
	}
}

// PoolOf is the pool that has the address, if one has.
func (s State) PoolOf(address netip.Addr) (model.AddressPool, bool) {
	for pool := range s.Pools.Values() {
		if pool.Covers(address) {
			return pool, true
		}
	}
	return model.AddressPool{}, false
}

// PoolUse is how many addresses of one family a pool can give out, and how many VIPs have.
type PoolUse struct{ Total, Used uint64 }

// PoolUses are those of a pool, by family. Families that the pool has none of are left out.
func PoolUses(s State, p model.AddressPool) map[model.Family]PoolUse {
	all := map[model.Family]PoolUse{}
	for _, prefix := range p.Prefixes {
		use := all[model.FamilyOf(prefix.Addr())]
		use.Total = add(use.Total, size(prefix))
		all[model.FamilyOf(prefix.Addr())] = use
	}
	for _, prefix := range p.Exclusions {
		use := all[model.FamilyOf(prefix.Addr())]
		if use.Total != math.MaxUint64 {
			use.Total -= min(use.Total, size(prefix))
		}
		all[model.FamilyOf(prefix.Addr())] = use
	}
	for vip := range s.VIPsIn(p) {
		use := all[model.FamilyOf(vip.Address)]
		use.Used++
		all[model.FamilyOf(vip.Address)] = use
	}
	return all
}

// size is how many addresses p has; math.MaxUint64 stands for more.
func size(p netip.Prefix) uint64 {
	bits := p.Addr().BitLen() - p.Bits()
	if bits >= 64 {
		return math.MaxUint64
	}
	return 1 << bits
}

func add(x, y uint64) uint64 {
	if x > math.MaxUint64-y {
		return math.MaxUint64
	}
	return x + y
}
