// Package presence notes on a manager's lease which nodes have their stream with it, which of these are out of the pool as they
// do not answer, which muxes can answer ARP and NDP, and how far its hosts are. The notes go when the manager dies.
package presence

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/neighbor"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// leaseSeconds is how long after a manager's death its nodes count as connected, in seconds.
const leaseSeconds = 10

// Registry is what one manager notes.
type Registry struct {
	etcd *etcd.Client
	log  *slog.Logger

	mu       sync.Mutex
	open     map[string]streams
	opened   int                  // streams of all nodes, ever
	excluded map[string]exclusion // by node
	able     map[string]able      // muxes that renew their lease here, by name
	ready    model.Generation     // 0: no host has its stream here
	self     string               // this manager among those that use the store, by its lease
	due      map[string]bool      // keys that may have to be written
	changed  chan struct{}        // closed when there are more
}

// streams are those that a node has with this manager: how many are open, and the number of the last one among those of all
// nodes, so that a node which leaves and comes back between two writes has another one.
type streams struct{ open, last int }

// exclusion says why a node shall be out of the pool, and which other one goes on meanwhile.
type exclusion struct{ reason, serves string }

// able is a mux that can answer ARP and NDP, and the number of its note among all.
type able struct {
	mux  neighbor.Mux
	note int
}

// note is what the value of a key shall hold.
type note struct {
	value string
	// serves is empty, or the node that must be connected, and not out, when this is written.
	serves string
	// stream is the number of the node's last one when this is written: each new one is noted, as another manager may have
	// noted one in between, and taken it back.
	stream int
}

// New returns an empty registry.
func New(client *etcd.Client, log *slog.Logger) *Registry {
	return &Registry{etcd: client, log: log, open: map[string]streams{}, excluded: map[string]exclusion{}, able: map[string]able{}, due: map[string]bool{}, changed: make(chan struct{})}
}

// change makes a change of what keys shall hold, which it returns, and has these noted.
func (r *Registry) change(do func() (keys []string)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	keys := do()
	for _, key := range keys {
		r.due[key] = true
	}
	if len(keys) > 0 {
		close(r.changed)
		r.changed = make(chan struct{})
	}
}

// takeDue are the keys that changed since it was called last, with what their values shall hold; nil: the key shall not be
// there. A node that connects costs what is said of it, not of all.
func (r *Registry) takeDue() (wanted map[string]*note, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	wanted = make(map[string]*note, len(r.due))
	var errs []error
	for key := range r.due {
		note, err := r.wanted(key)
		wanted[key], errs = note, append(errs, err)
	}
	clear(r.due)
	return wanted, r.changed, errors.Join(errs...)
}

// wanted is what the value of a key shall hold; nil: the key shall not be there.
func (r *Registry) wanted(key string) (*note, error) {
	var n note
	var there bool
	var err error
	switch prefix, name := keyspace.Split(key); prefix {
	case keyspace.Streams:
		var are streams
		are, there = r.open[name]
		n.stream = are.last
		n.value, err = codec.Encode(struct{}{})
	case keyspace.Excluded:
		var out exclusion
		out, there = r.excluded[name]
		n.serves = out.serves
		n.value, err = codec.Encode(out.reason)
	case keyspace.Neighbors:
		var a able
		a, there = r.able[name]
		n.stream = a.note
		n.value, err = codec.Encode(a.mux)
	case keyspace.Ready:
		there = r.ready > 0 && name == r.self // not of the lease before
		n.value, err = codec.Encode(r.ready)
	}
	if !there {
		return nil, err
	}
	return &n, err
}

// begin has everything noted anew, on another lease.
func (r *Registry) begin(lease clientv3.LeaseID) {
	r.change(func() (keys []string) {
		r.self = strconv.FormatInt(int64(lease), 16)
		for node := range r.open {
			keys = append(keys, keyspace.Streams+node)
		}
		for node := range r.excluded {
			keys = append(keys, keyspace.Excluded+node)
		}
		for mux := range r.able {
			keys = append(keys, keyspace.Neighbors+mux)
		}
		return append(keys, keyspace.Ready+r.self)
	})
}

// Open notes that node has a stream with this manager, until the function returned is called.
func (r *Registry) Open(node string) (closed func()) {
	keys := []string{keyspace.Streams + node, keyspace.Excluded + node}
	r.change(func() []string {
		are := r.open[node]
		r.opened++
		r.open[node] = streams{are.open + 1, r.opened}
		return keys[:1]
	})
	return func() {
		r.change(func() []string {
			are := r.open[node]
			if r.open[node] = (streams{are.open - 1, are.last}); are.open == 1 {
				delete(r.open, node)
				delete(r.excluded, node)
			}
			return keys
		})
	}
}

// SetReady notes up to which generation the hosts whose stream this manager holds have what muxes may use; 0:
// there are no such hosts. Where the other managers are told by streams the number need not be current: then
// only that there are some is noted.
func (r *Registry) SetReady(ready model.Generation, current bool) {
	r.change(func() []string {
		if !current && ready != 0 && r.ready != 0 || r.ready == ready {
			return nil
		}
		r.ready = ready
		return []string{keyspace.Ready + r.self}
	})
}

// Exclude has a node whose stream this manager holds taken out of the pool, and says why, if another one serves
// when that is written: two managers that give up on the last two nodes at the same moment leave one in. State
// tells whether it was done; if not, it may be asked for again.
func (r *Registry) Exclude(node, reason, serves string) {
	r.change(func() []string {
		if _, already := r.excluded[node]; already || r.open[node].open == 0 {
			return nil
		}
		r.excluded[node] = exclusion{reason, serves}
		return []string{keyspace.Excluded + node}
	})
}

// Admit takes a node into the pool again.
func (r *Registry) Admit(node string) {
	r.change(func() []string {
		if _, out := r.excluded[node]; !out {
			return nil
		}
		delete(r.excluded, node)
		return []string{keyspace.Excluded + node}
	})
}

// SetAble notes that a mux can answer ARP and NDP, once more if it was noted already.
func (r *Registry) SetAble(mux neighbor.Mux) {
	r.change(func() []string {
		r.opened++
		r.able[mux.Name] = able{mux, r.opened}
		return []string{keyspace.Neighbors + mux.Name}
	})
}

// SetUnable takes the note of a mux back.
func (r *Registry) SetUnable(mux string) {
	r.change(func() []string {
		if _, was := r.able[mux]; !was {
			return nil
		}
		delete(r.able, mux)
		return []string{keyspace.Neighbors + mux}
	})
}

// ReadAble reads from the store which muxes can answer ARP and NDP, by name: all that was written before it was called. The
// puts are the last SetAble of each mux that any manager has written.
func (r *Registry) ReadAble(ctx context.Context) (muxes []neighbor.Mux, puts []neighbor.Put, err error) {
	found, err := r.etcd.Txn(ctx).Then(
		clientv3.OpGet(keyspace.Neighbors, clientv3.WithPrefix()),
		clientv3.OpGet(keyspace.NeighborPuts, clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, nil, etcd.Explain("read which muxes answer ARP and NDP", err)
	}
	for _, kv := range found.Responses[0].GetResponseRange().GetKvs() { // in the order of their keys
		mux, err := codec.Decode[neighbor.Mux](string(kv.Key), kv.Value)
		if err != nil {
			return nil, nil, err
		}
		muxes = append(muxes, mux)
	}
	for _, kv := range found.Responses[1].GetResponseRange().GetKvs() {
		mux, err := codec.Decode[neighbor.Mux](string(kv.Key), kv.Value)
		if err != nil {
			return nil, nil, err
		}
		puts = append(puts, neighbor.Put{Mux: mux, Count: kv.Version})
	}
	return muxes, puts, nil
}

// IsExcluded says whether a node is out, or is to be.
func (r *Registry) IsExcluded(node string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	_, out := r.excluded[node]
	return out
}

// Self is what the notes of this manager are under.
func (r *Registry) Self() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.self
}

// Run keeps the notes of this manager's open streams in the store, on a lease, so that they
// go when it dies. isShown says whether this manager's view has a node's note, whoever wrote it.
func (r *Registry) Run(ctx context.Context, isShown func(node string) bool) error {
	for {
		err := r.holdLease(ctx, isShown)
		if ctx.Err() != nil {
			return nil
		}
		r.log.Warn("lost the lease of this manager's streams, taking another", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(etcd.RetryWait):
		}
	}
}

func (r *Registry) holdLease(ctx context.Context, isShown func(node string) bool) error {
	lease, err := r.etcd.Grant(ctx, leaseSeconds)
	if err != nil {
		return etcd.Explain("take a lease", err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if _, err := r.etcd.Revoke(ctx, lease.ID); err != nil {
			r.log.Debug("the lease of this manager's streams will expire by itself", "err", err)
		}
	}()
	alive, err := r.etcd.KeepAlive(ctx, lease.ID)
	if err != nil {
		return etcd.Explain("keep the lease", err)
	}
	r.begin(lease.ID)
	noted := map[string]note{}
	for {
		wanted, changed, err := r.takeDue()
		if err == nil {
			err = r.write(ctx, lease.ID, noted, wanted)
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
			if err := r.restore(ctx, lease.ID, noted, isShown); err != nil {
				return err
			}
		}
	}
}

// write makes noted what is wanted of the keys.
func (r *Registry) write(ctx context.Context, lease clientv3.LeaseID, noted map[string]note, wanted map[string]*note) error {
	var ops []clientv3.Op
	for key, note := range wanted {
		before, there := noted[key]
		switch {
		case note == nil && there:
			// A stream that moved to another manager is on that one's lease.
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.LeaseValue(key), "=", lease)},
				[]clientv3.Op{clientv3.OpDelete(key)}, nil))
		case note != nil && note.serves == "" && (!there || before != *note):
			put := []clientv3.Op{clientv3.OpPut(key, note.value, clientv3.WithLease(lease))}
			if mux, is := strings.CutPrefix(key, keyspace.Neighbors); is {
				put = append(put, clientv3.OpPut(keyspace.NeighborPuts+mux, note.value))
			}
			ops = append(ops, clientv3.OpTxn(nil, put, nil))
		}
	}
	if err := r.commit(ctx, ops); err != nil {
		return err
	}
	for key, note := range wanted {
		if before, there := noted[key]; note != nil && note.serves != "" && (!there || before != *note) {
			done, err := r.noteExclusion(ctx, lease, key, *note)
			if err != nil {
				return etcd.Explain("take a node out of the pool", err)
			}
			if !done {
				r.Admit(strings.TrimPrefix(key, keyspace.Excluded))
				continue
			}
		}
		if note == nil {
			delete(noted, key)
		} else {
			noted[key] = *note
		}
	}
	return nil
}

// restore writes what was noted and is gone: another manager that noted an older stream of the node late took its note back.
func (r *Registry) restore(ctx context.Context, lease clientv3.LeaseID, noted map[string]note, isShown func(node string) bool) error {
	var ops []clientv3.Op
	for key, note := range noted {
		if node, is := strings.CutPrefix(key, keyspace.Streams); is && !isShown(node) {
			ops = append(ops, clientv3.OpTxn([]clientv3.Cmp{clientv3.Compare(clientv3.CreateRevision(key), "=", 0)},
				[]clientv3.Op{clientv3.OpPut(key, note.value, clientv3.WithLease(lease))}, nil))
		}
	}
	return r.commit(ctx, ops)
}

func (r *Registry) commit(ctx context.Context, ops []clientv3.Op) error {
	for some := range slices.Chunk(ops, etcd.SafeOperations) {
		ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
		_, err := r.etcd.Txn(ctx).Then(some...).Commit()
		cancel()
		if err != nil {
			return etcd.Explain("note the streams of nodes", err)
		}
	}
	return nil
}

// noteExclusion notes that a node is out, if the one that shall serve meanwhile does.
func (r *Registry) noteExclusion(ctx context.Context, lease clientv3.LeaseID, key string, note note) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	response, err := r.etcd.Txn(ctx).
		If(
			clientv3.Compare(clientv3.CreateRevision(keyspace.Streams+note.serves), ">", 0),
			clientv3.Compare(clientv3.CreateRevision(keyspace.Excluded+note.serves), "=", 0),
		).
		Then(clientv3.OpPut(key, note.value, clientv3.WithLease(lease))).Commit()
	if err != nil {
		return false, err
	}
	return response.Succeeded, nil
}
