package agentd

import (
	"context"
	"errors"
	"fmt"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/datapath/agent"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

// metrics are what a host tells, beside those of its stream and its checks. Their labels take values
// from what lives on the host and the names of verdicts alone.
var metrics = []telemetry.Metric{
	{Name: "weir_agent_packets_total", Help: "Packets by what became of them.", Labels: []string{"verdict"}},
	{Name: "weir_agent_bytes_total", Help: "Bytes of packets by what became of them.", Labels: []string{"verdict"}},
	{Name: "weir_agent_datagrams_lost_total", Help: "Datagrams that leave in fragments and were forgotten early, for the same tenant's or another's.", Labels: []string{"reason"}},
	{Name: "weir_agent_generation", Help: "Generation of the rules that run."},
	{Name: "weir_agent_rejected_generation", Help: "Generation that was refused since; 0: none."},
	{Name: "weir_agent_backends", Help: "Backends of this host."},
	{Name: "weir_agent_backends_missing", Help: "Addresses of backends that were not found on this host."},
	{Name: "weir_agent_muxes", Help: "Addresses and prefixes that packets are accepted from."},
	{Name: "weir_agent_sessions", Help: "Sessions at the last sweep."},
	{Name: "weir_agent_sessions_max", Help: "Sessions that there is room for."},
	{Name: "weir_agent_sessions_ended_total", Help: "Sessions that sweeps ended because they were idle."},
	{Name: "weir_agent_vip_sessions", Help: "Sessions of a VIP at the last sweep: proven or new.", Labels: []string{"vip", "state"}},
	{Name: "weir_agent_vip_session_limit", Help: "Confirmed sessions that a VIP may have, as long as others leave room.", Labels: []string{"vip"}},
	{Name: "weir_agent_backend_sessions", Help: "Sessions of a backend at the last sweep.", Labels: backendLabels},
	{Name: "weir_agent_backend_sessions_without_cookie", Help: "Sessions that muxes find by flow table and bucket alone.", Labels: backendLabels},
	{Name: "weir_agent_backend_sessions_draining", Help: "Sessions that live by chaining: their bucket went to another backend.", Labels: backendLabels},
	{Name: "weir_agent_backend_healthy", Help: "1 while the backend's checks say that it is healthy. Only of those that are checked.", Labels: []string{"vip", "protocol", "port", "backend"}},
	{Name: "weir_agent_keepalives_total", Help: "Silent workloads that were asked to speak to their clients."},
	{Name: "weir_agent_keepalive_failures_total", Help: "Rounds of such questions that failed."},
	{Name: "weir_agent_snat_ports", Help: "Ports that a workload has of its VIP.", Labels: portLabels},
	{Name: "weir_agent_snat_ports_in_use", Help: "Ports that a workload's own connections use.", Labels: portLabels},
	{Name: "weir_agent_snat_flows", Help: "Connections of a workload's own.", Labels: portLabels},
	{Name: "weir_agent_snat_held", Help: "Packets of a workload that wait for a port.", Labels: portLabels},
	{Name: "weir_agent_snat_requests_total", Help: "Requests for ports that were made to the manager.", Labels: portLabels},
	{Name: "weir_agent_snat_begun_total", Help: "Connections that found a port at once.", Labels: portLabels},
	{Name: "weir_agent_snat_waited_total", Help: "Connections that waited for a port.", Labels: portLabels},
	{Name: "weir_agent_snat_exhausted_total", Help: "Packets that found no port and waited in vain, or not at all.", Labels: portLabels},
	{Name: "weir_agent_snat_tenant_rows", Help: "Rows that a tenant has of the table of source NAT that it is nearest to the end of.", Labels: []string{"tenant"}},
	{Name: "weir_agent_snat_tenant_row_limit", Help: "Rows that it may have of that table, as long as others leave room.", Labels: []string{"tenant"}},
	{Name: "weir_agent_fastpath_connections", Help: "Connections that have left the muxes, at the last sweep.", Labels: []string{"state"}},
	{Name: "weir_agent_fastpath_messages_total", Help: "What came of messages and of connections that left the muxes.", Labels: []string{"result"}},
	{Name: "weir_agent_warnings", Help: "Lines of trouble that the agent reports."},
}

var portLabels = []string{"vip", "workload"}

var backendLabels = []string{"vip", "protocol", "port", "tunnel"}

// Metrics describe all that a host tells.
func Metrics() []prometheus.Collector {
	return append(telemetry.NewStream("weir_agent").Collectors(), newCheckTimes(), telemetry.NewScrape(metrics, nil))
}

// observe has the agent's telemetry show it.
func (a *Agent) observe() {
	t := a.config.Telemetry
	t.Register(a.stream.Collectors()...)
	t.Register(a.checks.took, telemetry.NewScrape(metrics, func(to *telemetry.Sample) {
		a.samplePackets(to)
		a.tables.sample(to)
		a.reports.sample(to)
		a.ports.sample(to)
		sampleHealth(to, a.checks.findings())
		a.direct.sample(to)
		telemetry.Put(to, "weir_agent_sessions_max", a.config.MaxSessions)
		telemetry.Put(to, "weir_agent_keepalives_total", a.asked.Load())
		telemetry.Put(to, "weir_agent_keepalive_failures_total", a.unasked.Load())
	}))
	t.Ready("rules", func(context.Context) (string, error) { return a.tables.ready() })
	t.Ready("manager", func(context.Context) (string, error) { return a.stream.Ready() })
}

func (a *Agent) samplePackets(to *telemetry.Sample) {
	verdicts, err := a.config.Datapath.Verdicts()
	if err != nil {
		to.Fail("weir_agent_packets_total", err)
	}
	for name, c := range verdicts {
		telemetry.Put(to, "weir_agent_packets_total", c.Packets, name)
		telemetry.Put(to, "weir_agent_bytes_total", c.Bytes, name)
	}
	lost, err := a.config.Datapath.LostDatagrams()
	if err != nil {
		to.Fail("weir_agent_datagrams_lost_total", err)
	}
	for whose, n := range lost {
		telemetry.Put(to, "weir_agent_datagrams_lost_total", n, whose)
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

func newCheckTimes() *prometheus.HistogramVec {
	return telemetry.Seconds("weir_agent_health_check_duration_seconds", "Time that health checks took.", "result")
}

func sampleHealth(to *telemetry.Sample, findings []finding) {
	for _, f := range findings {
		vip, protocol, port := telemetry.Endpoint(f.health.Endpoint)
		telemetry.PutIf(to, "weir_agent_backend_healthy", f.health.Health == model.HealthHealthy, vip, protocol, port, f.health.Backend.String())
	}
}

// sample tells of the connections that have left the muxes, where any may.
func (d *direct) sample(to *telemetry.Sample) {
	if d == nil {
		return
	}
	counts, states := d.told()
	for result, n := range counts {
		telemetry.Put(to, "weir_agent_fastpath_messages_total", n, result)
	}
	for _, state := range []agent.DirectState{agent.DirectAccept, agent.DirectSend} {
		telemetry.Put(to, "weir_agent_fastpath_connections", states[state], state.String())
	}
}
