package store

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
)

// DefaultName is the name of a manager that was given none.
const DefaultName = "manager"

// Config says where the store is: in DataDir, or in the etcd at Endpoints if there are any.
type Config struct {
	Name      string // of this manager among the replicas
	Address   string // host:port of its API, for the others
	DataDir   string
	Endpoints []string
	EtcdTLS   EtcdTLS // with the etcd at Endpoints
	// PeerListen is the host:port at which the other managers' etcd reach this one's; empty: it is the only one.
	PeerListen string
	PeerTLS    *PeerTLS // nil: plaintext
	// Join asks the cluster to take a member in that is reached at a peer URL, and returns all members. It is
	// called at the first start only; nil: this manager founds a cluster.
	Join func(ctx context.Context, peerURL string) ([]Member, error)
	// Lone is why the other members of the embedded etcd would not talk to this one; nil: they do. It is the error of
	// Open if there are others.
	Lone  error
	Quota int64 // of the embedded etcd, in bytes; 0: DefaultQuota
	Log   *slog.Logger

	pageKeys  int64         // 0: pageKeys
	tidyEvery time.Duration // 0: tidyEvery
	lowRoom   uint64        // bytes; 0: lowRoom
}

// Store is a connection to etcd and the State it holds.
type Store struct {
	client     *clientv3.Client
	member     *member // nil: external
	external   Config  // of an external etcd
	name       string
	address    string
	where      string
	log        *slog.Logger
	streams    streams
	trusted    trusted
	asking     shared                   // for the newest Trust
	journal    journal                  // of VIPs, for those who watch them
	took       *prometheus.HistogramVec // of calls of etcd
	writes     writes
	congestion crowd
	statuses   statuses
	staging    staging
	tidyEvery  time.Duration
	lowRoom    uint64
	pageKeys   int64

	mu      sync.Mutex
	state   *State
	changed chan struct{} // closed when state is replaced
	epoch   model.Epoch   // in which this replica leads; 0: it does not
	elected chan struct{} // closed when epoch is replaced
}

// Open connects to etcd, or starts it, and reads the State. The State follows changes, and writes
// return, only while Run runs.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg.Name, cfg.Quota = cmp.Or(cfg.Name, DefaultName), cmp.Or(cfg.Quota, DefaultQuota)
	if err := checkQuota(cfg.Quota); err != nil && len(cfg.Endpoints) == 0 {
		return nil, err
	}
	if err := cfg.EtcdTLS.check(cfg.Endpoints); err != nil {
		return nil, err
	}
	s := &Store{
		tidyEvery: cmp.Or(cfg.tidyEvery, tidyEvery), pageKeys: cmp.Or(cfg.pageKeys, pageKeys), lowRoom: cmp.Or(cfg.lowRoom, lowRoom),
		name: cfg.Name, address: cfg.Address, log: cfg.Log, streams: newStreams(), journal: newJournal(),
		writes: newWrites(), statuses: newStatuses(),
		changed: make(chan struct{}), elected: make(chan struct{}),
	}
	if len(cfg.Endpoints) > 0 {
		client, err := dialExternal(ctx, cfg)
		if err != nil {
			return nil, err
		}
		s.external = cfg
		s.client, s.where = client, "external: "+strings.Join(cfg.Endpoints, ", ")
	} else {
		m, err := startMember(ctx, cfg)
		if err != nil {
			return nil, err
		}
		s.member, s.client, s.where = m, m.client(), "embedded"
	}
	s.took = timed(s.client)
	err := s.found(ctx)
	if err == nil {
		err = s.load(ctx)
	}
	if err == nil {
		err = s.noteLeap(ctx)
	}
	if err == nil {
		err = s.enroll(ctx)
	}
	if err == nil {
		err = s.loadTrust(ctx)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// String is "embedded: 1 member" or "external: http://10.0.0.1:2379".
func (s *Store) String() string {
	if s.member == nil {
		return s.where
	}
	if n := len(s.member.members()); n != 1 {
		return fmt.Sprintf("%s: %d members", s.where, n)
	}
	return s.where + ": 1 member"
}

// External says whether the store is an etcd of its own.
func (s *Store) External() bool { return s.member == nil }

// Close ends the connection, and the embedded etcd.
func (s *Store) Close() {
	s.client.Close()
	if s.member != nil {
		s.member.close()
	}
}

// Run follows the store until ctx ends. It fails if the store holds something that it can't read.
func (s *Store) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.followTrust(ctx) })
	group.Go(func() error { return s.holdStreams(ctx) })
	group.Go(func() error { return s.elect(ctx) })
	group.Go(func() error { return s.writeAll(ctx) })
	group.Go(func() error { return s.writeStatuses(ctx) })
	if s.member != nil {
		group.Go(func() error { return s.member.watch(ctx) })
		group.Go(func() error { return s.tidy(ctx) })
		group.Go(func() error { return s.watchRoom(ctx) })
	}
	return group.Wait()
}

// State returns the newest State.
func (s *Store) State() *State {
	state, _ := s.Watch()
	return state
}

// Watch returns the newest State and a channel that is closed when there is a newer one.
func (s *Store) Watch() (*State, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.state, s.changed
}

// set takes over the State that b made.
func (s *Store) set(b *builder) {
	b.next.step = &step{delta: b.delta}
	s.congestion.note(b.delta, b.next, time.Now())
	defer s.journal.add(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state != nil {
		s.state.step.next.Store(b.next.step)
	}
	s.state = b.next
	close(s.changed)
	s.changed = make(chan struct{})
}

// await returns when the State fulfils reached.
func (s *Store) await(ctx context.Context, reached func(*State) bool) error {
	for {
		state, changed := s.Watch()
		if reached(state) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the store's own write: %w", ctx.Err())
		}
	}
}

// found makes what every pool has once: the secret of its hash, those of its SYN cookies, and a first
// generation.
func (s *Store) found(ctx context.Context) error {
	secret := make([]byte, flowhash.KeySize)
	if _, err := rand.Read(secret); err != nil {
		return fmt.Errorf("make the pool's hash key: %w", err)
	}
	value, err := encode(secret)
	if err != nil {
		return fmt.Errorf("make the pool's hash key: %w", err)
	}
	secrets, err := encode(synSecretsToDocument(model.NextSYNSecrets(nil, time.Now(), 0, DrawSYNSecret)))
	if err != nil {
		return fmt.Errorf("make the secrets of syn cookies: %w", err)
	}
	none, err := encode(struct{}{})
	if err != nil {
		return fmt.Errorf("make the first generation: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(keyHash), "=", 0)).
		Then(clientv3.OpPut(keyHash, value), clientv3.OpPut(keySYNSecrets, secrets), clientv3.OpPut(keyGeneration, none)).
		Commit()
	return explain("found the store", err)
}

// load reads the whole State.
func (s *Store) load(ctx context.Context) error {
	var b *builder
	revision, err := s.pages(ctx, root, func() { b = follow(&State{}) }, func(page []*mvccpb.KeyValue) error {
		for _, r := range readAll(page) {
			if err := r.put(b); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	b.next.revision = revision
	if old := s.State(); old != nil { // after a watch that fell behind: what is gone differs too
		b.delta.add(old.FullDelta())
	}
	s.set(b)
	s.journal.begin(b.next.revision)
	return nil
}

// retryWait is the pause before a broken watch is opened again.
const retryWait = 200 * time.Millisecond

// follow keeps the State current.
func (s *Store) follow(ctx context.Context) error {
	for {
		err := s.watch(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, rpctypes.ErrCompacted):
			if err := s.load(ctx); err != nil && ctx.Err() == nil {
				return err
			}
			continue
		case errors.As(err, new(*unreadableError)):
			return err
		}
		s.log.Warn("lost the watch of the store, opening it again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryWait):
		}
	}
}

// unreadableError is about a value in the store, not about reaching it.
type unreadableError struct{ error }

// watch takes over changes until the watch breaks.
func (s *Store) watch(ctx context.Context) error {
	from := s.State().revision + 1
	if s.member != nil {
		return s.member.changes(ctx, from, s.takeOver)
	}
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	for response := range s.client.Watch(ctx, root, clientv3.WithPrefix(), clientv3.WithRev(from)) {
		if err := response.Err(); err != nil {
			return err
		}
		if err := s.takeOver(response.Events); err != nil {
			return err
		}
	}
	return errors.New("the watch ended")
}

// takeOver makes the State hold what changed: all events of each of their revisions.
func (s *Store) takeOver(events []*mvccpb.Event) error {
	b := follow(s.State())
	for _, event := range events {
		var err error
		if event.Type == mvccpb.Event_DELETE {
			err = b.remove(string(event.Kv.Key))
		} else {
			err = b.put(event.Kv)
		}
		if err != nil {
			return &unreadableError{err}
		}
		b.next.revision = max(b.next.revision, event.Kv.ModRevision)
	}
	s.set(b)
	return nil
}
