package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/fairqueue"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/telemetry"
)

// Priority orders the changes that wait to be written.
type Priority uint8

// Priorities, the highest first: what users want, what health and time make of it, and port requests,
// which are many and asked again.
const (
	Configuration Priority = iota
	Health
	Ports
	priorities
)

// String is the word that operators see: "configuration".
func (p Priority) String() string { return [priorities]string{"configuration", "health", "ports"}[p] }

// Bounds of the writer, by priority: changes that may wait, and that one transaction takes.
var (
	waitMost = [priorities]int{4096, 4096, 1024}
	takeMost = [priorities]int{1024, 1024, 256}
)

// eachMost is how many of those that may wait are of one tenant or caller.
func eachMost(p Priority) int { return waitMost[p] / 4 }

// OverloadedError says that a change was not taken, as too many of its priority wait.
type OverloadedError struct {
	Priority Priority
	After    time.Duration // when to ask again
}

func (e *OverloadedError) Error() string {
	return fmt.Sprintf("too many changes wait to be written (%s): try again in %s", e.Priority, e.After)
}

// write is a change that waits, or is being written.
type write struct {
	ctx      context.Context // of the caller, for its trace alone
	priority Priority
	who      string // shares the writer with others as one: a tenant, or a caller
	decide   func(*State) (Change, error)
	taken    bool // by the writer, who will answer
	done     chan struct{}

	// The answer.
	generation model.Generation
	err        error
}

// writes are the changes that wait, by priority.
type writes struct {
	mu            sync.Mutex
	queues        [priorities]fairqueue.Queue[*write] // by who they are of
	wake          chan struct{}                       // holds at most one
	shed          [priorities]uint64                  // changes that were not taken
	portsDue      time.Time                           // before, port requests alone are no transaction
	congestionDue time.Time                           // before, nothing is
	took          time.Duration                       // that the last transaction took, with what led to it
}

func newWrites() writes { return writes{wake: make(chan struct{}, 1)} }

// add queues a change, unless too many of its priority wait.
func (q *writes) add(priority Priority, w *write) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	w.priority = priority
	waiting := q.queues[priority].Len()
	// What a manager writes by itself has no tenant, and room for all.
	if waiting >= waitMost[priority] || w.who != "" && q.queues[priority].LenOf(w.who) >= eachMost(priority) {
		q.shed[priority]++
		rounds := time.Duration(waiting/takeMost[priority] + 1)
		return &OverloadedError{Priority: priority, After: max(rounds*q.took, 50*time.Millisecond).Round(time.Millisecond)}
	}
	q.queues[priority].Add(w.who, w)
	select {
	case q.wake <- struct{}{}:
	default:
	}
	return nil
}

// withdraw takes a change back that its caller does not wait for any more. It fails if the change is
// being written.
func (q *writes) withdraw(priority Priority, w *write) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if w.taken {
		return false
	}
	q.queues[priority].Remove(w.who, w)
	return true
}

// giveBack has changes that were taken, and found no room in a transaction, wait again before those that came behind them.
func (q *writes) giveBack(left []*write) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(left) > 0 {
		q.congestionDue = time.Time{} // they have waited
	}
	for _, w := range slices.Backward(left) {
		w.taken = false
		q.queues[w.priority].PutFirst(w.who, w)
	}
}

// portsPause is how long after one transaction of port requests the next one begins, if nothing else is to be
// written: they are many, and each transaction costs every mux a message, whatever it holds.
const portsPause = 5 * time.Millisecond

// congestionPause is how long after a transaction that held more than one change the next one begins: where changes
// come faster than they are written, what each generation costs every replica and mux is paid once for more of
// them. Changes that come one by one wait for nothing.
const congestionPause = 10 * time.Millisecond

// take returns what goes into the next transaction, the highest priority first. If it is not time yet, it says
// when it is.
func (q *writes) take(now time.Time) (batch []*write, wait time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	urgent, due := q.queues[Configuration].Len()+q.queues[Health].Len(), q.congestionDue
	if urgent == 0 {
		due = q.portsDue
	}
	if waits := due.Sub(now); waits > 0 {
		return nil, waits
	}
	q.congestionDue = time.Time{}
	if full := q.queues[Configuration].Len() > takeMost[Configuration] || q.queues[Health].Len() > takeMost[Health]; urgent > 1 && !full {
		q.congestionDue = now.Add(congestionPause)
	}
	if q.queues[Ports].Len() > 0 {
		q.portsDue = now.Add(portsPause)
	}
	for priority := range q.queues {
		batch = append(batch, q.queues[priority].Take(takeMost[priority])...)
	}
	for _, w := range batch {
		w.taken = true
	}
	return batch, 0
}

// writer changes the desired state.
type writer struct {
	*cache
	Trust *truststore.Store // who may do what; its tenants limit the desired state
	queue writes
}

// Queue is how a queue of changes is.
type Queue struct {
	Length   int
	Rejected uint64 // as it was full
}

// Queues are those of the changes that wait to be written, by priority.
func (s *writer) Queues() map[string]Queue {
	s.queue.mu.Lock()
	defer s.queue.mu.Unlock()
	queues := map[string]Queue{}
	for priority := range priorities {
		queues[priority.String()] = Queue{s.queue.queues[priority].Len(), s.queue.shed[priority]}
	}
	return queues
}

// Update changes the desired state by what decide makes of the newest State, all of it or nothing,
// and returns the generation that holds it. Changes that wait together are written in one transaction: each
// is decided on what those before it lead to. If another write is faster, decide is called again. An
// empty change writes nothing. Only the replica that leads may write: others get ErrNotLeader.
func (s *writer) Update(ctx context.Context, decide func(*State) (Change, error)) (model.Generation, error) {
	return s.UpdateAs(ctx, Configuration, decide)
}

// UpdateAs is Update of a priority. It fails with an OverloadedError when too many changes wait.
func (s *writer) UpdateAs(ctx context.Context, priority Priority, decide func(*State) (Change, error)) (model.Generation, error) {
	w := &write{ctx: ctx, who: fairqueue.Share(ctx), decide: decide, done: make(chan struct{})}
	if err := s.queue.add(priority, w); err != nil {
		return 0, err
	}
	select {
	case <-w.done:
		return w.generation, w.err
	case <-ctx.Done():
	}
	if s.queue.withdraw(priority, w) {
		return 0, fmt.Errorf("write to the store: %w", ctx.Err())
	}
	<-w.done // decide may be at work, on what its caller holds
	return w.generation, w.err
}

// run writes what waits until ctx ends.
func (s *writer) run(ctx context.Context) error {
	for {
		batch, wait := s.queue.take(time.Now())
		if len(batch) > 0 {
			begin := time.Now()
			s.commitAll(ctx, batch)
			s.queue.mu.Lock()
			s.queue.took = time.Since(begin)
			s.queue.mu.Unlock()
			continue
		}
		var due <-chan time.Time
		if wait > 0 {
			due = time.After(wait)
		}
		select {
		case <-s.queue.wake:
		case <-due:
		case <-ctx.Done():
			return nil
		}
	}
}

// commitAll writes and answers what of batch fits into one transaction, and gives the rest back: what came meanwhile has its
// turn with it.
func (s *writer) commitAll(ctx context.Context, batch []*write) {
	for len(batch) > 0 {
		fence, epoch, err := s.Election.Fence(ctx)
		if err != nil {
			(&folded{writes: batch, errs: make([]error, len(batch))}).answer(err)
			return
		}
		f, left := s.fold(batch)
		err = s.settle(ctx, fence, epoch, f)
		switch {
		case errors.Is(err, errOvertaken):
			continue // decide anew
		case etcd.TooLarge(err) && len(f.writes) > 1:
			// An external etcd may take less than we do.
			s.queue.giveBack(left)
			left = nil
			s.commitAll(ctx, f.writes[:len(f.writes)/2])
			s.commitAll(ctx, f.writes[len(f.writes)/2:])
		default:
			f.answer(err)
		}
		s.queue.giveBack(left)
		return
	}
}

// errOvertaken says that another manager changed the desired state first.
var errOvertaken = errors.New("another manager was faster")

// folded are changes that are written together.
type folded struct {
	base       *State
	trusted    *truststore.Trust // from before the first decision, which may be by a newer one: then the transaction fails
	writes     []*write
	errs       []error // of each
	ops        map[string]clientv3.Op
	bytes      int
	lists      map[string]model.PrefixList // that are written, by name
	generation model.Generation
}

// maxBatchBytes is when no further change joins a transaction.
const maxBatchBytes = 8 << 20

// fold decides changes one after the other, each on what those before it lead to, as many of batch as fit
// into a transaction, and returns those that are left. Of a tenant whose change does not fit all that follow are left:
// other tenants' go on, and its own keep their order.
func (s *writer) fold(batch []*write) (f *folded, left []*write) {
	trusted, _ := s.Trust.Watch()
	f = &folded{base: s.State(), trusted: trusted, ops: map[string]clientv3.Op{}, lists: map[string]model.PrefixList{}}
	f.generation = f.base.Generation
	b := follow(f.base)
	waits := map[string]bool{}
	for i, w := range batch {
		if waits[w.who] {
			left = append(left, w)
			continue
		}
		change, ops, err := w.attempt(b.next)
		switch {
		case len(f.ops) > 0 && len(f.ops)+len(ops) >= etcd.MaxOperations || f.bytes > maxBatchBytes:
			return f, append(left, batch[i:]...)
		case f.versions(ops):
			waits[w.who] = true
			left = append(left, w)
			continue
		}
		f.writes, f.errs = append(f.writes, w), append(f.errs, err)
		if err != nil {
			continue
		}
		for _, op := range ops {
			f.ops[string(op.KeyBytes())] = op
			f.bytes += len(op.KeyBytes()) + len(op.ValueBytes())
			if op.IsDelete() {
				b.next.unknown.Delete(string(op.KeyBytes()))
			}
		}
		for _, list := range change.PrefixLists {
			f.lists[list.Name] = list
		}
		b.apply(change, f.base.Generation+1)
		if f.deletesTenants() { // nobody else's decision knows of that yet
			return f, append(left, batch[i+1:]...)
		}
	}
	return f, left
}

// versions says whether one of ops writes what has a version and is written by f already. What one transaction
// writes is of one generation: who was told that version, and lost to the write behind it, could replace what it never saw.
func (f *folded) versions(ops []clientv3.Op) bool {
	return slices.ContainsFunc(ops, func(op clientv3.Op) bool {
		key := string(op.KeyBytes())
		_, written := f.ops[key]
		return written && (strings.HasPrefix(key, keyspace.VIPs) || strings.HasPrefix(key, keyspace.Pools) || strings.HasPrefix(key, keyspace.PrefixLists) ||
			strings.HasPrefix(key, keyspace.Networks) || strings.HasPrefix(key, keyspace.Fabrics) || key == keyspace.Overlay)
	})
}

// attempt decides on s, and returns the change with its writes. A panic is the caller's own error.
func (w *write) attempt(s *State) (change Change, ops []clientv3.Op, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("decide on a change: panic: %v", reason)
		}
	}()
	_, computed := telemetry.Span(w.ctx, "compute")
	defer func() { computed(err) }()
	if change, err = w.decide(s); err != nil {
		return Change{}, nil, err
	}
	ops, err = change.operations(s)
	if err == nil && len(ops) >= etcd.MaxOperations {
		err = &model.FieldError{Field: "vips", Reason: fmt.Sprintf(
			"need %d writes at once, at most %d are possible: apply fewer VIPs at a time", len(ops)+1, etcd.MaxOperations)}
	}
	if err != nil {
		return Change{}, nil, err
	}
	return change, ops, nil
}

// apply makes the State that is being built hold the change, as of a generation.
func (b *builder) apply(c Change, generation model.Generation) {
	for _, name := range c.DeleteVIPs {
		b.removeVIP(name)
	}
	for _, key := range c.DeleteTables {
		b.removeTable(key)
	}
	for _, name := range c.DeleteNodes {
		b.removeNode(name)
		b.next.Status.Delete(name)
		b.next.Health.Delete(name)
	}
	for _, vip := range c.VIPs {
		b.putVIP(vip, generation)
		b.next.Records.Set(vip.Name, c.Records[vip.Name])
	}
	for _, name := range c.DeletePools {
		b.removePool(name)
	}
	b.applyPrefixLists(c, generation)
	networks{b}.apply(c, generation)
	fabrics{b}.apply(c, generation)
	if c.FastpathKeys != nil {
		b.next.FastpathKeys = c.FastpathKeys
	}
	if c.SYNSecrets != nil {
		b.next.SYNSecrets = c.SYNSecrets
	}
	if c.FBTMasters != nil {
		b.next.FBTMasters = c.FBTMasters
	}
	if c.Restored != nil {
		b.next.Restored = *c.Restored
	}
	for _, pool := range c.Pools {
		b.putPool(pool, generation)
	}
	for key, table := range c.Tables {
		b.putTableOf(key, table, generation)
	}
	for _, key := range c.DeletePorts {
		b.removePorts(key)
	}
	for key, holding := range c.Ports {
		b.putPorts(key, holding, generation)
	}
	for name, steps := range c.Steps {
		b.putSteps(name, steps)
	}
	for vip, state := range c.Placements {
		b.putPlacement(vip, state, generation)
	}
	for _, node := range c.Nodes {
		b.next.PutNode(node)
	}
}

// settle writes what was folded, and waits until State shows it.
func (s *writer) settle(ctx context.Context, fence clientv3.Cmp, epoch model.Epoch, f *folded) error {
	committed := f.span("commit")
	revision, won, err := s.commit(ctx, fence, epoch, f)
	committed(err)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	if err := s.Await(ctx, func(s *State) bool { return s.Generation >= revision }); err != nil {
		return err
	}
	if !won && f.isOfUsers() || f.deletesTenants() {
		if _, err := s.Trust.IsNewest(ctx, f.trusted); err != nil {
			return err
		}
	}
	if !won {
		return errOvertaken
	}
	f.generation = revision
	return nil
}

// answer tells each caller the error of the transaction, or else its own: what was decided on a State that
// may not be, or on a change that was not written, is no reason to refuse.
func (f *folded) answer(err error) {
	for i, w := range f.writes {
		if w.err = err; w.err == nil {
			w.err = f.errs[i]
		}
		if w.err == nil {
			w.generation = f.generation
		}
		close(w.done)
	}
}
