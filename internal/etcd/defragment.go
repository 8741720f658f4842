package etcd

import (
	"context"
	"errors"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Size is how much room the store takes.
type Size struct {
	Disk     int64 // bytes of the file
	Used     int64 // of these, bytes in use
	Quota    int64 // bytes that the file may have; 0: not known
	Warnings []string

	revision int64
}

// Size says how much room this replica's store takes, and what is wrong with it.
func (c *Client) Size(ctx context.Context) (Size, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	endpoint := ""
	if c.server == nil {
		endpoint = c.Endpoints()[0]
	}
	status, err := c.Status(ctx, endpoint)
	if err != nil {
		return Size{}, Explain("ask the store for its size", err)
	}
	size := Size{Disk: status.DbSize, Used: status.DbSizeInUse, Quota: status.DbSizeQuota, revision: status.Header.GetRevision()}
	for _, problem := range status.Errors {
		size.Warnings = append(size.Warnings, "etcd: "+problem)
	}
	if status.Leader == 0 {
		size.Warnings = append(size.Warnings, "etcd has no leader: a majority of the managers is away")
	}
	return size, nil
}

const (
	// defragEvery is how often a replica looks whether its store needs defragmentation.
	defragEvery = 5 * time.Minute
	// A store is defragmented when it takes more of its quota than half, and half of that is not in use.
	defragShare = 2
)

// defragment gives room back that compaction freed, until ctx ends: etcd does not by itself. Only this replica's
// copy is rewritten, and only when it is worth while: it answers nothing meanwhile.
func (c *Client) defragment(ctx context.Context) error {
	tick := time.NewTicker(c.defragEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		if err := c.defragmentOnce(ctx); err != nil && ctx.Err() == nil {
			c.log.Warn("can't make room in the store, trying again", "err", err)
		}
	}
}

func (c *Client) defragmentOnce(ctx context.Context) error {
	size, err := c.Size(ctx)
	if err != nil {
		return err
	}
	full, err := c.isFull(ctx)
	if err != nil {
		return err
	}
	if tight := size.Disk > size.Quota/defragShare && size.Used < size.Disk/defragShare; !tight && !full {
		return nil
	}
	if full { // room is needed now: what auto-compaction would keep goes too
		if _, err := c.Compact(ctx, size.revision); err != nil {
			c.log.Debug("compact the store", "err", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if _, err := c.Defragment(ctx, ""); err != nil {
		return Explain("defragment the store", err)
	}
	after, err := c.Size(ctx)
	if err != nil {
		return err
	}
	c.log.Info("made room in the store", "old", size.Disk, "new", after.Disk)
	if full && after.Disk < after.Quota {
		return c.disarm(ctx)
	}
	return nil
}

// isFull says whether etcd is read-only because a replica's quota is reached.
func (c *Client) isFull(ctx context.Context) (bool, error) {
	alarms, err := c.AlarmList(ctx)
	if err != nil {
		return false, Explain("ask the store for alarms", err)
	}
	for _, alarm := range alarms.Alarms {
		if alarm.Alarm == etcdserverpb.AlarmType_NOSPACE && alarm.MemberID == c.server.ID() {
			return true, nil
		}
	}
	return false, nil
}

// disarm ends the alarm of this replica, which has room again.
func (c *Client) disarm(ctx context.Context) error {
	_, err := c.AlarmDisarm(ctx, &clientv3.AlarmMember{MemberID: c.server.ID(), Alarm: etcdserverpb.AlarmType_NOSPACE})
	if err != nil {
		return Explain("end the store's alarm", err)
	}
	c.log.Info("the store has room again")
	return nil
}

// FirstStatus is that of the first member that answers.
func (c *Client) FirstStatus(ctx context.Context) (status *clientv3.StatusResponse, err error) {
	endpoints := c.Endpoints()
	if len(endpoints) == 0 { // in this process
		endpoints = []string{""}
	}
	err = errors.New("there is no etcd")
	for _, endpoint := range endpoints {
		if status, err = c.Status(ctx, endpoint); err == nil {
			return status, nil
		}
	}
	return nil, err
}
