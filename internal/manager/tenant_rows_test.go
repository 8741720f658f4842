package manager

import (
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
)

// A tenant's flows are told of the mux where it is nearest to what that remembers of them, its sessions and rows of source NAT
// likewise of a host; of nodes that say nothing of it, as older ones do, and of tenants that have none, nothing is told.
func TestTenantsAreToldWhereTheyAreFullest(t *testing.T) {
	url, _ := start(t, Config{})
	client := dial(t, url)
	if _, err := client.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}, {Name: "blue"}}}); err != nil {
		t.Fatal(err)
	}
	rows := func(used, limit uint64) []*weirv1.TenantRows {
		return []*weirv1.TenantRows{{Tenant: "red", Used: used, Limit: limit}}
	}
	host1, host2 := startHost(t, url, "host1", "10.2.1.1"), startHost(t, url, "host2", "10.2.2.2")
	mux1, mux2 := startMux(t, url, "mux1", "10.1.1.2"), startMux(t, url, "mux2", "10.1.1.3")
	startMux(t, url, "mux3", "10.1.1.4")
	report := func() error {
		_, err := mux1.client.ReportMux(t.Context(), &weirv1.ReportMuxRequest{Name: "mux1", Status: &weirv1.MuxStatus{Flows: rows(90, 1000)}})
		if err == nil {
			_, err = mux2.client.ReportMux(t.Context(), &weirv1.ReportMuxRequest{Name: "mux2", Status: &weirv1.MuxStatus{Flows: rows(50, 100)}})
		}
		if err == nil {
			_, err = host1.client.ReportHost(t.Context(), &weirv1.ReportHostRequest{Name: "host1", Status: &weirv1.HostStatus{TenantSessions: rows(7, 10), TenantSnat: rows(1, 9)}})
		}
		if err == nil {
			_, err = host2.client.ReportHost(t.Context(), &weirv1.ReportHostRequest{Name: "host2", Status: &weirv1.HostStatus{TenantSessions: rows(60, 100), TenantSnat: rows(2, 9)}})
		}
		return err
	}
	said := func(r *weirv1.NodeRows, node string, used, limit uint64) bool {
		return r.GetNode() == node && r.GetUsed() == used && r.GetLimit() == limit
	}
	eventually(t, "both are told", func() bool {
		if report() != nil {
			return false
		}
		list, err := client.ListTenants(t.Context(), &weirv1.ListTenantsRequest{})
		one, failed := client.GetTenant(t.Context(), &weirv1.GetTenantRequest{Name: "red"})
		if err != nil || failed != nil || len(list.GetTenants()) != 2 {
			return false
		}
		blue, red := list.GetTenants()[0], list.GetTenants()[1]
		if blue.GetFlows() != nil || blue.GetSessions() != nil || blue.GetSnat() != nil {
			t.Fatalf("a tenant without flows and sessions has %v, %v and %v", blue.GetFlows(), blue.GetSessions(), blue.GetSnat())
		}
		for _, tenant := range []*weirv1.Tenant{red, one.GetTenant()} {
			if !said(tenant.GetFlows(), "mux2", 50, 100) || !said(tenant.GetSessions(), "host1", 7, 10) || !said(tenant.GetSnat(), "host2", 2, 9) {
				return false
			}
		}
		return true
	})
}
