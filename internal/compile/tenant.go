package compile

import (
	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/model"
)

// TenantMessage writes t without what it uses.
func TenantMessage(t model.Tenant) *weirv1.Tenant {
	p := &weirv1.Tenant{
		Name: t.Name, Ranges: PrefixTexts(t.Ranges),
		Quotas: &weirv1.Quotas{
			Vips: t.Limits.VIPs, Endpoints: t.Limits.Endpoints, Backends: t.Limits.Backends, Ports: t.Limits.Ports, Prefixes: t.Limits.Prefixes,
			Networks: t.Limits.Networks, Workloads: t.Limits.Workloads, Attachments: t.Limits.Attachments,
			SwitchHosts: t.Limits.SwitchHosts, SwitchTunnels: t.Limits.SwitchTunnels,
		},
	}
	if !t.Backends.IsZero() {
		p.Backends = &weirv1.TenantBackends{Hosts: t.Backends.Hosts, Prefixes: PrefixTexts(t.Backends.Prefixes)}
	}
	return p
}

// Tenant reads and validates a tenant. Fields that are output only are left aside.
func Tenant(p *weirv1.Tenant) (model.Tenant, error) {
	return validated(tenant(p))
}

// StoredTenant is to Tenant what StoredVIP is to VIP.
func StoredTenant(p *weirv1.Tenant) (model.Tenant, error) {
	return read(tenant(p))
}

func tenant(p *weirv1.Tenant) (model.Tenant, *Fields) {
	var f Fields
	t := model.Tenant{
		Name: p.GetName(), Ranges: f.Prefixes("ranges", p.GetRanges()),
		Backends: model.TenantBackends{
			Prefixes: f.Prefixes("backends.prefixes", p.GetBackends().GetPrefixes()), Hosts: p.GetBackends().GetHosts(),
		},
	}
	if q := p.GetQuotas(); q != nil {
		t.Limits = model.Quotas{
			VIPs: q.Vips, Endpoints: q.Endpoints, Backends: q.Backends, Ports: q.Ports, Prefixes: q.Prefixes,
			Networks: q.Networks, Workloads: q.Workloads, Attachments: q.Attachments,
			SwitchHosts: q.SwitchHosts, SwitchTunnels: q.SwitchTunnels,
		}
	}
	return t, &f
}
