package admission

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// Tenants are all that there are, with what finds them by the addresses that are theirs. It is read only.
type Tenants struct {
	all      map[string]model.Tenant
	ranges   prefixOwners
	backends prefixOwners
}

// NewTenants indexes tenants, which must not change any more.
func NewTenants(all map[string]model.Tenant) *Tenants {
	t := &Tenants{all: all, ranges: prefixOwners{at: map[netip.Prefix][]string{}}, backends: prefixOwners{at: map[netip.Prefix][]string{}}}
	for name, tenant := range all {
		t.ranges.add(name, tenant.Ranges)
		t.backends.add(name, tenant.Backends.Prefixes)
	}
	return t
}

// ofOther says whether an address is in what belongs to another tenant than name.
func (t *Tenants) ofOther(name string, address netip.Addr) bool {
	return t.ranges.hasOther(name, address) || t.backends.hasOther(name, address)
}

// prefixOwners finds the tenants that have an address by their prefixes, without walking all of those.
type prefixOwners struct {
	at      map[netip.Prefix][]string // masked
	lengths [2][]int                  // of the prefixes of IPv4, and of IPv6
}

func (o *prefixOwners) add(tenant string, prefixes []netip.Prefix) {
	for _, p := range prefixes {
		lengths := &o.lengths[familyIndex(p.Addr())]
		if !slices.Contains(*lengths, p.Bits()) {
			*lengths = append(*lengths, p.Bits())
		}
		o.at[p.Masked()] = append(o.at[p.Masked()], tenant)
	}
}

func familyIndex(a netip.Addr) int {
	if a.Is4() {
		return 0
	}
	return 1
}

func (o *prefixOwners) hasOther(tenant string, address netip.Addr) bool {
	for _, bits := range o.lengths[familyIndex(address)] {
		p, err := address.Prefix(bits)
		if err == nil && slices.ContainsFunc(o.at[p], func(owner string) bool { return owner != tenant }) {
			return true
		}
	}
	return false
}

// ownership holds the VIPs of one tenant to what is the tenant's.
type ownership struct {
	desired.State // with the VIPs that are written
	tenants       *Tenants
	tenant        model.Tenant
	errs          model.FieldErrorList
}

func (o *ownership) refuse(field, format string, args ...any) {
	o.errs.Refuse(field, format, args...)
}

// vip looks at every field of a VIP that names an address.
func (o *ownership) vip(path string, vip model.VIP) {
	o.address(path+".address", vip.Address)
	for i, e := range vip.Endpoints {
		for j, b := range e.Backends {
			o.backend(fmt.Sprintf("%s.endpoints[%d].backends[%d]", path, i, j), b)
		}
	}
	if vip.Hardware != nil {
		for i, t := range vip.Hardware.TIPs {
			o.tip(fmt.Sprintf("%s.hardware.tips[%d].address", path, i), t.Address)
		}
	}
	if vip.SNAT == nil {
		return
	}
	for i, w := range vip.SNAT.Workloads {
		o.backend(fmt.Sprintf("%s.snat.workloads[%d]", path, i), model.Backend{Address: w.Address, Host: w.Host, Tunnel: w.Tunnel})
	}
}

// address holds that an address which the network brings to a VIP is the tenant's.
func (o *ownership) address(field string, address netip.Addr) {
	contains := func(p netip.Prefix) bool { return p.Contains(address) }
	switch inside := slices.ContainsFunc(o.tenant.Ranges, contains); {
	case len(o.tenant.Ranges) > 0 && !inside:
		o.refuse(field, "%s is not in the ranges of tenant %s: %s", address, o.tenant.Name, joined(o.tenant.Ranges))
	case !inside && o.tenants.ofOther(o.tenant.Name, address):
		o.refuse(field, "%s is another tenant's", address)
	}
}

// tip holds that an address which switches have as a TIP is the tenant's, or declared for TIPs of its VIPs.
func (o *ownership) tip(field string, address netip.Addr) {
	for pool := range o.Pools.Values() {
		if pool.HasTIP(address) && pool.Serves(o.tenant.Name) && !o.tenants.ofOther(o.tenant.Name, address) {
			return
		}
	}
	before := o.errs.Len()
	if o.address(field, address); o.errs.Len() == before && len(o.tenant.Ranges) == 0 {
		o.refuse(field, "%s is in the tips of no address pool for tenant %s, which has no ranges", address, o.tenant.Name)
	}
}

// backend looks at a workload's address, and at its tunnel. A tunnel may be an address of the workload's host.
func (o *ownership) backend(path string, b model.Backend) {
	if reason := o.notReached(b.Address); reason != "" {
		o.refuse(path+".address", "%s %s", b.Address, reason)
	}
	if !b.Tunnel.IsValid() || b.Tunnel == b.Address {
		return
	}
	for u := range o.Addresses.Of(b.Tunnel, desired.AsNode) {
		if u.Name == b.Host {
			return
		}
	}
	if reason := o.notReached(b.Tunnel); reason != "" {
		o.refuse(path+".tunnel", "%s %s", b.Tunnel, reason)
	}
}

// notReached says why VIPs of the tenant must not lead to an address, or nothing.
func (o *ownership) notReached(address netip.Addr) (reason string) {
	own := o.tenant.Backends
	for u := range o.Addresses.Of(address, desired.AsNode) {
		if !slices.Contains(own.Hosts, u.Name) {
			return fmt.Sprintf("is an address of node %s itself, which backends.hosts of tenant %s does not name", u.Name, o.tenant.Name)
		}
		return ""
	}
	switch {
	case slices.ContainsFunc(own.Prefixes, func(p netip.Prefix) bool { return p.Contains(address) }):
		return ""
	case !own.IsZero():
		return fmt.Sprintf("is not in the backends of tenant %s: %s", o.tenant.Name, named(own))
	case o.tenants.ofOther(o.tenant.Name, address):
		return "is another tenant's"
	}
	for _, as := range []desired.Purpose{desired.AsVIP, desired.AsBackend, desired.AsTunnel, desired.AsWorkload, desired.AsTIP} {
		for u := range o.Addresses.Of(address, as) {
			if o.VIPs.At(u.Name).Tenant != o.tenant.Name {
				return "is another tenant's"
			}
		}
	}
	return ""
}

// named lists what a tenant's backends may be.
func named(b model.TenantBackends) string {
	const most = 10
	list := joined(b.Prefixes[:min(most, len(b.Prefixes))])
	if len(b.Hosts) == 0 {
		return list
	}
	if list != "" {
		list += ", "
	}
	return list + "own addresses of " + strings.Join(b.Hosts[:min(most, len(b.Hosts))], ", ")
}

func joined(prefixes []netip.Prefix) string {
	texts := make([]string, len(prefixes))
	for i, p := range prefixes {
		texts[i] = p.String()
	}
	return strings.Join(texts, ", ")
}
