package compile

import (
	"fmt"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// AddressPoolMessage writes p without the fields that are output only.
func AddressPoolMessage(p model.AddressPool) *weirv1.AddressPool {
	return &weirv1.AddressPool{
		Name: p.Name, Labels: p.Labels, Prefixes: PrefixTexts(p.Prefixes), Exclusions: PrefixTexts(p.Exclusions), Tips: PrefixTexts(p.TIPs), Tenants: p.Tenants,
		Scrubbers: scrubberMessages(p.Scrubbers), Blackhole: diversionMessage(p.Blackhole),
	}
}

// AddressPool reads and validates a pool. Fields that are output only are left aside.
func AddressPool(p *weirv1.AddressPool) (model.AddressPool, error) {
	return validated(addressPool(p))
}

// StoredAddressPool is to AddressPool what StoredVIP is to VIP.
func StoredAddressPool(p *weirv1.AddressPool) (model.AddressPool, error) {
	return read(addressPool(p))
}

func addressPool(p *weirv1.AddressPool) (model.AddressPool, *Fields) {
	var f Fields
	pool := model.AddressPool{
		Name: p.GetName(), Labels: p.GetLabels(), Tenants: p.GetTenants(),
		Prefixes: f.Prefixes("prefixes", p.GetPrefixes()), Exclusions: f.Prefixes("exclusions", p.GetExclusions()),
		TIPs: f.Prefixes("tips", p.GetTips()),
	}
	for i, s := range p.GetScrubbers() {
		path := fmt.Sprintf("scrubbers[%d]", i)
		pool.Scrubbers = append(pool.Scrubbers, model.Scrubber{Name: s.GetName(), Diversion: f.diversion(path, s.GetNextHops(), s.GetCommunities())})
	}
	if hole := p.GetBlackhole(); hole != nil {
		d := f.diversion("blackhole", hole.GetNextHops(), hole.GetCommunities())
		pool.Blackhole = &d
	}
	return pool, &f
}

// AddressPools reads a list of pools; the paths of its field errors begin with pools[i].
func AddressPools(list []*weirv1.AddressPool) ([]model.AddressPool, error) {
	var pools []model.AddressPool
	var errs model.FieldErrorList
	for i, p := range list {
		pool, err := AddressPool(p)
		pools = append(pools, pool)
		errs.Below(fmt.Sprintf("pools[%d]", i), err)
	}
	return pools, errs.Err()
}
