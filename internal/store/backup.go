package store

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/etcdutl/v3/snapshot"
	"go.uber.org/zap"
)

// Backup is a consistent copy of the whole store, with its SHA-256 behind it.
type Backup struct {
	io.ReadCloser
	Revision int64 // of the newest write that must be in it; see CheckBackup
}

// Backup copies the whole store, as of now: what was acknowledged before is in the copy. An etcd's copy is what one of
// its members has, which may lag. So an external one is copied from a member that has just answered a read that asks the
// majority, over a connection to that one alone.
func (s *Store) Backup(ctx context.Context) (*Backup, error) {
	if s.member != nil {
		return backupOf(ctx, s.client)
	}
	var errs []error
	for _, endpoint := range s.external.Endpoints {
		one := s.external
		one.Endpoints = []string{endpoint}
		client, err := dialExternal(ctx, one)
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
	reading, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	newest, err := client.Txn(reading).Then(clientv3.OpGet(keyGeneration), clientv3.OpGet(keyTrust)).Commit()
	if err != nil {
		return nil, explain("read the store", err)
	}
	b := &Backup{}
	for _, r := range newest.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			b.Revision = max(b.Revision, kv.ModRevision)
		}
	}
	if b.ReadCloser, err = client.Snapshot(ctx); err != nil {
		return nil, explain("copy the store", err)
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

// Size is how much room the store takes.
type Size struct {
	Disk     int64 // bytes of the file
	Used     int64 // of these, bytes in use
	Quota    int64 // bytes that the file may have; 0: not known
	Warnings []string
}

// Size says how much room this replica's store takes, and what is wrong with it.
func (s *Store) Size(ctx context.Context) (Size, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	endpoint := ""
	if s.member == nil {
		endpoint = s.client.Endpoints()[0]
	}
	status, err := s.client.Status(ctx, endpoint)
	if err != nil {
		return Size{}, explain("ask the store for its size", err)
	}
	size := Size{Disk: status.DbSize, Used: status.DbSizeInUse, Quota: status.DbSizeQuota}
	for _, problem := range status.Errors {
		size.Warnings = append(size.Warnings, "etcd: "+problem)
	}
	if status.Leader == 0 {
		size.Warnings = append(size.Warnings, "etcd has no leader: a majority of the managers is away")
	}
	return size, nil
}

const (
	// tidyEvery is how often a replica looks whether its store needs defragmentation.
	tidyEvery = 5 * time.Minute
	// A store is defragmented when it takes more of its quota than half, and half of that is not in use.
	tidyShare = 2
)

// tidy gives room back that compaction freed, until ctx ends: etcd does not by itself. Only this replica's
// copy is rewritten, and only when it is worth while: it answers nothing meanwhile.
func (s *Store) tidy(ctx context.Context) error {
	tick := time.NewTicker(s.tidyEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := s.tidyOnce(ctx); err != nil && ctx.Err() == nil {
			s.log.Warn("can't make room in the store, trying again", "err", err)
		}
	}
}

func (s *Store) tidyOnce(ctx context.Context) error {
	size, err := s.Size(ctx)
	if err != nil {
		return err
	}
	full, err := s.full(ctx)
	if err != nil {
		return err
	}
	if tight := size.Disk > size.Quota/tidyShare && size.Used < size.Disk/tidyShare; !tight && !full {
		return nil
	}
	if full { // room is needed now: what auto-compaction would keep goes too
		if _, err := s.client.Compact(ctx, s.State().revision); err != nil {
			s.log.Debug("compact the store", "err", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := s.client.Defragment(ctx, ""); err != nil {
		return explain("defragment the store", err)
	}
	after, err := s.Size(ctx)
	if err != nil {
		return err
	}
	s.log.Info("made room in the store", "old", size.Disk, "new", after.Disk)
	if full && after.Disk < after.Quota {
		return s.disarm(ctx)
	}
	return nil
}

// full says whether etcd is read-only because a replica's quota is reached.
func (s *Store) full(ctx context.Context) (bool, error) {
	alarms, err := s.client.AlarmList(ctx)
	if err != nil {
		return false, explain("ask the store for alarms", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE && alarm.MemberID == s.memberID() {
			return true, nil
		}
	}
	return false, nil
}

// disarm ends the alarm of this replica, which has room again.
func (s *Store) disarm(ctx context.Context) error {
	_, err := s.client.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: s.memberID(), Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		return explain("end the store's alarm", err)
	}
	s.log.Info("the store has room again")
	return nil
}

func (s *Store) memberID() uint64 { return uint64(s.member.etcd.Server.MemberID()) }
