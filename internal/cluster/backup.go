package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// Backup is a consistent copy of the whole store, with its SHA-256 behind it.
type Backup struct {
	io.ReadCloser
	Revision int64 // of the newest write that must be in it; see CheckBackup
}

// Backup copies the whole store, as of now: what was acknowledged before is in the copy. An etcd's copy is what one of
// its members has, which may lag. So an external one is copied from a member that has just answered a read that asks the
// majority, over a connection to that one alone.
func (c *Cluster) Backup(ctx context.Context) (*Backup, error) {
	if c.etcd.Server() != nil {
		return backupOf(ctx, c.etcd.Client)
	}
	var errs []error
	for _, endpoint := range c.etcd.Endpoints() {
		client, err := c.etcd.DialOne(ctx, endpoint)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		copied, err := backupOf(ctx, client)
		if err == nil {
			copied.ReadCloser = &copyOfOne{copied.ReadCloser, client}
			return copied, nil
		}
		errs = append(errs, err)
		client.Close()
	}
	return nil, errors.Join(errs...)
}

// backupOf copies the store of a client that asks one member alone.
func backupOf(ctx context.Context, client *clientv3.Client) (*Backup, error) {
	reading, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	newest, err := client.Txn(reading).Then(clientv3.OpGet(keyspace.Generation), clientv3.OpGet(keyspace.Trust)).Commit()
	if err != nil {
		return nil, etcd.Explain("read the store", err)
	}
	b := &Backup{}
	for _, r := range newest.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			b.Revision = max(b.Revision, kv.ModRevision)
		}
	}
	if b.ReadCloser, err = client.Snapshot(ctx); err != nil {
		return nil, etcd.Explain("copy the store", err)
	}
	return b, nil
}

// copyOfOne ends the connection that it came by.
type copyOfOne struct {
	io.ReadCloser
	client *clientv3.Client
}

func (c *copyOfOne) Close() error { return errors.Join(c.ReadCloser.Close(), c.client.Close()) }

// CheckBackup says what is wrong with a backup in a file: it must hold what was written up to a revision. One that was
// copied while its member of an external etcd started again, or behind an address of several, may lack it.
func CheckBackup(path string, revision int64) error {
	status, err := snapshot.NewV3(zap.NewNop()).Status(path)
	if err != nil {
		return fmt.Errorf("read the copy: %w", err)
	}
	if status.Revision < revision {
		return fmt.Errorf("the copy is of revision %d, and lacks what was written up to %d: etcd's member lags, try again", status.Revision, revision)
	}
	return nil
}
