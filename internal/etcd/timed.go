package etcd

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/telemetry"
)

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

// NewCallTimes describes how long calls take.
func NewCallTimes() *prometheus.HistogramVec {
	return telemetry.Seconds("weir_manager_store_request_duration_seconds", "Duration of calls to etcd.", "operation", "result")
}

// timeCalls makes the client note how long its calls take.
func timeCalls(client *clientv3.Client) *prometheus.HistogramVec {
	took := NewCallTimes()
	client.KV = timedKV{client.KV, took}
	return took
}

// CallTimes are how long calls took.
func (c *Client) CallTimes() prometheus.Collector { return c.took }
