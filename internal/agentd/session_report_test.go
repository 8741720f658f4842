package agentd

import (
	"log/slog"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/agentd/healthcheck"
	"github.com/weirlb/weir/internal/agentd/snat"
	"github.com/weirlb/weir/internal/datapath/agent/session"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/wire"
)

// The manager ends the moves of buckets by these counts, so one from before a change of the tables
// must never go out after it.
func TestSessionsAreCountedAfterTheTables(t *testing.T) {
	datapath := newFakeDatapath()
	config := Config{Datapath: datapath, Workloads: newFakeWorkloads(), Log: slog.New(slog.DiscardHandler)}
	tables, err := newTables(config)
	if err != nil {
		t.Fatal(err)
	}
	r := newReports(config, tables, snat.New(config.Ports, "", config.Log, tables.list))
	r.findings = func() []healthcheck.Finding { return nil }
	r.restart()
	b := unchecked(1)
	found := session.Report{
		Live: 3, Backends: []model.BackendSessions{{Key: b.Key(), Sessions: 3, WithoutCookie: 2, Draining: 1}},
		Tenants: []session.TenantSessions{{Tenant: "acme", Confirmed: 3, Limit: 70}},
		SNAT:    session.SNATReport{Tenants: []session.SNATTableUsage{{Tenant: "acme", Used: 4, Limit: 80}}},
	}
	report := func() *weirv1.ReportHostRequest {
		request, _, _ := r.request()
		return request
	}
	before := tables.standing().changes
	tables.apply(wire.HostUpdate{Generation: 5, Snapshot: true, Backends: []model.HostBackend{b}, HashKey: flowhash.Key{1: 2}})
	r.sessions(before, found, nil)
	if got := report(); got.GetSessionsCounted() || len(got.GetSessions()) != 0 {
		t.Errorf("a count from before the tables was told: %v", got.GetSessions())
	}
	if datapath.key != (flowhash.Key{1: 2}) {
		t.Error("the data plane was not told the hash key")
	}
	r.sessions(tables.standing().changes, found, nil)
	tables.apply(wire.HostUpdate{Generation: 6}) // others' business
	got := report()
	if !got.GetSessionsCounted() || len(got.GetSessions()) != 1 || got.GetSessions()[0].GetDraining() != 1 {
		t.Errorf("the count was not told: %v", got)
	}
	if s := got.GetStatus().GetTenantSessions(); len(s) != 1 || s[0].GetTenant() != "acme" || s[0].GetUsed() != 3 || s[0].GetLimit() != 70 {
		t.Errorf("tenants have sessions %v", s)
	}
	if s := got.GetStatus().GetTenantSnat(); len(s) != 1 || s[0].GetTenant() != "acme" || s[0].GetUsed() != 4 || s[0].GetLimit() != 80 {
		t.Errorf("tenants have rows of source NAT %v", s)
	}
	_, news, stream := r.request()
	r.note(news, stream, nil)
	if got := report(); got.GetSessionsCounted() {
		t.Error("a count was told twice")
	}
}
