package table

import (
	"fmt"
	"strings"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// Tenants has a row for each tenant, with what it uses of what it may have.
func Tenants(tenants []*weirv1.Tenant) *Table {
	t := New("", "no tenants: weir apply -f FILE makes some",
		"NAME", "RANGES", "VIPS", "ENDPOINTS", "BACKENDS", "PORTS", "PREFIXES", "FLOWS", "SESSIONS", "SNAT")
	for _, p := range tenants {
		used, most := p.GetUsed(), p.GetQuotas()
		t.Add(p.GetName(), TenantRanges(p), OfQuota(used.GetVips(), most.Vips), OfQuota(used.GetEndpoints(), most.Endpoints),
			OfQuota(used.GetBackends(), most.Backends), OfQuota(used.GetPorts(), most.Ports),
			OfQuota(used.GetPrefixes(), most.Prefixes), part(p.GetFlows()), part(p.GetSessions()), part(p.GetSnat()))
	}
	return t
}

// part is "12%" of what a tenant may have of a node's table.
func part(r *weirv1.NodeRows) string {
	if r.GetLimit() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*float64(r.GetUsed())/float64(r.GetLimit()))
}

// TenantRanges are the prefixes that the addresses of a tenant's VIPs lie in.
func TenantRanges(p *weirv1.Tenant) string {
	if len(p.GetRanges()) == 0 {
		return "all"
	}
	return strings.Join(p.GetRanges(), ",")
}

// OfQuota is "3/10", or "3" if there is no limit.
func OfQuota(used uint32, most *uint32) string {
	if most == nil {
		return fmt.Sprint(used)
	}
	return fmt.Sprintf("%d/%d", used, *most)
}
