// Package eventlog stores events in etcd. They lie beside the State, so that nothing wakes up by them but those who ask.
package eventlog

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
)

// Bounds of events.
const (
	EventTime  = time.Hour        // how long an event is kept at least after it happened last
	leaseShare = 15 * time.Minute // events of so long share a lease
	maxEvents  = 4096             // the oldest of the tenant that has the most go first
	pruneAfter = 256              // writes, between two looks at how many there are
)

// Event is something that happened, once or again and again.
type Event struct {
	Kind     string    `json:"kind"` // "VIP", "AddressPool", "PrefixList", "VirtualNetwork", "Overlay", "Fabric", "mux", "host", "switch" or "manager"
	Object   string    `json:"object"`
	Tenant   string    `json:"tenant,omitempty"`
	Warning  bool      `json:"warning,omitempty"`
	Reason   string    `json:"reason"` // one word in CamelCase
	Message  string    `json:"message"`
	About    []string  `json:"about,omitempty"` // names in the message, for who records it
	Source   string    `json:"source"`
	Count    uint32    `json:"count"`
	First    time.Time `json:"first"`
	Last     time.Time `json:"last"`
	Revision uint64    `json:"-"` // at which it was last written
}

// Name tells events that repeat from others: "VIP/shop/Rejected/mux1".
func (e Event) Name() string {
	return strings.Join([]string{e.Kind, e.Object, e.Reason, e.Source}, "/")
}

// Log is where events are stored.
type Log struct{ etcd *etcd.Client }

// New returns the log. All managers write to it, as nodes tell what happened whichever of them they follow.
func New(client *etcd.Client) *Log { return &Log{client} }

func (l *Log) commit(ctx context.Context, ops []clientv3.Op) error {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	_, err := l.etcd.Txn(ctx).Then(ops...).Commit()
	return err
}

// Recorder writes events. It is used by one goroutine.
type Recorder struct {
	log    *Log
	lease  clientv3.LeaseID
	until  time.Time // when to take another lease
	writes int
	order  uint64           // of the last write
	known  map[string]known // by name, what is stored; nil: it is to be read
}

// NewRecorder makes a writer of events.
func (l *Log) NewRecorder() *Recorder { return &Recorder{log: l, writes: pruneAfter} }

// Record writes events; those that happened before are counted on.
func (r *Recorder) Record(ctx context.Context, now time.Time, events []Event) error {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	if err := r.renew(ctx, now); err != nil {
		return err
	}
	folded, err := r.fold(ctx, events)
	if err != nil {
		return err
	}
	ops := make([]clientv3.Op, 0, len(folded))
	for name, e := range folded {
		value, err := codec.Encode(e)
		if err != nil {
			return fmt.Errorf("write event %s: %w", name, err)
		}
		ops = append(ops, clientv3.OpPut(keyspace.Events+name, value, clientv3.WithLease(r.lease)))
	}
	if err := r.log.commit(ctx, ops); err != nil {
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			r.until = time.Time{} // it expired while this manager stood still
		}
		r.known = nil
		return etcd.Explain("write events", err)
	}
	r.note(folded)
	if r.writes += len(ops); r.writes >= pruneAfter {
		r.writes = 0
		return r.prune(ctx)
	}
	return nil
}

// renew takes another lease, so that none is held per event.
func (r *Recorder) renew(ctx context.Context, now time.Time) error {
	if now.Before(r.until) {
		return nil
	}
	lease, err := r.log.etcd.Grant(ctx, int64((EventTime+leaseShare)/time.Second))
	if err != nil {
		return etcd.Explain("take a lease for events", err)
	}
	r.lease, r.until = lease.ID, now.Add(leaseShare)
	return nil
}

// fold puts together events of one name, with what is in the store of them.
func (r *Recorder) fold(ctx context.Context, events []Event) (map[string]Event, error) {
	var gets []clientv3.Op
	folded := map[string]Event{}
	for _, e := range events {
		name := e.Name()
		before, there := folded[name]
		if !there {
			gets = append(gets, clientv3.OpGet(keyspace.Events+name))
		}
		folded[name] = e.after(before)
	}
	found, err := r.log.etcd.Txn(ctx).Then(gets...).Commit()
	if err != nil {
		return nil, etcd.Explain("read events", err)
	}
	for _, response := range found.Responses {
		for _, kv := range response.GetResponseRange().GetKvs() {
			if before, err := readEvent(kv); err == nil {
				folded[before.Name()] = folded[before.Name()].after(before)
			}
		}
	}
	return folded, nil
}

// after counts e on from the same event before, which may be none.
func (e Event) after(before Event) Event {
	e.Count += before.Count
	if before.Count > 0 {
		e.First = before.First
	}
	return e
}

func readEvent(kv *mvccpb.KeyValue) (Event, error) {
	e, err := codec.Decode[Event](string(kv.Key), kv.Value)
	e.Revision = uint64(kv.ModRevision)
	return e, err
}

// List returns all events, the latest last, and the revision that they are of. One that can't be
// read, of a newer manager, is left out.
func (l *Log) List(ctx context.Context) ([]Event, uint64, error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	response, err := l.etcd.Get(ctx, keyspace.Events, clientv3.WithPrefix())
	if err != nil {
		return nil, 0, etcd.Explain("read events", err)
	}
	events := make([]Event, 0, len(response.Kvs))
	for _, kv := range response.Kvs {
		if e, err := readEvent(kv); err == nil {
			events = append(events, e)
		}
	}
	slices.SortFunc(events, Compare)
	return events, uint64(response.Header.Revision), nil
}

// Compare orders events by when they happened last.
func Compare(a, b Event) int {
	return cmp.Or(a.Last.Compare(b.Last), cmp.Compare(a.Name(), b.Name()))
}

// ErrTooOld says that what happened since a revision is not known any more.
var ErrTooOld = errors.New("it is not known any more what happened since then")

// Watch calls do for the events after a revision as they happen, and with none when nothing
// happened for the time of idle, until ctx ends or do fails.
func (l *Log) Watch(ctx context.Context, revision uint64, idle time.Duration, do func([]Event, uint64) error) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	responses := l.etcd.Watch(ctx, keyspace.Events, clientv3.WithPrefix(), clientv3.WithRev(int64(revision)+1),
		clientv3.WithFilterDelete(), clientv3.WithCreatedNotify())
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(idle):
			if err := do(nil, revision); err != nil {
				return err
			}
		case response, ok := <-responses:
			switch err := response.Err(); {
			case errors.Is(err, rpctypes.ErrCompacted):
				return ErrTooOld
			case err != nil:
				return etcd.Explain("watch events", err)
			case !ok:
				return errors.New("watch events: the watch ended")
			}
			if !response.Created { // what happened before may come yet
				revision = max(revision, uint64(response.Header.Revision))
			}
			var events []Event
			for _, event := range response.Events {
				if e, err := readEvent(event.Kv); err == nil {
					events = append(events, e)
				}
			}
			if err := do(events, revision); err != nil {
				return err
			}
		}
	}
}
