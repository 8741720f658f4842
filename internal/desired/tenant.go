package desired

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/model"
)

// Usage is what a tenant has.
type Usage struct{ VIPs, Endpoints, Backends, Ports, Prefixes uint32 }

func (u *Usage) add(vip model.VIP) { u.count(vip, 1) }

// count adds what vip has n times; n is 1 or -1.
func (u *Usage) count(vip model.VIP, n int) {
	each := uint32(n) // of -1: one less
	u.VIPs += each
	for _, e := range vip.Endpoints {
		u.Endpoints += each
		u.Backends += each * uint32(len(e.Backends))
		if e.Port == model.AllPorts {
			u.Ports += each * model.AllPortsCount
		} else {
			u.Ports += each
		}
	}
}

// Usage is what the tenant has.
func (s State) Usage(tenant string) Usage {
	u := s.usage.At(tenant)
	u.Prefixes = uint32(s.ListedPrefixes(tenant))
	return u
}

// countUse notes that a tenant has vip, or, if n is -1, that it has it no more.
func (s *State) countUse(vip model.VIP, n int) {
	u := s.usage.At(vip.Tenant)
	if u.count(vip, n); u == (Usage{}) {
		s.usage.Delete(vip.Tenant)
		return
	}
	s.usage.Set(vip.Tenant, u)
}

// AdmitTenants says whether vips, admitted otherwise, lead only to what is their tenants', and are within what these
// may have. Of a tenant that there is none of anything is admitted, unless all are to be confined: then it is one
// without prefixes and quotas. What takes nothing more is admitted even if the tenant has too much already.
func (s State) AdmitTenants(vips []model.VIP, tenants *Tenants, confined bool) error {
	var errs []error
	last, replaced := map[string]int{}, map[string]model.VIP{}
	next := s.Clone()
	for _, vip := range vips {
		next.PutVIP(vip)
		replaced[vip.Name] = vip
	}
	for i, vip := range vips {
		tenant, there := tenants.all[vip.Tenant]
		if there {
			last[vip.Tenant] = i
		} else if !confined {
			continue
		}
		tenant.Name = vip.Tenant
		o := ownership{State: next, tenants: tenants, tenant: tenant}
		o.vip(fmt.Sprintf("vips[%d]", i), vip)
		errs = append(errs, o.errs...)
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		errs = append(errs, s.admitQuotas(tenants.all[name], last[name], replaced)...)
	}
	return errors.Join(errs...)
}

// admitQuotas compares what the tenant has before and after with its limits. The errors name the last
// of its VIPs that are written.
func (s State) admitQuotas(tenant model.Tenant, last int, written map[string]model.VIP) []error {
	before := s.usage.At(tenant.Name)
	after := before
	for name, vip := range written {
		if old := s.VIPs.At(name); old.Tenant == tenant.Name {
			after.count(old, -1)
		}
		if vip.Tenant == tenant.Name {
			after.add(vip)
		}
	}
	var errs []error
	for _, q := range []struct {
		field, what   string
		limit         *uint32
		before, after uint32
	}{
		{"tenant", "VIPs", tenant.Limits.VIPs, before.VIPs, after.VIPs},
		{"endpoints", "endpoints", tenant.Limits.Endpoints, before.Endpoints, after.Endpoints},
		{"endpoints", "backends", tenant.Limits.Backends, before.Backends, after.Backends},
		{"endpoints", "ports", tenant.Limits.Ports, before.Ports, after.Ports},
	} {
		if q.limit != nil && q.after > *q.limit && q.after > q.before {
			errs = append(errs, &model.FieldError{Field: fmt.Sprintf("vips[%d].%s", last, q.field), Reason: fmt.Sprintf(
				"tenant %s may have %d %s, and would have %d", tenant.Name, *q.limit, q.what, q.after)})
		}
	}
	return errs
}
