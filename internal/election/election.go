// Package election elects the manager that leads among the replicas. The epoch in which one leads is the creation revision of the
// election key; each of a leader's transactions is fenced by it: it is refused once another one leads.
//
// Where etcd is embedded, the manager whose member leads etcd leads; with an external etcd the one that holds a lease.
package election

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// ErrNotLeader is returned by writes of the desired state on a replica that does not lead. Nothing was
// written.
var ErrNotLeader = errors.New("this manager does not lead")

const (
	// LeaseSeconds is how long after its death a leader keeps an external etcd's election key, in seconds.
	// The embedded one needs no lease: who leads etcd takes the key over.
	LeaseSeconds = 3
	// leaderWait bounds how long a write waits for a leader to be found.
	leaderWait = 3 * time.Second
	// resignTimeout bounds how long a manager that stops tries to tell the others.
	resignTimeout = time.Second
)

// Document is the value of the election key.
type Document struct {
	Name    string `json:"name"`
	Address string `json:"address"` // of its API
}

// View is what the State shows of the election.
type View struct {
	Leader   string      // empty: nobody leads
	Epoch    model.Epoch // of the newest leader
	Revision int64       // of the State
}

// Election is the part that this replica has in the election of the leader.
type Election struct {
	etcd *etcd.Client
	self Document
	view func() (View, <-chan struct{}) // the newest, and a channel that is closed when there is a newer one
	log  *slog.Logger

	mu      sync.Mutex
	epoch   model.Epoch   // in which this replica leads; 0: it does not
	elected chan struct{} // closed when epoch is replaced
}

// New returns the election of a replica, which sees the others by view.
func New(client *etcd.Client, self Document, view func() (View, <-chan struct{}), log *slog.Logger) *Election {
	return &Election{etcd: client, self: self, view: view, log: log, elected: make(chan struct{})}
}

// Name is that of this manager among the replicas.
func (e *Election) Name() string { return e.self.Name }

// Epoch returns the epoch in which this replica leads, 0 if it does not, and a channel that is closed when
// that changes.
func (e *Election) Epoch() (model.Epoch, <-chan struct{}) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.epoch, e.elected
}

// SetEpoch has this replica believe that it leads in an epoch; 0: that it does not.
func (e *Election) SetEpoch(epoch model.Epoch) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch == epoch {
		return
	}
	e.epoch = epoch
	close(e.elected)
	e.elected = make(chan struct{})
}

// Fence returns the condition that every transaction on the desired state holds: the election key is still
// the one by which this replica leads. It waits a moment while nobody leads; on a replica that does not
// lead it fails with ErrNotLeader.
func (e *Election) Fence(ctx context.Context) (clientv3.Cmp, model.Epoch, error) {
	expired := time.NewTimer(leaderWait)
	defer expired.Stop()
	for {
		epoch, elected := e.Epoch()
		if epoch != 0 {
			return clientv3.Compare(clientv3.CreateRevision(keyspace.Leader), "=", int64(epoch)), epoch, nil
		}
		state, changed := e.view()
		if state.Leader != "" && state.Leader != e.self.Name {
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

// Run campaigns and leads, again and again, until ctx ends.
func (e *Election) Run(ctx context.Context) error {
	for {
		err := e.lead(ctx)
		if ctx.Err() != nil {
			return nil
		}
		e.log.Debug("does not lead", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(etcd.RetryWait):
		}
	}
}

// lead campaigns until this replica leads, and returns when it does no more, with the reason.
func (e *Election) lead(ctx context.Context) error {
	if e.etcd.Server() != nil {
		if err := e.etcd.Server().AwaitLead(ctx); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var lease clientv3.LeaseID
	var alive <-chan *clientv3.LeaseKeepAliveResponse
	if e.etcd.Server() == nil {
		granted, err := e.etcd.Grant(ctx, LeaseSeconds)
		if err != nil {
			return etcd.Explain("take a lease", err)
		}
		lease = granted.ID
		defer e.revoke(ctx, lease)
		if alive, err = e.etcd.KeepAlive(ctx, lease); err != nil {
			return etcd.Explain("keep the lease", err)
		}
	}
	epoch, err := e.campaign(ctx, lease)
	if err != nil {
		return err
	}
	e.SetEpoch(epoch)
	e.log.Info("this manager leads", "epoch", epoch)
	err = e.hold(ctx, epoch, alive)
	e.SetEpoch(0)
	e.resign(ctx, epoch)
	e.log.Info("this manager leads no more", "epoch", epoch, "reason", err)
	return err
}

// campaign takes the election key. Where etcd is embedded, only the replica that leads it gets here, and
// takes the key from whoever had it; else it waits until the key is free.
func (e *Election) campaign(ctx context.Context, lease clientv3.LeaseID) (model.Epoch, error) {
	value, err := codec.Encode(e.self)
	if err != nil {
		return 0, err
	}
	var options []clientv3.OpOption
	if lease != 0 {
		options = append(options, clientv3.WithLease(lease))
	}
	for {
		won, err := e.etcd.Txn(ctx).
			If(clientv3.Compare(clientv3.CreateRevision(keyspace.Leader), "=", 0)).
			Then(clientv3.OpPut(keyspace.Leader, value, options...)).
			Else(clientv3.OpGet(keyspace.Leader)).
			Commit()
		if err != nil {
			return 0, etcd.Explain("take the lead", err)
		}
		if won.Succeeded {
			return model.Epoch(won.Header.Revision), nil
		}
		held := won.Responses[0].GetResponseRange().GetKvs()
		if len(held) == 0 {
			continue
		}
		if e.etcd.Server() != nil {
			err = e.deleteKey(ctx, held[0].CreateRevision)
		} else {
			err = e.awaitDeletion(ctx, won.Header.Revision)
		}
		if err != nil {
			return 0, etcd.Explain("take the lead", err)
		}
	}
}

// deleteKey deletes the election key if it is still the one of epoch.
func (e *Election) deleteKey(ctx context.Context, epoch int64) error {
	_, err := e.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(keyspace.Leader), "=", epoch)).
		Then(clientv3.OpDelete(keyspace.Leader)).Commit()
	return err
}

// awaitDeletion returns when the election key was deleted after revision.
func (e *Election) awaitDeletion(ctx context.Context, revision int64) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	deletions := e.etcd.Watch(ctx, keyspace.Leader, clientv3.WithRev(revision+1), clientv3.WithFilterPut())
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
func (e *Election) hold(ctx context.Context, epoch model.Epoch, alive <-chan *clientv3.LeaseKeepAliveResponse) error {
	for {
		state, changed := e.view()
		if state.Revision >= int64(epoch) && (state.Epoch != epoch || state.Leader == "") {
			return fmt.Errorf("%s leads in epoch %d", state.Leader, state.Epoch)
		}
		mine, elected := e.Epoch()
		if mine != epoch {
			return errors.New("it lost the election key")
		}
		var moved <-chan struct{}
		if e.etcd.Server() != nil {
			moved = e.etcd.Server().LeaderChanged()
			if !e.etcd.Server().Leads() {
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
func (e *Election) resign(ctx context.Context, epoch model.Epoch) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if err := e.deleteKey(ctx, int64(epoch)); err != nil {
		e.log.Debug("can't free the election key", "err", err)
	}
}

func (e *Election) revoke(ctx context.Context, lease clientv3.LeaseID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), resignTimeout)
	defer cancel()
	if _, err := e.etcd.Revoke(ctx, lease); err != nil {
		e.log.Debug("a lease will expire by itself", "err", err)
	}
}

// Verify has a replica that believes to lead look whether it does: a node has seen another epoch.
func (e *Election) Verify(ctx context.Context) error {
	epoch, _ := e.Epoch()
	if epoch == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, leaderWait)
	defer cancel()
	found, err := e.etcd.Get(ctx, keyspace.Leader)
	if err != nil {
		return etcd.Explain("read who leads", err)
	}
	if len(found.Kvs) == 1 && found.Kvs[0].CreateRevision == int64(epoch) {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.epoch == epoch { // the same as SetEpoch(0), unless it leads anew meanwhile
		e.epoch = 0
		close(e.elected)
		e.elected = make(chan struct{})
	}
	return nil
}

// Commit makes writes at once, within a bound of time, if this replica leads.
func (e *Election) Commit(ctx context.Context, ops []clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	leads, _, err := e.Fence(ctx)
	if err != nil {
		return err
	}
	response, err := e.etcd.Txn(ctx).If(leads).Then(ops...).Commit()
	if err == nil && !response.Succeeded {
		return ErrNotLeader
	}
	return err
}
