package store

import (
	"context"
	"io"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Backup returns a consistent copy of the whole store, as of now, and the SHA-256 of it behind it.
func (s *Store) Backup(ctx context.Context) (io.ReadCloser, error) {
	if err := s.Sync(ctx); err != nil { // what was acknowledged by another replica is in it
		return nil, err
	}
	copied, err := s.client.Snapshot(ctx)
	return copied, explain("copy the store", err)
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
