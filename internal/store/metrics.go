package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/model"
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

// timedKV notes how long calls of etcd take.
type timedKV struct {
	clientv3.KV
	took *prometheus.HistogramVec
}

func (kv timedKV) note(operation string, began time.Time, err error) {
	result := "ok"
	if err != nil {
		result = "error"
	}
	kv.took.WithLabelValues(operation, result).Observe(time.Since(began).Seconds())
}

// Get is etcd's, timed.
func (kv timedKV) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	began := time.Now()
	r, err := kv.KV.Get(ctx, key, opts...)
	kv.note("get", began, err)
	return r, err
}

// Put is etcd's, timed.
func (kv timedKV) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse, error) {
	began := time.Now()
	r, err := kv.KV.Put(ctx, key, value, opts...)
	kv.note("put", began, err)
	return r, err
}

// Delete is etcd's, timed.
func (kv timedKV) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	began := time.Now()
	r, err := kv.KV.Delete(ctx, key, opts...)
	kv.note("delete", began, err)
	return r, err
}

// Txn is etcd's, whose commit is timed.
func (kv timedKV) Txn(ctx context.Context) clientv3.Txn { return timedTxn{kv.KV.Txn(ctx), kv} }

type timedTxn struct {
	clientv3.Txn
	kv timedKV
}

// If is etcd's.
func (t timedTxn) If(all ...clientv3.Cmp) clientv3.Txn { return timedTxn{t.Txn.If(all...), t.kv} }

// Then is etcd's.
func (t timedTxn) Then(ops ...clientv3.Op) clientv3.Txn { return timedTxn{t.Txn.Then(ops...), t.kv} }

// Else is etcd's.
func (t timedTxn) Else(ops ...clientv3.Op) clientv3.Txn { return timedTxn{t.Txn.Else(ops...), t.kv} }

// Commit is etcd's, timed.
func (t timedTxn) Commit() (*clientv3.TxnResponse, error) {
	began := time.Now()
	r, err := t.Txn.Commit()
	t.kv.note("transaction", began, err)
	return r, err
}

func newCallTimes() *prometheus.HistogramVec {
	return telemetry.Seconds("weir_manager_store_request_duration_seconds", "Duration of calls to etcd.", "operation", "result")
}

// Metrics describe what a store tells.
func Metrics() []prometheus.Collector {
	return []prometheus.Collector{newCallTimes(), telemetry.NewScrape(metrics, nil)}
}

// timed makes the client note how long its calls take.
func timed(client *clientv3.Client) *prometheus.HistogramVec {
	took := newCallTimes()
	client.KV = timedKV{client.KV, took}
	return took
}

// Collectors are the store's metrics.
func (s *Store) Collectors() []prometheus.Collector {
	return []prometheus.Collector{s.took, telemetry.NewScrape(metrics, s.sample)}
}

// sampleTimeout bounds how long a scrape waits for etcd.
const sampleTimeout = 2 * time.Second

func (s *Store) sample(to *telemetry.Sample) {
	telemetry.Put(to, "weir_manager_store_revision", s.State().revision)
	waiting, shed := s.writes.waiting()
	for stage := range priorities {
		telemetry.Put(to, "weir_manager_store_queue_length", waiting[stage], stage.String())
		telemetry.Put(to, "weir_manager_store_queue_rejected_total", shed[stage], stage.String())
	}
	if s.member != nil {
		if free, err := freeBytes(s.member.dir); err == nil {
			telemetry.Put(to, "weir_manager_store_disk_free_bytes", free)
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), sampleTimeout)
	defer cancel()
	status, err := s.status(ctx)
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

// status asks the first etcd that answers.
func (s *Store) status(ctx context.Context) (status *clientv3.StatusResponse, err error) {
	endpoints := s.client.Endpoints()
	if len(endpoints) == 0 { // in this process
		endpoints = []string{""}
	}
	err = errors.New("there is no etcd")
	for _, endpoint := range endpoints {
		if status, err = s.client.Status(ctx, endpoint); err == nil {
			return status, nil
		}
	}
	return nil, err
}

// Current says which generation this manager's view has reached, or that it is behind what the store
// holds, which is asked.
func (s *Store) Current(ctx context.Context) (model.Generation, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	response, err := s.client.Get(ctx, keyGeneration)
	if err != nil {
		return 0, explain("read the store", err)
	}
	if len(response.Kvs) != 1 {
		return 0, fmt.Errorf("read the store: %s is missing", keyGeneration)
	}
	held := model.Generation(response.Kvs[0].ModRevision)
	if err := s.await(ctx, func(s *State) bool { return s.Generation >= held }); err != nil {
		return 0, fmt.Errorf("generation %d is behind the store's, %d", s.State().Generation, held)
	}
	return s.State().Generation, nil
}
