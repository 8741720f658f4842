package cluster

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// leap is by how many revisions a restored store is ahead of its backup at least.
const leap = 1_000_000_000

// Restore makes the store of a single manager of a backup, in a data directory that holds none. It is a
// cluster of its own then: of those of its members from before none may run on.
//
// Nodes may have seen generations and epochs from after the backup, and refuse lower ones: revisions go on
// from the time, in milliseconds, if that is more than those of the backup and a leap. So they also do when
// a backup is restored twice.
//
// Nor does the store know what was given out after the backup: it is marked as restored, and gives out nothing that may be
// in use until the manager knows; see desired.Restored.
//
// With newCA the store has no CA any more, and no token or certificate from before is good: the manager makes
// another CA when it starts, and all join anew.
func Restore(ctx context.Context, backup, dataDir, name string, newCA bool, log *slog.Logger) (model.Generation, error) {
	etcdDir := filepath.Join(dataDir, "etcd")
	if _, err := os.Stat(etcdDir); !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("restore into %s: it holds a store already: name an empty one with --data-dir, or move that away", dataDir)
	}
	restorer := snapshot.NewV3(zap.NewNop())
	status, err := restorer.Status(backup)
	if err != nil {
		return 0, fmt.Errorf("read the backup %s: %w", backup, err)
	}
	token := make([]byte, 8)
	if _, err := rand.Read(token); err != nil {
		return 0, fmt.Errorf("name the cluster: %w", err)
	}
	if err := os.MkdirAll(dataDir, 0o700); err != nil {
		return 0, fmt.Errorf("make the data directory: %w", err)
	}
	err = restorer.Restore(snapshot.RestoreConfig{
		SnapshotPath: backup, Name: name, OutputDataDir: etcdDir, PeerURLs: []string{etcd.Lonely},
		InitialCluster: name + "=" + etcd.Lonely, InitialClusterToken: "weir-" + hex.EncodeToString(token),
		RevisionBump: uint64(max(leap, time.Now().UnixMilli()-status.Revision)), MarkCompacted: true,
	})
	if err != nil {
		return 0, fmt.Errorf("restore the backup %s: %w", backup, errors.Join(err, os.RemoveAll(etcdDir)))
	}
	return begin(ctx, dataDir, name, newCA, log)
}

// begin starts a restored store once, to hold that it can be read, and to write what must be new: the
// generation, and nothing of the managers and streams from before.
func begin(ctx context.Context, dataDir, name string, newCA bool, log *slog.Logger) (model.Generation, error) {
	client, err := etcd.Open(ctx, etcd.Config{Name: name, DataDir: dataDir, Quota: etcd.MaxQuota, Log: log})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	none, err := codec.Encode(struct{}{})
	if err != nil {
		return 0, err
	}
	restored, err := codec.Encode(codec.RestoredDocument{})
	if err != nil {
		return 0, err
	}
	ops := append([]clientv3.Op{clientv3.OpPut(keyspace.Generation, none), clientv3.OpPut(keyspace.Restored, restored), clientv3.OpDelete(keyspace.Leader)},
		forgetManagers()...)
	if newCA {
		ops = append(ops, forgetCA()...)
	}
	written, err := client.Txn(ctx).Then(ops...).Commit()
	if err != nil {
		return 0, etcd.Explain("begin the restored store", err)
	}
	if err := store.Check(ctx, client, log); err != nil {
		return 0, err
	}
	return model.Generation(written.Header.Revision), nil
}

// markRestored marks a store as restored whose revision is far ahead of all that it holds: so it is when etcd's own tools restored
// it, with a bump of the revision, as an external one is.
func (c *Cluster) markRestored(ctx context.Context) error {
	state := c.Store.State()
	newest, err := c.etcd.Get(ctx, keyspace.Root, clientv3.WithPrefix(), clientv3.WithKeysOnly(),
		clientv3.WithSort(clientv3.SortByModRevision, clientv3.SortDescend), clientv3.WithLimit(1))
	if err != nil {
		return etcd.Explain("read the store", err)
	}
	if len(newest.Kvs) == 0 || newest.Header.Revision-newest.Kvs[0].ModRevision < leap/2 {
		return nil
	}
	none, err := codec.Encode(struct{}{})
	if err != nil {
		return err
	}
	restored, err := codec.Encode(codec.RestoredDocument{})
	if err != nil {
		return err
	}
	c.log.Warn("the store was restored", "old", newest.Kvs[0].ModRevision, "new", newest.Header.Revision)
	_, err = c.etcd.Txn(ctx). // if not another manager was faster
					If(clientv3.Compare(clientv3.ModRevision(keyspace.Generation), "=", int64(state.Generation))).
					Then(clientv3.OpPut(keyspace.Generation, none), clientv3.OpPut(keyspace.Restored, restored)).Commit()
	return etcd.Explain("mark the store as restored", err)
}
