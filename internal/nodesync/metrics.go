package nodesync

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/telemetry"
)

// Metrics count streams and reports of nodes, by role.
type Metrics struct {
	streams    *prometheus.GaugeVec
	refused    *prometheus.CounterVec
	rejections *prometheus.CounterVec
	acked      *prometheus.HistogramVec
	dropped    *prometheus.CounterVec
}

// NewMetrics makes them.
func NewMetrics() *Metrics {
	byRole := []string{"role"}
	m := &Metrics{
		streams: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "weir_manager_streams", Help: "Open streams of nodes to this manager.",
		}, byRole),
		refused: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_manager_streams_refused_total", Help: "Streams that were refused because this manager was partitioned from the store, or behind what the node had seen.",
		}, byRole),
		rejections: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_manager_rejections_total", Help: "Generations that nodes connected to this manager rejected.",
		}, byRole),
		acked: telemetry.Seconds("weir_manager_sync_duration_seconds", "Time from sending a generation to a node until the node acknowledges it.", byRole...),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "weir_manager_node_events_dropped_total", Help: "Events that nodes reported and that were dropped: too many in one report, of an unknown reason, or about what is not there.",
		}, byRole),
	}
	for _, role := range []model.Role{model.RoleMux, model.RoleHost, model.RoleSwitch} {
		m.streams.WithLabelValues(string(role))
		m.refused.WithLabelValues(string(role))
		m.rejections.WithLabelValues(string(role))
		m.acked.WithLabelValues(string(role))
		m.dropped.WithLabelValues(string(role))
	}
	return m
}

// Collectors are all of them.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.streams, m.refused, m.rejections, m.acked, m.dropped}
}
