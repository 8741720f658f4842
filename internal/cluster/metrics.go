package cluster

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/telemetry"
)

// metrics are what the store tells of itself.
var metrics = []telemetry.Metric{
	{Name: "weir_manager_store_up", Help: "1 while etcd answers."},
	{Name: "weir_manager_store_has_leader", Help: "1 while the etcd member asked knows a leader: without one nothing can be written."},
	{Name: "weir_manager_store_revision", Help: "Revision of the store that this manager has applied."},
	{Name: "weir_manager_store_queue_length", Help: "Changes that are queued for a write.", Labels: []string{"stage"}},
	{Name: "weir_manager_store_queue_rejected_total", Help: "Changes that were rejected because the queue was full.", Labels: []string{"stage"}},
	{Name: "weir_manager_store_db_bytes", Help: "Size of etcd's database on disk."},
	{Name: "weir_manager_store_db_used_bytes", Help: "Size of etcd's database in use; defragmentation frees the rest."},
	{Name: "weir_manager_store_db_quota_bytes", Help: "Size of the database at which etcd refuses writes; 0: unknown."},
	{Name: "weir_manager_store_disk_free_bytes", Help: "Free space on the disk of the embedded etcd. Below 96 MiB changes are refused."},
	{Name: "weir_manager_store_alarms", Help: "Alarms and errors that the etcd member asked reports."},
}

// Metrics describe what a store tells.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{etcd.NewCallTimes(), telemetry.NewScrape(metrics, nil)}
}

// Collectors are the store's metrics.
func (c *Cluster) Collectors() []prometheus.Collector {
	return []prometheus.Collector{c.etcd.CallTimes(), telemetry.NewScrape(metrics, c.sample)}
}

// sampleTimeout bounds how long a scrape waits for etcd.
const sampleTimeout = 2 * time.Second

func (c *Cluster) sample(to *telemetry.Sample) {
	telemetry.Put(to, "weir_manager_store_revision", c.Store.State().Revision())
	for stage, q := range c.Store.Queues() {
		telemetry.Put(to, "weir_manager_store_queue_length", q.Length, stage)
		telemetry.Put(to, "weir_manager_store_queue_rejected_total", q.Rejected, stage)
	}
	if server := c.etcd.Server(); server != nil {
		if free, err := server.FreeDisk(); err == nil {
			telemetry.Put(to, "weir_manager_store_disk_free_bytes", free)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sampleTimeout)
	defer cancel()
	status, err := c.etcd.FirstStatus(ctx)
	telemetry.PutIf(to, "weir_manager_store_up", err == nil)
	if err != nil {
		return
	}
	telemetry.PutIf(to, "weir_manager_store_has_leader", status.Leader != 0)
	telemetry.Put(to, "weir_manager_store_db_bytes", status.DbSize)
	telemetry.Put(to, "weir_manager_store_db_used_bytes", status.DbSizeInUse)
	telemetry.Put(to, "weir_manager_store_db_quota_bytes", status.DbSizeQuota)
	telemetry.Put(to, "weir_manager_store_alarms", len(status.Errors))
}
