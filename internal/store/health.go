package store

import (
	"context"
	"fmt"
	"maps"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/desired"
	"github.com/weirlb/weir/internal/model"
)

// UpdateHealth changes what host said of its backends to what decide makes of the newest State, which
// may be what it was: then nothing is written. It does not touch the tables. Any replica may: the host speaks to it.
func (s *Store) UpdateHealth(ctx context.Context, host string, decide func(*State) desired.HostHealth) error {
	return s.updateHealth(ctx, host, decide, 0, nil)
}

// UpdateSilent is UpdateHealth of a host that says nothing. Only the replica that leads may, and only while the host has no
// stream with any: others may know too little. They get ErrNotLeader.
func (s *Store) UpdateSilent(ctx context.Context, host string, decide func(*State) desired.HostHealth) error {
	leads, epoch, err := s.fence(ctx)
	if err != nil {
		return err
	}
	return s.updateHealth(ctx, host, decide, epoch, []clientv3.Cmp{leads, clientv3.Compare(clientv3.CreateRevision(prefixStreams+host), "=", 0)})
}

// updateHealth is either, on further conditions: epoch is the one in which they hold that this replica leads, 0 if they do not.
func (s *Store) updateHealth(
	ctx context.Context, host string, decide func(*State) desired.HostHealth, epoch model.Epoch, besides []clientv3.Cmp,
) error {
	for {
		state := s.State()
		health := decide(state)
		if maps.Equal(health, state.Health.At(host)) {
			return nil
		}
		value, err := encode(healthToDocument(health))
		if err != nil {
			return fmt.Errorf("write the health of %s: %w", host, err)
		}
		found, err := s.putHealth(ctx, host, value, append(besides,
			clientv3.Compare(clientv3.ModRevision(prefixHealth+host), "=", state.Reported.At(host)),
			clientv3.Compare(clientv3.CreateRevision(prefixNodes+host), ">", 0)))
		switch {
		case err != nil:
			return fmt.Errorf("write the health of %s: %w", host, err)
		case !found.won && !found.node:
			return nil
		case !found.won && epoch != 0 && found.leader != int64(epoch):
			return ErrNotLeader
		}
		waiting, cancel := context.WithTimeout(ctx, callTimeout)
		err = s.await(waiting, func(s *State) bool { return found.shown(s, host) })
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

// putHealth writes the health of a host if all conditions hold.
func (s *Store) putHealth(ctx context.Context, host, value string, conditions []clientv3.Cmp) (healthFound, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.client.Txn(ctx).If(conditions...).
		Then(clientv3.OpPut(prefixHealth+host, value)).
		Else(clientv3.OpGet(prefixHealth+host), clientv3.OpGet(prefixNodes+host), clientv3.OpGet(prefixStreams+host), clientv3.OpGet(keyLeader)).
		Commit()
	if err != nil {
		return healthFound{}, explain("ask the store", err)
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
