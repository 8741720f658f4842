package admission

import (
	"fmt"
	"maps"
	"slices"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// TenantVIPs says whether vips, admitted otherwise, lead only to what is their tenants', and are within what these
// may have. Of a tenant that there is none of anything is admitted, unless all are to be confined: then it is one
// without prefixes and quotas. What takes nothing more is admitted even if the tenant has too much already.
func TenantVIPs(s desired.State, vips []model.VIP, tenants *Tenants, confined bool) error {
	var errs model.FieldErrorList
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
		errs.Add(o.errs.Err())
	}
	for _, name := range slices.Sorted(maps.Keys(last)) {
		errs.Add(quotas(s, tenants.all[name], last[name], replaced))
	}
	return errs.Err()
}

// quotas compares what the tenant has before and after with its limits. The errors name the last
// of its VIPs that are written.
func quotas(s desired.State, tenant model.Tenant, last int, written map[string]model.VIP) error {
	before := s.Usage(tenant.Name)
	after := before
	for name, vip := range written {
		if old := s.VIPs.At(name); old.Tenant == tenant.Name {
			after.Remove(old)
			after.RemoveSplit(s, old)
		}
		if vip.Tenant == tenant.Name {
			after.Add(vip)
			after.AddSplit(s, vip)
		}
	}
	wasAttached := s.Networks.Usage(tenant.Name).Attachments
	attached := wasAttached
	for name, vip := range written {
		if old := s.VIPs.At(name); old.Tenant == tenant.Name {
			attached -= uint32(len(old.Attachments))
		}
		if vip.Tenant == tenant.Name {
			attached += uint32(len(vip.Attachments))
		}
	}
	var errs model.FieldErrorList
	for _, q := range []struct {
		field, what   string
		limit         *uint32
		before, after uint32
	}{
		{"tenant", "VIPs", tenant.Limits.VIPs, before.VIPs, after.VIPs},
		{"endpoints", "endpoints", tenant.Limits.Endpoints, before.Endpoints, after.Endpoints},
		{"endpoints", "backends", tenant.Limits.Backends, before.Backends, after.Backends},
		{"endpoints", "ports", tenant.Limits.Ports, before.Ports, after.Ports},
		{"hardware.switches", "places in switches", tenant.Limits.SwitchHosts, before.SwitchHosts, after.SwitchHosts},
		{"hardware.switches", "tunnels in switches", tenant.Limits.SwitchTunnels, before.SwitchTunnels, after.SwitchTunnels},
		{"attachments", "attachments to virtual networks", tenant.Limits.Attachments, wasAttached, attached},
	} {
		if q.limit != nil && q.after > *q.limit && q.after > q.before {
			errs.Refuse(fmt.Sprintf("vips[%d].%s", last, q.field),
				"tenant %s may have %d %s, and would have %d", tenant.Name, *q.limit, q.what, q.after)
		}
	}
	return errs.Err()
}
