package store

import (
	"context"
	"fmt"
	"maps"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// HealthWriter writes what hosts say of their backends.
type HealthWriter struct{ *cache }

// Update changes what host said of its backends to what decide makes of the newest State, which
// may be what it was: then nothing is written. It does not touch the tables. Any replica may: the host speaks to it.
func (w *HealthWriter) Update(ctx context.Context, host string, decide func(*State) desired.HostHealth) error {
	return w.update(ctx, host, decide, 0, nil)
}

// UpdateSilent is Update of a host that says nothing. Only the replica that leads may, and only while the host has no
// stream with any: others may know too little. They get ErrNotLeader.
func (w *HealthWriter) UpdateSilent(ctx context.Context, host string, decide func(*State) desired.HostHealth) error {
	leads, epoch, err := w.Election.Fence(ctx)
	if err != nil {
		return err
	}
	return w.update(ctx, host, decide, epoch, []clientv3.Cmp{leads, clientv3.Compare(clientv3.CreateRevision(keyspace.Streams+host), "=", 0)})
}

// update is either, on further conditions: epoch is the one in which they hold that this replica leads, 0 if they do not.
func (w *HealthWriter) update(
	ctx context.Context, host string, decide func(*State) desired.HostHealth, epoch model.Epoch, besides []clientv3.Cmp,
) error {
	for {
		state := w.State()
		health := decide(state)
		if maps.Equal(health, state.Health.At(host)) {
			return nil
		}
		value, err := codec.Encode(codec.NewHealthDocuments(health))
		if err != nil {
			return fmt.Errorf("write the health of %s: %w", host, err)
		}
		found, err := w.put(ctx, host, value, append(besides,
			clientv3.Compare(clientv3.ModRevision(keyspace.Health+host), "=", state.Reported.At(host)),
			clientv3.Compare(clientv3.CreateRevision(keyspace.Nodes+host), ">", 0)))
		switch {
		case err != nil:
			return fmt.Errorf("write the health of %s: %w", host, err)
		case !found.won && !found.node:
			return nil
		case !found.won && epoch != 0 && found.leader != int64(epoch):
			return election.ErrNotLeader
		}
		waiting, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
		err = w.Await(waiting, func(s *State) bool { return found.shown(s, host) })
		if cancel(); err != nil || found.won {
			return err
		}
	}
}

// healthFound is what a write of a host's health led to, or what it found instead.
type healthFound struct {
	won            bool
	revision       int64 // from which on a State may show it
	leader         int64 // the epoch; 0: nobody leads
	said           bool  // there is a health
	node, isStream bool  // the host is registered; it has a stream
}

// shown says whether a State shows what was found, so that it is worth while to decide again.
func (f healthFound) shown(s *State, host string) bool {
	if s.revision < f.revision {
		return false
	}
	return f.won || f.said == (s.Reported.At(host) != 0) && f.isStream == s.Streams.At(host)
}

// put writes the health of a host if all conditions hold.
func (w *HealthWriter) put(ctx context.Context, host, value string, conditions []clientv3.Cmp) (healthFound, error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	response, err := w.etcd.Txn(ctx).If(conditions...).
		Then(clientv3.OpPut(keyspace.Health+host, value)).
		Else(clientv3.OpGet(keyspace.Health+host), clientv3.OpGet(keyspace.Nodes+host), clientv3.OpGet(keyspace.Streams+host), clientv3.OpGet(keyspace.Leader)).
		Commit()
	if err != nil {
		return healthFound{}, etcd.Explain("ask the store", err)
	}
	if response.Succeeded {
		return healthFound{won: true, revision: response.Header.Revision}, nil
	}
	var there [4]bool
	var found healthFound
	for i, r := range response.Responses {
		for _, kv := range r.GetResponseRange().GetKvs() {
			there[i], found.revision = true, max(found.revision, kv.ModRevision)
			if i == 3 {
				found.leader = kv.CreateRevision
			}
		}
	}
	found.said, found.node, found.isStream = there[0], there[1], there[2]
	return found, nil
}
