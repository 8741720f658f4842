package desired

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/weirlb/weir/internal/model"
)

// Usage is what a tenant has.
type Usage struct{ VIPs, Endpoints, Backends, Ports, Prefixes uint32 }

func (u *Usage) add(vip model.VIP) {
	u.VIPs++
	for _, e := range vip.Endpoints {
		u.Endpoints++
		u.Backends += uint32(len(e.Backends))
		if e.Port == model.AllPorts {
			u.Ports += model.AllPortsCount
		} else {
			u.Ports++
		}
	}
}

// Usage is what the tenant has.
func (s State) Usage(tenant string) Usage {
	var u Usage
	for vip := range s.VIPs.Values() {
		if vip.Tenant == tenant {
			u.add(vip)
		}
	}
	u.Prefixes = uint32(s.Listed(tenant))
	return u
}

// AdmitTenants says whether vips, admitted otherwise, are within what their tenants may have. What
// takes nothing more is admitted even if the tenant has too much already.
func (s State) AdmitTenants(vips []model.VIP, tenants map[string]model.Tenant) error {
	var errs []error
	last := map[string]int{}
	for i, vip := range vips {
		tenant, limited := tenants[vip.Tenant]
		if !limited {
			continue
		}
		last[vip.Tenant] = i
		inside := len(tenant.Ranges) == 0
		ranges := make([]string, 0, len(tenant.Ranges))
		for _, r := range tenant.Ranges {
			inside = inside || r.Contains(vip.Address)
			ranges = append(ranges, r.String())
		}
		if !inside {
			errs = append(errs, &model.FieldError{Field: fmt.Sprintf("vips[%d].address", i), Reason: fmt.Sprintf(
				"%s is not in the ranges of tenant %s: %s", vip.Address, vip.Tenant, strings.Join(ranges, ", "))})
		}
	}
	replaced := map[string]model.VIP{}
	for _, vip := range vips {
		replaced[vip.Name] = vip
	}
	names := make([]string, 0, len(last))
	for name := range last {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		errs = append(errs, s.admitQuotas(tenants[name], last[name], replaced)...)
	}
	return errors.Join(errs...)
}

// admitQuotas compares what the tenant has before and after with its limits. The errors name the last
// of its VIPs that are written.
func (s State) admitQuotas(tenant model.Tenant, last int, written map[string]model.VIP) []error {
	var before, after Usage
	for vip := range s.VIPs.Values() {
		if vip.Tenant != tenant.Name {
			continue
		}
		before.add(vip)
		if _, again := written[vip.Name]; !again {
			after.add(vip)
		}
	}
	for _, vip := range written {
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
