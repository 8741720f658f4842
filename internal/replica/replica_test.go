package replica

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	"github.com/weirlb/weir/internal/store/truststore"
)

// fakeStore is a store whose answers a test decides.
type fakeStore struct {
	mu       sync.Mutex
	err      error // of Current
	epoch    model.Epoch
	state    *store.State
	changed  chan struct{}
	verified int // times that leadership was verified
}

func newFakeStore() *fakeStore {
	return &fakeStore{state: &store.State{}, changed: make(chan struct{})}
}

// set changes what the store answers, and wakes who watches it.
func (f *fakeStore) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeStore) Epoch() (model.Epoch, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.epoch, f.changed
}

func (f *fakeStore) State() *store.State { state, _ := f.Watch(); return state }

func (f *fakeStore) Watch() (*store.State, <-chan struct{}) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state, f.changed
}

func (f *fakeStore) Trust() (*truststore.Trust, <-chan struct{}) { return &truststore.Trust{}, nil }

func (f *fakeStore) Current(context.Context) (model.Generation, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return 0, f.err
}

func (f *fakeStore) VerifyLeadership(context.Context) error { f.verified++; return nil }

// seen is what a node says it has seen.
type seen struct{ cluster, epoch, generation uint64 }

func (s seen) GetCluster() uint64    { return s.cluster }
func (s seen) GetEpoch() uint64      { return s.epoch }
func (s seen) GetGeneration() uint64 { return s.generation }

func newReplica(t *testing.T) (*Replica, *fakeStore) {
	s := newFakeStore()
	return New("m1", s, time.Now, slog.New(slog.NewTextHandler(t.Output(), nil))), s
}

// A replica is partitioned when its store has been silent long enough, and no longer when it answers; meanwhile nodes are
// refused.
func TestPartitionBySilenceOfTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReplica(t)
		ctx, cancel := context.WithCancel(t.Context())
		go r.RunPartitionCheck(ctx)
		defer cancel()
		failure := errors.New("no quorum")
		s.set(func() { s.err = failure })
		time.Sleep(r.PartitionedAfter - time.Second)
		_, began := r.Partitioned()
		if partitioned, _ := r.Partitioned(); partitioned || !errors.Is(r.StoreError(), failure) {
			t.Errorf("before the time: partitioned %t, store %v", partitioned, r.StoreError())
		}
		time.Sleep(3 * time.Second)
		<-began
		if err := r.CatchUp(ctx, seen{}); !errors.Is(err, ErrPartitioned) {
			t.Errorf("a node is told %v", err)
		}
		s.set(func() { s.err = nil })
		time.Sleep(2 * time.Second)
		if partitioned, _ := r.Partitioned(); partitioned || r.CatchUp(ctx, seen{}) != nil {
			t.Error("it is still partitioned")
		}
	})
}

// A replica that is late but still learns what others write is not partitioned; once it learns nothing more, it is.
func TestALateReplicaIsNotPartitioned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReplica(t)
		ctx, cancel := context.WithCancel(t.Context())
		go r.RunPartitionCheck(ctx)
		defer cancel()
		s.set(func() { s.err = errors.New("generation 7 is behind the store's, 9") })
		for i := range 10 {
			s.set(func() { s.state = &store.State{Generation: model.Generation(i + 1)} })
			time.Sleep(r.PartitionedAfter / 4)
			if partitioned, _ := r.Partitioned(); partitioned {
				t.Fatalf("it is partitioned after change %d", i)
			}
		}
		time.Sleep(r.PartitionedAfter + 2*time.Second)
		if partitioned, _ := r.Partitioned(); !partitioned {
			t.Error("it is not partitioned")
		}
	})
}

// A node waits for a replica that is behind it, is refused by one that stays so, and is taken if it comes from another cluster.
func TestNodesAreNotTakenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReplica(t)
		cluster, _ := r.Stamp()
		if err := r.CatchUp(t.Context(), seen{cluster: cluster + 1, generation: 9}); err != nil || r.SeenGeneration(seen{cluster + 1, 0, 9}) != 0 {
			t.Errorf("a node of another cluster is told %v", err)
		}
		if err := r.CatchUp(t.Context(), seen{cluster, 3, 9}); !errors.Is(err, errBehind) || s.verified != 1 {
			t.Errorf("a node that has seen more is told %v; verified %d times", err, s.verified)
		}
		time.AfterFunc(time.Second, func() { s.set(func() { s.state = &store.State{Epoch: 3, Generation: 9} }) })
		if err := r.CatchUp(t.Context(), seen{cluster, 3, 9}); err != nil {
			t.Errorf("when the replica has caught up, the node is told %v", err)
		}
	})
}

// Who was told of a write reads it, or nothing.
func TestAcknowledgedWritesAreShown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReplica(t)
		if err := r.AwaitAcknowledged(t.Context()); err != nil {
			t.Error(err)
		}
		r.Acknowledged(5, 0)
		if r.AwaitAcknowledged(t.Context()) == nil {
			t.Error("a read is answered without a write that was acknowledged")
		}
		s.set(func() { s.state = &store.State{Generation: 5} })
		if err := r.AwaitAcknowledged(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Loops run in each term of this leader anew, and end with it.
func TestLoopsOfALeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReplica(t)
		ctx, cancel := context.WithCancel(t.Context())
		running, terms := 0, 0
		ended := make(chan error, 1)
		go func() {
			ended <- r.RunWhileLeading(ctx, func(term context.Context) error {
				running, terms = running+1, terms+1
				<-term.Done()
				running--
				return nil
			})
		}()
		for i, c := range []struct {
			epoch          model.Epoch
			running, terms int
		}{{0, 0, 0}, {1, 1, 1}, {0, 0, 1}, {3, 1, 2}} {
			s.set(func() { s.epoch = c.epoch })
			if synctest.Wait(); running != c.running || terms != c.terms || r.Leads() != (c.epoch != 0) {
				t.Errorf("%d: %d loops run, after %d terms", i, running, terms)
			}
		}
		cancel()
		if err := <-ended; err != nil || running != 0 {
			t.Errorf("ended with %v, %d loops run", err, running)
		}
	})
}

// The leader's address is that of another manager, or empty: this one.
func TestAwaitLeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, s := newReplica(t)
		if _, err := r.AwaitLeader(t.Context()); err == nil {
			t.Error("a leader without an election")
		}
		time.AfterFunc(time.Second, func() { s.set(func() { s.state = &store.State{Leader: "m2", LeaderAddress: "m2:7400"} }) })
		if at, err := r.AwaitLeader(t.Context()); err != nil || at != "m2:7400" {
			t.Errorf("got %q, %v", at, err)
		}
		s.set(func() { s.epoch = 4 })
		if at, err := r.AwaitLeader(t.Context()); err != nil || at != "" {
			t.Errorf("got %q, %v", at, err)
		}
	})
}
