package rpc

import (
	"errors"
	"fmt"
	"net/netip"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// AddressPoolToProto writes p without the fields that are output only.
func AddressPoolToProto(p model.AddressPool) *weirv1.AddressPool {
	return &weirv1.AddressPool{
		Name: p.Name, Labels: p.Labels, Prefixes: rangeStrings(p.Prefixes), Exclusions: rangeStrings(p.Exclusions), Tenants: p.Tenants,
		Scrubbers: scrubbersToProto(p.Scrubbers), Blackhole: diversionToProto(p.Blackhole),
	}
}

func rangeStrings(list []netip.Prefix) []string {
	all := make([]string, 0, len(list))
	for _, p := range list {
		all = append(all, p.String())
	}
	return all
}

// AddressPoolFromProto reads and validates a pool. Fields that are output only are left aside.
func AddressPoolFromProto(p *weirv1.AddressPool) (model.AddressPool, error) {
	var f fields
	pool := model.AddressPool{
		Name: p.GetName(), Labels: p.GetLabels(), Tenants: p.GetTenants(),
		Prefixes: f.prefixes("prefixes", p.GetPrefixes()), Exclusions: f.prefixes("exclusions", p.GetExclusions()),
	}
	for i, s := range p.GetScrubbers() {
		path := fmt.Sprintf("scrubbers[%d]", i)
		pool.Scrubbers = append(pool.Scrubbers, model.Scrubber{Name: s.GetName(), Diversion: f.diversion(path, s.GetNextHops(), s.GetCommunities())})
	}
	if hole := p.GetBlackhole(); hole != nil {
		d := f.diversion("blackhole", hole.GetNextHops(), hole.GetCommunities())
		pool.Blackhole = &d
	}
	f.add(pool.Validate())
	return pool, f.err()
}

// AddressPoolsFromProto reads a list of pools; the paths of its field errors begin with pools[i].
func AddressPoolsFromProto(list []*weirv1.AddressPool) ([]model.AddressPool, error) {
	var pools []model.AddressPool
	var errs []error
	for i, p := range list {
		pool, err := AddressPoolFromProto(p)
		pools = append(pools, pool)
		errs = append(errs, below(fmt.Sprintf("pools[%d]", i), err))
	}
	return pools, errors.Join(errs...)
}
