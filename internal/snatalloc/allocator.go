package snatalloc

import (
	"context"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/events"
	"github.com/weirlb/weir/internal/inflight"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/snatport"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/telemetry"
	"github.com/weirlb/weir/internal/tokenbucket"
)

// Hub is what an Allocator needs of the one that tells nodes their tables.
type Hub interface {
	// Await returns when every healthy mux runs a generation.
	Await(ctx context.Context, generation model.Generation) error
	// AcknowledgedByMuxes is the generation that every healthy mux runs.
	AcknowledgedByMuxes() model.Generation
	// DigestAt sums up what muxes were told of source NAT at a generation.
	DigestAt(generation model.Generation) (ranges int, digest uint64, known bool)
	// Resend has a node get all its tables anew.
	Resend(node string)
}

// Config is what an Allocator works with.
type Config struct {
	Store    *store.Store
	Hub      Hub
	Events   *events.Recorder
	Rates    *tokenbucket.Buckets
	Reported func(*store.State, model.Node) (nodestatus.Status, *weirv1.NodeStatus) // the newest that a node reported
	Now      func() time.Time
	Log      *slog.Logger
}

// Allocator gives ports to workloads and takes them back.
type Allocator struct {
	Config

	Quarantine time.Duration // how long a range that was released is nobody's
	Metrics    *Metrics

	open      inflight.Limit // port requests, by host
	ofTenants inflight.Limit // the same ones
	requests  *requests
	drift     driftDetector
}

// New makes an allocator, which counts in metrics.
func New(cfg Config, metrics *Metrics) *Allocator {
	return &Allocator{
		Config: cfg, Quarantine: snatport.QuarantineTime, Metrics: metrics, requests: newRequests(), drift: newDriftDetector(),
	}
}

// Metrics are what an Allocator counts.
type Metrics struct {
	Requests *prometheus.CounterVec // by outcome
	took     *prometheus.HistogramVec
	stages   *prometheus.HistogramVec // by stage
	given    prometheus.Counter
	released prometheus.Counter
	faults   *prometheus.CounterVec // by where
}

// NewMetrics makes the metrics of an Allocator.
func NewMetrics() *Metrics {
	m := &Metrics{
		Requests: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_manager_snat_port_requests_total", Help: "Source NAT port requests that this manager handled as the leader, by result.",
		}, []string{"result"}),
		took: telemetry.Seconds("weir_manager_snat_port_request_duration_seconds",
			"Time from a granted port request to its answer, which comes when every healthy mux has the ports."),
		stages: telemetry.Seconds("weir_manager_snat_port_request_stage_duration_seconds",
			"Duration of the stages of a granted port request: the wait for the writer, the write, and the acknowledgement by every healthy mux.", "stage"),
		given: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_manager_snat_ports_allocated_total", Help: "Source NAT ports that were allocated.",
		}),
		released: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "weir_manager_snat_ports_released_total", Help: "Source NAT ports that hosts released.",
		}),
		faults: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_manager_snat_drift_total", Help: "Differences from the store that the audit of source NAT found and repaired, by where.",
		}, []string{"role"}),
	}
	for _, outcome := range []string{"granted", rpc.PortsOutstanding, rpc.PortsRate, rpc.PortsLimit, rpc.PortsExhausted, rpc.PortsRestored, "failed"} {
		m.Requests.WithLabelValues(outcome)
	}
	for _, stage := range []string{stageWait, stageWrite, stageMuxes} {
		m.stages.WithLabelValues(stage)
	}
	for _, where := range []string{faultStore, faultMux, faultHost} {
		m.faults.WithLabelValues(where)
	}
	return m
}

// Collectors are the metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Requests, m.took, m.stages, m.given, m.released, m.faults}
}
