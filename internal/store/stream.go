package store

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/model"
)

// streamLease is how long after a manager's death its nodes count as connected, in seconds.
const streamLease = 10

// streams are what this manager notes on its lease: the open streams of nodes, which of these nodes do not
// answer, and how far its hosts are.
type streams struct {
	mu       sync.Mutex
	open     map[string]int
	excluded map[string]exclusion // by node
	ready    model.Generation     // 0: no host has its stream here
	self     string               // this manager among those that use the store, by its lease
	changed  chan struct{}        // closed when anything changes
}

// exclusion says why a node shall be out of the pool, and which other one goes on meanwhile.
type exclusion struct{ reason, serves string }

// note is what the value of a key shall hold.
type note struct {
	value string
	// serves is empty, or the node that must be connected, and not out, when this is written.
	serves string
}

func newStreams() streams {
	return streams{open: map[string]int{}, excluded: map[string]exclusion{}, changed: make(chan struct{})}
}

// change makes a change and has it noted.
func (s *streams) change(do func() (changed bool)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if do() {
		close(s.changed)
		s.changed = make(chan struct{})
	}
}

func (s *streams) add(node string, n int) {
	s.change(func() bool {
		if s.open[node] += n; s.open[node] == 0 {
			delete(s.open, node)
			delete(s.excluded, node)
		}
		return true
	})
}

// notes are the keys that shall be there, with what their values hold.
func (s *streams) notes() (map[string]note, <-chan struct{}, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	notes := make(map[string]note, len(s.open))
	var errs []error
	put := func(key string, value string, err error) { notes[key], errs = note{value: value}, append(errs, err) }
	none, err := encode(struct{}{})
	for node := range s.open {
		put(prefixStreams+node, none, err)
	}
	for node, out := range s.excluded {
		value, err := encode(out.reason)
		notes[prefixExcluded+node], errs = note{value, out.serves}, append(errs, err)
	}
	if s.ready > 0 {
		value, err := encode(s.ready)
		put(prefixReady+s.self, value, err)
	}
	return notes, s.changed, errors.Join(errs...)
}

// OpenStream notes that node has a stream with this manager, until the function returned is called.
func (s *Store) OpenStream(node string) (closed func()) {
	s.streams.add(node, 1)
	return func() { s.streams.add(node, -1) }
}

// SetReady notes up to which generation the hosts whose stream this manager holds have what muxes may use; 0:
// there are no such hosts. Where the other managers are told by streams the number need not be current: then
// only that there are some is noted.
func (s *Store) SetReady(ready model.Generation, current bool) {
	s.streams.change(func() bool {
		if !current && ready != 0 && s.streams.ready != 0 {
			return false
		}
		changed := s.streams.ready != ready
		s.streams.ready = ready
		return changed
	})
}

// Exclude has a node whose stream this manager holds taken out of the pool, and says why, if another one serves
// when that is written: two managers that give up on the last two nodes at the same moment leave one in. State
// tells whether it was done; if not, it may be asked for again.
func (s *Store) Exclude(node, reason, serves string) {
	s.streams.change(func() bool {
		if _, already := s.streams.excluded[node]; already || s.streams.open[node] == 0 {
			return false
		}
		s.streams.excluded[node] = exclusion{reason, serves}
		return true
	})
}

// Name is that of this manager among the replicas.
func (s *Store) Name() string { return s.name }

// Admit takes a node into the pool again.
func (s *Store) Admit(node string) {
	s.streams.change(func() bool {
		_, out := s.streams.excluded[node]
		delete(s.streams.excluded, node)
		return out
	})
}

// Self is what the notes of this manager are under.
func (s *Store) Self() string {
	s.streams.mu.Lock()
	defer s.streams.mu.Unlock()
	return s.streams.self
}

// holdStreams keeps the notes of this manager's open streams in the store, on a lease, so that they
// go when it dies.
func (s *Store) holdStreams(ctx context.Context) error {
	for {
		err := s.holdLease(ctx)
		if ctx.Err() != nil {
			return nil
		}
		s.log.Warn("lost the lease of this manager's streams, taking another", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryWait):
		}
	}
}

func (s *Store) holdLease(ctx context.Context) error {
	lease, err := s.client.Grant(ctx, streamLease)
	if err != nil {
		return explain("take a lease", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := s.client.Revoke(ctx, lease.ID); err != nil {
			s.log.Debug("the lease of this manager's streams will expire by itself", "err", err)
		}
	}()
	alive, err := s.client.KeepAlive(ctx, lease.ID)
	if err != nil {
		return explain("keep the lease", err)
	}
	s.streams.change(func() bool { s.streams.self = strconv.FormatInt(int64(lease.ID), 16); return true })
	noted := map[string]note{}
	for {
		wanted, changed, err := s.streams.notes()
		if err == nil {
			err = s.note(ctx, lease.ID, noted, wanted)
		}
		if err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case _, ok := <-alive:
			if !ok {
				return errors.New("the lease expired")
			}
		}
	}
}

// noteMost is how many keys are noted in one transaction: less than an external etcd takes by default.
const noteMost = 100

// note makes noted what is wanted.
func (s *Store) note(ctx context.Context, lease clientv3.LeaseID, noted, wanted map[string]note) error {
	var ops []clientv3.Op
	for key, note := range wanted {
		if before, there := noted[key]; note.serves == "" && (!there || before != note) {
			ops = append(ops, clientv3.OpPut(key, note.value, clientv3.WithLease(lease)))
		}
	}
	for key := range noted {
		if _, kept := wanted[key]; !kept {
			// A stream that moved to another manager is on that one's lease.
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", lease)},
				[]clientv3.Op{clientv3.OpDelete(key)}, nil))
		}
	}
	for some := range slices.Chunk(ops, noteMost) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		_, err := s.client.Txn(ctx).Then(some...).Commit()
		cancel()
		if err != nil {
			return explain("note the streams of nodes", err)
		}
	}
	for key, note := range wanted {
		if before, there := noted[key]; note.serves == "" || there && before == note {
			continue
		}
		done, err := s.noteExclusion(ctx, lease, key, note)
		if err != nil {
			return explain("take a node out of the pool", err)
		}
		if !done {
			delete(wanted, key)
			s.Admit(strings.TrimPrefix(key, prefixExcluded))
		}
	}
	clear(noted)
	maps.Copy(noted, wanted)
	return nil
}

// noteExclusion notes that a node is out, if the one that shall serve meanwhile does.
func (s *Store) noteExclusion(ctx context.Context, lease clientv3.LeaseID, key string, note note) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.client.Txn(ctx).
		If(
			clientv3.Compare(clientv3.CreateRevision(prefixStreams+note.serves), ">", 0),
			clientv3.Compare(clientv3.CreateRevision(prefixExcluded+note.serves), "=", 0),
		).
		Then(clientv3.OpPut(key, note.value, clientv3.WithLease(lease))).Commit()
	if err != nil {
		return false, err
	}
	return response.Succeeded, nil
}
