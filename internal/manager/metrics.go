package manager

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/apiserver"
	"github.com/weirlb/weir/internal/cluster"
	"github.com/weirlb/weir/internal/controller/overload"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/nodesync"
	"github.com/weirlb/weir/internal/placementpolicy"
	"github.com/weirlb/weir/internal/snatalloc"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/telemetry"
)

// metrics are what a manager tells of the desired state and of the nodes. Only muxes have series of
// their own, which are few; hosts are counted.
var metrics = []telemetry.Metric{
	{Name: "weir_manager_generation", Help: "Generation of the desired state, as this manager has it."},
	{Name: "weir_manager_published_generation", Help: "Generation that muxes are sent: hosts have acknowledged what it needs of them."},
	{Name: "weir_manager_leader", Help: "1 while this manager leads: it writes the desired state."},
	{Name: "weir_manager_epoch", Help: "Epoch of the newest leader that this manager knows."},
	{Name: "weir_manager_vips", Help: "VIPs."},
	{Name: "weir_manager_endpoints", Help: "Endpoints of all VIPs."},
	{Name: "weir_manager_backends", Help: "Backends of all endpoints, by their health.", Labels: []string{"health"}},
	{Name: "weir_manager_endpoints_without_backends", Help: "Endpoints without a backend that is healthy or unchecked."},
	{Name: "weir_manager_overload_vips", Help: "VIPs under an overload action, by the strongest action in force.", Labels: []string{"action"}},
	{Name: "weir_manager_backlog_endpoints", Help: "Endpoints whose SYNs muxes are to answer, as the backlog of a backend is full."},
	{Name: "weir_manager_nodes", Help: "Registered nodes, by whether their stream is open to any manager.", Labels: []string{"role", "connected"}},
	{Name: "weir_manager_nodes_rejecting", Help: "Nodes that rejected their newest generation.", Labels: []string{"role"}},
	{Name: "weir_manager_nodes_behind", Help: "Connected nodes that do not run the published generation yet.", Labels: []string{"role"}},
	{Name: "weir_manager_snat_workloads", Help: "Workloads with source NAT."},
	{Name: "weir_manager_snat_ports", Help: "Source NAT ports that are allocated to workloads."},
	{Name: "weir_manager_hardware_vips", Help: "Places of VIPs in switches, by phase: each switch of a VIP counts.", Labels: []string{"phase"}},
	{Name: "weir_manager_hardware_flooded_vips", Help: "VIPs that muxes serve in place of switches, as they are flooded or were lately."},
	{Name: "weir_manager_fabric_links", Help: "Links of the fabric, by state as switches report: declared, there, missing, down, unexpected, flapping; the leader alone tells them.", Labels: []string{"state"}},
	{Name: "weir_manager_drained_switches", Help: "Switches that are drained."},
	{Name: "weir_manager_mux_connected", Help: "1 while the mux's stream is open to any manager.", Labels: []string{"mux"}},
	{Name: "weir_manager_mux_generation", Help: "Generation that the mux runs.", Labels: []string{"mux"}},
	{Name: "weir_manager_mux_seen_timestamp_seconds", Help: "When the mux last reported; 0: never.", Labels: []string{"mux"}},
}

// meters are what a manager counts as it goes.
type meters struct {
	steps *prometheus.CounterVec // of overload policies, by action

	api   *apiserver.Metrics
	ports *snatalloc.Metrics
	nodes *nodesync.Metrics

	silenceIgnored prometheus.Gauge
	refusedBacklog prometheus.Gauge
}

func newMeters() *meters {
	m := &meters{
		api:   apiserver.NewMetrics(),
		ports: snatalloc.NewMetrics(),
		nodes: nodesync.NewMetrics(),
		silenceIgnored: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_manager_host_failover_suspended", Help: "1 while this leader takes no silent host out of service, because most hosts are silent.",
		}),
		refusedBacklog: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "weir_manager_backlog_reports_refused", Help: "Full backlogs that hosts report of backends that they have not.",
		}),
	}
	m.steps = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "weir_manager_overload_steps_total", Help: "Overload actions that this manager took as the leader.",
	}, []string{"action"})
	for _, action := range model.OverloadActions {
		m.steps.WithLabelValues(string(action))
	}
	return m
}

var roles = []model.Role{model.RoleMux, model.RoleHost, model.RoleSwitch}

func (m *meters) collectors() []prometheus.Collector {
	return append(slices.Concat(m.api.Collectors(), m.ports.Collectors(), m.nodes.Collectors()), m.silenceIgnored, m.refusedBacklog, m.steps)
}

// Metrics describe all that a manager tells, but for what etcd does.
func Metrics() []prometheus.Collector {
	return append(append(newMeters().collectors(), telemetry.NewScrape(metrics, nil)), cluster.Metrics()...)
}

// observe has the manager's telemetry show it.
func (m *Manager) observe() {
	m.observed.Register(m.meters.collectors()...)
	m.observed.Register(m.cluster.Collectors()...)
	m.observed.Register(telemetry.NewScrape(metrics, m.sample))
	m.observed.AddLibrary("etcd_")
	m.observed.Ready("store", func(ctx context.Context) (string, error) {
		generation, err := m.store.Current(ctx)
		return fmt.Sprintf("%s, generation %d", m.cluster, generation), err
	})
}

// sample tells the desired state and how far the nodes are.
func (m *Manager) sample(to *telemetry.Sample) {
	s := m.view()
	forMuxes, late := m.hub.PublishedGeneration()
	telemetry.Put(to, "weir_manager_generation", uint64(s.Generation))
	telemetry.Put(to, "weir_manager_published_generation", uint64(forMuxes))
	telemetry.PutIf(to, "weir_manager_leader", m.replica.Leads())
	telemetry.Put(to, "weir_manager_epoch", uint64(s.Epoch))
	telemetry.Put(to, "weir_manager_vips", s.VIPs.Len())
	_, ranges := s.Ports.Digest()
	telemetry.Put(to, "weir_manager_snat_ports", ranges*model.RangePorts)
	telemetry.Put(to, "weir_manager_snat_workloads", s.Ports.WorkloadCount())
	for action, vips := range overload.InForce(s) {
		telemetry.Put(to, "weir_manager_overload_vips", vips, string(action))
	}
	sampleHardware(to, s)
	found := m.links.Counts()
	for state, n := range map[string]int{
		"declared": found.Declared, "there": found.There, "missing": found.Missing, "down": found.Down, "unexpected": found.Unexpected, "flapping": found.Flapping,
	} {
		telemetry.Put(to, "weir_manager_fabric_links", n, state)
	}
	telemetry.Put(to, "weir_manager_backlog_endpoints", m.backlogs.Len())
	n := m.inventory.of(s)
	telemetry.Put(to, "weir_manager_endpoints", n.endpoints)
	telemetry.Put(to, "weir_manager_endpoints_without_backends", n.dead)
	for _, health := range []model.Health{model.HealthHealthy, model.HealthUnhealthy, model.HealthUnknown, model.HealthPending} {
		telemetry.Put(to, "weir_manager_backends", n.backends[health], string(health))
	}
	sampleNodes(to, s, m.reports, forMuxes, late)
}

// sampleHardware tells where VIPs are of switches.
func sampleHardware(to *telemetry.Sample, s *store.State) {
	places, flooded := map[placementpolicy.Phase]int{}, 0
	for state := range s.Placements.Values() {
		if state.Flood.Withdrawn {
			flooded++
		}
		for _, place := range state.Places {
			places[place.Phase]++
		}
	}
	for _, phase := range placementpolicy.Phases {
		telemetry.Put(to, "weir_manager_hardware_vips", places[phase], string(phase))
	}
	drained := 0
	for node := range s.Nodes.Values() {
		if !node.Drained.IsZero() {
			drained++
		}
	}
	telemetry.Put(to, "weir_manager_hardware_flooded_vips", flooded)
	telemetry.Put(to, "weir_manager_drained_switches", drained)
}

// tally counts the nodes of a role.
type tally struct{ connected, away, rejecting, behind int }

func sampleNodes(to *telemetry.Sample, s *store.State, reports *nodesync.Reports, forMuxes model.Generation, late int) {
	tallies := map[model.Role]*tally{}
	for _, role := range roles {
		tallies[role] = &tally{}
	}
	for name, node := range s.Nodes.All() {
		status, connected := s.Status.At(name), s.Streams.At(name)
		n := tallies[node.Role]
		if n == nil {
			continue
		}
		if node.Role == model.RoleMux {
			said, _ := reports.Newest(s, node)
			sampleMux(to, name, status.Generation, said.Seen, connected)
		}
		if connected {
			n.connected++
		} else {
			n.away++
		}
		if status.Rejected > status.Generation {
			n.rejecting++
		}
		if connected && node.Role == model.RoleMux && status.Generation < forMuxes {
			n.behind++
		}
	}
	tallies[model.RoleHost].behind = late
	for role, n := range tallies {
		telemetry.Put(to, "weir_manager_nodes", n.connected, string(role), "true")
		telemetry.Put(to, "weir_manager_nodes", n.away, string(role), "false")
		telemetry.Put(to, "weir_manager_nodes_rejecting", n.rejecting, string(role))
		telemetry.Put(to, "weir_manager_nodes_behind", n.behind, string(role))
	}
}

func sampleMux(to *telemetry.Sample, name string, runs model.Generation, seen time.Time, connected bool) {
	telemetry.PutIf(to, "weir_manager_mux_connected", connected, name)
	telemetry.Put(to, "weir_manager_mux_generation", uint64(runs), name)
	at := 0.0
	if !seen.IsZero() {
		at = float64(seen.UnixMilli()) / 1000
	}
	telemetry.Put(to, "weir_manager_mux_seen_timestamp_seconds", at, name)
}
