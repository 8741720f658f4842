package store

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/trust"
)

// What is refused, or changes nothing, is decided on what is there: a leader that was frozen knows too little.
func TestRefusalsAreOfTheCurrentState(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	old := s.State()
	mustUpdate(t, s, Change{VIPs: []model.VIP{vip("shop", "203.0.113.1")}})
	fence, epoch, err := s.Election.Fence(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	settle := func(fence clientv3.Cmp, base *State) error {
		return s.settle(t.Context(), fence, epoch, &folded{base: base})
	}
	if err := settle(fence, s.State()); err != nil {
		t.Errorf("on the current State: %v", err)
	}
	if err := settle(fence, old); !errors.Is(err, errOvertaken) {
		t.Errorf("on an old State: %v", err)
	}
	epoch--
	lost := clientv3.Compare(clientv3.CreateRevision(keyspace.Leader), "=", int64(epoch))
	if err := settle(lost, s.State()); !errors.Is(err, election.ErrNotLeader) {
		t.Errorf("in an old epoch: %v", err)
	}
}

// A change that was refused for one that was to be written with it was not refused if that was not written.
func TestRefusalsHoldWithTheirTransaction(t *testing.T) {
	refusal, failure := errors.New("there is one"), errors.New("no answer")
	for _, failed := range []error{nil, failure} {
		done, refused := &write{done: make(chan struct{})}, &write{done: make(chan struct{})}
		(&folded{writes: []*write{done, refused}, errs: []error{nil, refusal}}).answer(failed)
		if !errors.Is(done.err, failed) {
			t.Errorf("the change got %v, want %v", done.err, failed)
		}
		if failed == nil && !errors.Is(refused.err, refusal) || failed != nil && !errors.Is(refused.err, failure) {
			t.Errorf("the refused change got %v after %v", refused.err, failed)
		}
	}
}

// Trust is changed by any manager: one that has not heard of a token yet does not refuse who shows it.
func TestTrustRefusesOnWhatTheStoreHolds(t *testing.T) {
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	another, err := truststore.Open(t.Context(), s.etcd)
	if err != nil {
		t.Fatal(err)
	}
	var running sync.WaitGroup
	running.Go(func() {
		if err := another.Run(t.Context()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(running.Wait)
	unknown, calls := errors.New("no such token"), 0
	join := func(now *truststore.Trust) (truststore.Change, error) {
		calls++
		if calls == 1 { // another manager makes the token meanwhile
			if err := another.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) {
				return truststore.Change{Tokens: []trust.JoinToken{{ID: "t1"}}}, nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if !now.Tokens.Has("t1") {
			return truststore.Change{}, unknown
		}
		return truststore.Change{}, nil
	}
	if err := s.Trust.Update(t.Context(), join); err != nil || calls != 2 {
		t.Errorf("got %v after %d calls", err, calls)
	}
	if err := s.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) { return truststore.Change{}, unknown }); !errors.Is(err, unknown) {
		t.Errorf("a refusal is %v", err)
	}
}

// Nodes that join one manager at once are decided on twice each at most, before they wait for their turn to write and then:
// none decides again because another one was faster.
func TestJoinsAtOnceAreDecidedTwice(t *testing.T) {
	const joins = 50
	s, _ := open(t, etcd.Config{DataDir: t.TempDir()})
	var calls atomic.Int64
	var joining sync.WaitGroup
	for i := range joins {
		joining.Go(func() {
			if err := s.Trust.Update(t.Context(), func(*truststore.Trust) (truststore.Change, error) {
				calls.Add(1)
				return truststore.Change{Principals: []trust.Principal{{Kind: trust.Host, Name: fmt.Sprint("host", i)}}}, nil
			}); err != nil {
				t.Error(err)
			}
		})
	}
	joining.Wait()
	if n := trustOf(s).Principals.Len(); calls.Load() > 2*joins || n != joins {
		t.Errorf("%d joins were decided %d times, and %d have joined", joins, calls.Load(), n)
	}
}
