package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/model"
)

// ErrNotLeader is returned by writes of the desired state on a replica that does not lead. Nothing was
// written.
var ErrNotLeader = errors.New("this manager does not lead")

const (
	// leaderLease is how long after its death a leader keeps an external etcd's election key, in seconds.
	// The embedded one needs no lease: who leads etcd takes the key over.
	leaderLease = 3
	// leaderWait bounds how long a write waits for a leader to be found.
	leaderWait = 3 * time.Second
	// resignTimeout bounds how long a manager that stops tries to tell the others.
	resignTimeout = time.Second
)

// leaderDocument is the value of the election key.
type leaderDocument struct {
	Name    string `json:"name"`
	Address string `json:"address"` // of its API
}

// Epoch returns the epoch in which this replica leads, 0 if it does not, and a channel that is closed when
// that changes.
func (s *Store) Epoch() (model.Epoch, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.epoch, s.elected
}

func (s *Store) setEpoch(epoch model.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch {
		return
	}
	s.epoch = epoch
	close(s.elected)
	s.elected = make(chan struct{})
}

// fence returns the condition that every transaction on the desired state holds: the election key is still
// the one by which this replica leads. It waits a moment while nobody leads; on a replica that does not
// lead it fails with ErrNotLeader.
func (s *Store) fence(ctx context.Context) (clientv3.Cmp, model.Epoch, error) {
	expired := time.NewTimer(leaderWait)
	defer expired.Stop()
	for {
		epoch, elected := s.Epoch()
		if epoch != 0 {
			return clientv3.Compare(clientv3.CreateRevision(keyLeader), "=", int64(epoch)), epoch, nil
		}
		state, changed := s.Watch()
		if state.Leader != "" && state.Leader != s.name {
			return clientv3.Cmp{}, 0, ErrNotLeader
		}
		select {
		case <-elected:
		case <-changed:
		case <-expired.C:
			return clientv3.Cmp{}, 0, ErrNotLeader
		case <-ctx.Done():
			return clientv3.Cmp{}, 0, ctx.Err()
		}
	}
}

// elect campaigns and leads, again and again, until ctx ends.
func (s *Store) elect(ctx context.Context) error {
	for {
		err := s.lead(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.log.Debug("does not lead", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryWait):
		}
	}
}

// lead campaigns until this replica leads, and returns when it does no more, with the reason.
func (s *Store) lead(ctx context.Context) error {
	if s.member != nil {
		if err := s.member.awaitLeader(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lease clientv3.LeaseID
	var alive <-chan *clientv3.LeaseKeepAliveResponse
	if s.member == nil {
		granted, err := s.client.Grant(ctx, leaderLease)
		if err != nil {
			return explain("take a lease", err)
		}
		lease = granted.ID
		defer s.revoke(ctx, lease)
		if alive, err = s.client.KeepAlive(ctx, lease); err != nil {
			return explain("keep the lease", err)
		}
	}
	epoch, err := s.campaign(ctx, lease)
	if err != nil {
		return err
	}
	s.setEpoch(epoch)
	s.log.Info("this manager leads", "epoch", epoch)
	err = s.hold(ctx, epoch, alive)
	s.setEpoch(0)
	s.resign(ctx, epoch)
	s.log.Info("this manager leads no more", "epoch", epoch, "reason", err)
	return err
}

// campaign takes the election key. Where etcd is embedded, only the replica that leads it gets here, and
// takes the key from whoever had it; else it waits until the key is free.
func (s *Store) campaign(ctx context.Context, lease clientv3.LeaseID) (model.Epoch, error) {
	value, err := encode(leaderDocument{Name: s.name, Address: s.address})
	if err != nil {
		return 0, err
	}
	var options []clientv3.OpOption
	if lease != 0 {
		options = append(options, clientv3.WithLease(lease))
	}
	for {
		won, err := s.client.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(keyLeader), "=", 0)).
			Then(clientv3.OpPut(keyLeader, value, options...)).
			Else(clientv3.OpGet(keyLeader)).
			Commit()
		if err != nil {
			return 0, explain("take the lead", err)
		}
		if won.Succeeded {
			return model.Epoch(won.Header.Revision), nil
		}
		held := won.Responses[0].GetResponseRange().GetKvs()
		if len(held) == 0 {
			continue
		}
		if s.member != nil {
			err = s.free(ctx, held[0].CreateRevision)
		} else {
			err = s.awaitFree(ctx, won.Header.Revision)
		}
		if err != nil {
			return 0, explain("take the lead", err)
		}
	}
}

// free deletes the election key if it is still the one of epoch.
func (s *Store) free(ctx context.Context, epoch int64) error {
	_, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(keyLeader), "=", epoch)).
		Then(clientv3.OpDelete(keyLeader)).Commit()
	return err
}

// awaitFree returns when the election key was deleted after revision.
func (s *Store) awaitFree(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	deletions := s.client.Watch(ctx, keyLeader, clientv3.WithRev(revision+1), clientv3.WithFilterPut())
	for response := range deletions {
		if err := response.Err(); err != nil {
			return err
		}
		if len(response.Events) > 0 {
			return nil
		}
	}
	return fmt.Errorf("the watch ended: %w", context.Cause(ctx))
}

// hold returns when this replica leads no more: its key is gone or another's, its lease expired, or
// its etcd follows another one.
func (s *Store) hold(ctx context.Context, epoch model.Epoch, alive <-chan *clientv3.LeaseKeepAliveResponse) error {
	for {
		state, changed := s.Watch()
		if state.revision >= int64(epoch) && (state.Epoch != epoch || state.Leader == "") {
			return fmt.Errorf("%s leads in epoch %d", state.Leader, state.Epoch)
		}
		mine, elected := s.Epoch()
		if mine != epoch {
			return errors.New("it lost the election key")
		}
		var moved <-chan struct{}
		if s.member != nil {
			moved = s.member.etcd.Server.LeaderChangedNotify()
			if !s.member.leads() {
				return errors.New("its etcd follows another one")
			}
		}
		select {
		case <-ctx.Done():
			return errors.New("it stops")
		case _, ok := <-alive:
			if !ok {
				return errors.New("its lease expired")
			}
		case <-moved:
		case <-changed:
		case <-elected:
		}
	}
}

// resign frees the election key, if it is still that of epoch: the others need not wait then.
func (s *Store) resign(ctx context.Context, epoch model.Epoch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if err := s.free(ctx, int64(epoch)); err != nil {
		s.log.Debug("can't free the election key", "err", err)
	}
}

func (s *Store) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if _, err := s.client.Revoke(ctx, lease); err != nil {
		s.log.Debug("a lease will expire by itself", "err", err)
	}
}

// Doubt has a replica that believes to lead look whether it does: a node has seen another epoch.
func (s *Store) VerifyLeadership(ctx context.Context) error {
	epoch, _ := s.Epoch()
	if epoch == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	found, err := s.client.Get(ctx, keyLeader)
	if err != nil {
		return explain("read who leads", err)
	}
	if len(found.Kvs) == 1 && found.Kvs[0].CreateRevision == int64(epoch) {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.epoch == epoch { // the same as setEpoch(0), unless it leads anew meanwhile
		s.epoch = 0
		close(s.elected)
		s.elected = make(chan struct{})
	}
	return nil
}
