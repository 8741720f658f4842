// Package cluster is the life cycle of a manager among its replicas: it opens the store, tells it of this manager, adds and
// removes managers with their members of the embedded etcd, copies the store and makes one of a copy.
package cluster

import (
	"cmp"
	"context"
	"log/slog"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store"
)

// DefaultName is the name of a manager that was given none.
const DefaultName = "manager"

// Config says where the store is; its Name is that of this manager among the replicas.
type Config struct {
	etcd.Config
	Address string // host:port of this manager's API, for the others
}

// Cluster is the managers that share a store, as one of them sees them.
type Cluster struct {
	Store *store.Store
	etcd  *etcd.Client
	log   *slog.Logger
}

// Open opens the store and tells it of this manager. The store follows changes, and writes return, only while Run runs.
func Open(ctx context.Context, cfg Config) (*Cluster, error) {
	cfg.Name = cmp.Or(cfg.Name, DefaultName)
	client, err := etcd.Open(ctx, cfg.Config)
	if err != nil {
		return nil, err
	}
	c := &Cluster{etcd: client, log: cfg.Log}
	c.Store, err = store.Open(ctx, client, store.Config{Name: cfg.Name, Address: cfg.Address, Log: cfg.Log})
	if err == nil {
		err = c.markRestored(ctx)
	}
	if err == nil {
		err = c.enroll(ctx, cfg.Address)
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return c, nil
}

// String is "embedded: 1 member" or "external: http://10.0.0.1:2379".
func (c *Cluster) String() string { return c.etcd.String() }

// External says whether the store is an etcd of its own.
func (c *Cluster) External() bool { return c.etcd.Server() == nil }

// Size says how much room this replica's etcd takes, and what is wrong with it.
func (c *Cluster) Size(ctx context.Context) (etcd.Size, error) { return c.etcd.Size(ctx) }

// Close ends the connection to the store, and the embedded etcd.
func (c *Cluster) Close() { c.etcd.Close() }

// Run follows the store until ctx ends. It fails if the store holds something that it can't read, or its etcd ended.
func (c *Cluster) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.etcd.Run(ctx) })
	group.Go(func() error { return c.Store.Run(ctx) })
	return group.Wait()
}
