package agentd

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/agentd/healthcheck"
	"github.com/weirlb/weir/internal/agentd/multipath"
	"github.com/weirlb/weir/internal/agentd/overlay"
	"github.com/weirlb/weir/internal/telemetry"
)

// allMetrics are these, and those of virtual networks.
func allMetrics() []telemetry.Metric {
	return slices.Concat(metrics, overlay.Metrics(), multipath.Metrics)
}

// metrics are what a host tells, beside those of its stream and its checks. Their labels take values
// from what lives on the host and the names of verdicts alone.
var metrics = []telemetry.Metric{
	{Name: "weir_agent_packets_total", Help: "Packets by verdict.", Labels: []string{"verdict"}},
	{Name: "weir_agent_bytes_total", Help: "Bytes of packets by verdict.", Labels: []string{"verdict"}},
	{Name: "weir_agent_datagrams_evicted_total", Help: "Fragmented datagrams of workloads whose state was evicted early, by whose datagrams took the room: the same tenant's or another's.", Labels: []string{"reason"}},
	{Name: "weir_agent_steered_total", Help: "Packets that switches brought, by why they went where they did.", Labels: []string{"reason"}},
	{Name: "weir_agent_steered_vips", Help: "VIPs whose packets switches may bring."},
	{Name: "weir_agent_generation", Help: "Generation of the rules in force."},
	{Name: "weir_agent_rejected_generation", Help: "Newer generation that was rejected; 0: none."},
	{Name: "weir_agent_backends", Help: "Backends of this host."},
	{Name: "weir_agent_backends_missing", Help: "Backends whose address was not found on this host."},
	{Name: "weir_agent_muxes", Help: "Outer source addresses and prefixes of muxes that packets are accepted from."},
	{Name: "weir_agent_sessions", Help: "Sessions at the last sweep."},
	{Name: "weir_agent_session_capacity", Help: "Sessions that the table has room for."},
	{Name: "weir_agent_sessions_ended_total", Help: "Sessions that ended because they were idle."},
	{Name: "weir_agent_vip_sessions", Help: "Sessions of a VIP at the last sweep: confirmed or new.", Labels: []string{"vip", "state"}},
	{Name: "weir_agent_vip_session_limit", Help: "Most confirmed sessions of a VIP, while others leave room.", Labels: []string{"vip"}},
	{Name: "weir_agent_backend_sessions", Help: "Sessions of a backend at the last sweep.", Labels: backendLabels},
	{Name: "weir_agent_backend_sessions_without_cookie", Help: "Sessions without a cookie, which muxes find by flow table and bucket alone.", Labels: backendLabels},
	{Name: "weir_agent_backend_sessions_draining", Help: "Sessions that depend on daisy chaining: their bucket moved to another backend.", Labels: backendLabels},
	{Name: "weir_agent_backend_healthy", Help: "1 while the backend is healthy by its checks. Only of checked backends.", Labels: []string{"vip", "protocol", "port", "backend"}},
	{Name: "weir_agent_backlog_full_backends", Help: "Backends that take no more connections for now, by how the agent knows.", Labels: []string{"reason"}},
	{Name: "weir_agent_keepalives_total", Help: "Keepalive probes to workloads that were silent."},
	{Name: "weir_agent_keepalive_failures_total", Help: "Rounds of keepalive probes that failed."},
	{Name: "weir_agent_snat_ports", Help: "Source NAT ports that are allocated to a workload.", Labels: portLabels},
	{Name: "weir_agent_snat_block_ports", Help: "Source NAT ports of the host's port block.", Labels: []string{"vip"}},
	{Name: "weir_agent_snat_block_ports_lent", Help: "Source NAT ports of the host's port block that workloads have.", Labels: []string{"vip"}},
	{Name: "weir_agent_snat_block_requests_total", Help: "Requests to the manager for the host's port block.", Labels: []string{"vip"}},
	{Name: "weir_agent_snat_ports_in_use", Help: "Source NAT ports that a workload's connections use.", Labels: portLabels},
	{Name: "weir_agent_snat_flows", Help: "Source NAT flows of a workload.", Labels: portLabels},
	{Name: "weir_agent_snat_queued_packets", Help: "Packets of a workload that are queued for a port.", Labels: portLabels},
	{Name: "weir_agent_snat_requests_total", Help: "Port requests to the manager.", Labels: portLabels},
	{Name: "weir_agent_snat_flows_created_total", Help: "Source NAT flows that were created with a port at hand.", Labels: portLabels},
	{Name: "weir_agent_snat_flows_queued_total", Help: "Source NAT flows whose first packet was queued for a port.", Labels: portLabels},
	{Name: "weir_agent_snat_exhausted_total", Help: "Packets that got no port: dropped or rejected, after queueing or at once.", Labels: portLabels},
	{Name: "weir_agent_snat_tenant_rows", Help: "Rows of a tenant in the source NAT table of which it uses most of its limit.", Labels: []string{"tenant"}},
	{Name: "weir_agent_snat_tenant_row_limit", Help: "Most rows of the tenant in that table, while others leave room.", Labels: []string{"tenant"}},
	{Name: "weir_agent_fastpath_connections", Help: "Fastpath connections at the last sweep, by state.", Labels: []string{"state"}},
	{Name: "weir_agent_fastpath_messages_total", Help: "Fastpath messages and connections, by result.", Labels: []string{"result"}},
	{Name: "weir_agent_warnings", Help: "Warnings that the agent reports."},
}

var portLabels = []string{"vip", "workload"}

var backendLabels = []string{"vip", "protocol", "port", "tunnel"}

// Metrics describe all that a host tells.
func Metrics() []prometheus.Collector {
	return append(telemetry.NewStream("weir_agent").Collectors(), healthcheck.NewDurations(), telemetry.NewScrape(allMetrics(), nil))
}

// observe has the agent's telemetry show it.
func (a *Agent) observe() {
	t := a.config.Telemetry
	t.Register(a.stream.Collectors()...)
	t.Register(a.checks.Took, telemetry.NewScrape(allMetrics(), func(to *telemetry.Sample) {
		a.samplePackets(to)
		a.tables.sample(to)
		a.reports.sample(to)
		a.ports.Sample(to)
		a.checks.Sample(to)
		a.backlogs.Sample(to)
		a.fastpath.Sample(to)
		a.multipath.Sample(to)
		a.config.Networks.Sample(to)
		telemetry.Put(to, "weir_agent_session_capacity", a.config.MaxSessions)
		telemetry.Put(to, "weir_agent_keepalives_total", a.asked.Load())
		telemetry.Put(to, "weir_agent_keepalive_failures_total", a.unasked.Load())
	}))
	t.Ready("rules", func(context.Context) (string, error) { return a.tables.ready() })
	t.Ready("manager", func(context.Context) (string, error) { return a.stream.Ready() })
}

func (a *Agent) samplePackets(to *telemetry.Sample) {
	verdicts, err := a.config.Datapath.Verdicts()
	telemetry.PutCounters(to, "weir_agent", verdicts, err)
	steered, err := a.config.Datapath.Steered()
	if err != nil {
		to.Fail("weir_agent_steered_total", err)
	}
	for why, n := range steered {
		telemetry.Put(to, "weir_agent_steered_total", n.Packets, why)
	}
	lost, err := a.config.Datapath.LostDatagrams()
	if err != nil {
		to.Fail("weir_agent_datagrams_evicted_total", err)
	}
	for whose, n := range lost {
		telemetry.Put(to, "weir_agent_datagrams_evicted_total", n, whose)
	}
}

// sample tells what runs.
func (t *tables) sample(to *telemetry.Sample) {
	warnings := len(t.standing().warnings)
	t.mu.Lock()
	defer t.mu.Unlock()
	telemetry.Put(to, "weir_agent_generation", uint64(t.running))
	telemetry.Put(to, "weir_agent_rejected_generation", t.rejected.GetGeneration())
	telemetry.Put(to, "weir_agent_backends", len(t.backends))
	telemetry.Put(to, "weir_agent_backends_missing", len(t.missing))
	telemetry.Put(to, "weir_agent_muxes", len(t.muxes))
	telemetry.Put(to, "weir_agent_steered_vips", len(t.steered))
	telemetry.Put(to, "weir_agent_warnings", warnings)
}

// ready says what is missing until the rules run.
func (t *tables) ready() (string, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.running == 0:
		return "", errors.New("no rules have come yet")
	case t.lost != "":
		return "", errors.New(t.lost)
	case t.rejected != nil:
		return fmt.Sprintf("generation %d runs; %d was refused: %s",
			t.running, t.rejected.GetGeneration(), t.rejected.GetReason()), nil
	}
	return fmt.Sprintf("generation %d runs, %d backends", t.running, len(t.backends)), nil
}

// sample tells what the last sweep found.
func (r *reports) sample(to *telemetry.Sample) {
	r.mu.Lock()
	sessionReport, ended := r.sessionReport, r.ended
	r.mu.Unlock()
	telemetry.Put(to, "weir_agent_sessions", sessionReport.Live)
	telemetry.Put(to, "weir_agent_sessions_ended_total", ended)
	for _, v := range sessionReport.VIPs {
		vip := v.VIP.String()
		telemetry.Put(to, "weir_agent_vip_sessions", v.Confirmed, vip, "confirmed")
		telemetry.Put(to, "weir_agent_vip_sessions", v.New, vip, "new")
		telemetry.Put(to, "weir_agent_vip_session_limit", v.Limit, vip)
	}
	for _, t := range sessionReport.SNAT.Tenants {
		telemetry.Put(to, "weir_agent_snat_tenant_rows", t.Used, t.Tenant)
		telemetry.Put(to, "weir_agent_snat_tenant_row_limit", t.Limit, t.Tenant)
	}
	for _, s := range sessionReport.Backends {
		vip, protocol, port := telemetry.Endpoint(s.Key.Endpoint)
		tunnel := s.Key.Tunnel.String()
		telemetry.Put(to, "weir_agent_backend_sessions", s.Sessions, vip, protocol, port, tunnel)
		telemetry.Put(to, "weir_agent_backend_sessions_without_cookie", s.WithoutCookie, vip, protocol, port, tunnel)
		telemetry.Put(to, "weir_agent_backend_sessions_draining", s.Draining, vip, protocol, port, tunnel)
	}
}
