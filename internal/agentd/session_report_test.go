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

// The manager ends the moves of buckets by these counts, so one from before a change of the tables must never be told as
// one of after it.
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
	before := tables.standing()
	tables.apply(wire.HostUpdate{Generation: 5, Snapshot: true, Backends: []model.HostBackend{b}, HashKey: flowhash.Key{1: 2}})
	r.sessions(before, found, nil)
	if got := report(); got.GetSessionsCounted() || len(got.GetSessions()) != 0 {
		t.Errorf("a count from before the tables was told: %v", got.GetSessions())
	}
	if datapath.key != (flowhash.Key{1: 2}) {
		t.Error("the data plane was not told the hash key")
	}
	r.sessions(tables.standing(), found, nil)
	tables.apply(wire.HostUpdate{Generation: 6}) // others' business
	got := report()
	if got.GetGeneration() != 6 || !got.GetSessionsCounted() || len(got.GetSessions()) != 1 || got.GetSessions()[0].GetDraining() != 1 {
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

// Of tables that change in each sweep the count is of the generation before, and the report behind it says what runs.
func TestCountsOfTablesThatChangeAllTheTime(t *testing.T) {
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
	found := session.Report{Live: 3, Backends: []model.BackendSessions{{Key: b.Key(), Sessions: 3, WithoutCookie: 2, Draining: 1}}}
	tables.apply(wire.HostUpdate{Generation: 5, Snapshot: true, Backends: []model.HostBackend{b}, HashKey: flowhash.Key{1: 2}})
	for change := range 3 { // one in each sweep
		before := tables.standing()
		tables.apply(wire.HostUpdate{Generation: before.running + 1, Backends: []model.HostBackend{b}})
		r.sessions(before, found, nil)
		got, news, stream := r.request()
		if !got.GetSessionsCounted() || got.GetGeneration() != uint64(before.running) {
			t.Errorf("change %d: a count of generation %d was told as of %d: %v", change, before.running, got.GetGeneration(), got.GetSessionsCounted())
		}
		r.note(news, stream, nil)
		if got, _, _ := r.request(); got.GetSessionsCounted() || got.GetGeneration() != uint64(before.running)+1 {
			t.Errorf("change %d: then generation %d was told, of %d", change, got.GetGeneration(), before.running+1)
		}
	}
	// What runs of a generation that was refused is not known.
	before := tables.standing()
	r.sessions(before, found, nil)
	datapath.room = 0
	tables.apply(wire.HostUpdate{Generation: before.running + 1, Backends: []model.HostBackend{b}})
	if got, _, _ := r.request(); got.GetSessionsCounted() {
		t.Error("a count was told while the tables are in doubt")
	}
}
