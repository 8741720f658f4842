package store

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/election"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/flowhash"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store/auditlog"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/eventlog"
	"github.com/weirlb/weir/internal/store/journal"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/store/nodestatus"
	"github.com/weirlb/weir/internal/store/presence"
	"github.com/weirlb/weir/internal/store/truststore"
	"github.com/weirlb/weir/internal/store/vipstatus"
	"github.com/weirlb/weir/internal/syncookie"
)

// Config says which of the managers this one is.
type Config struct {
	Name    string // among the replicas
	Address string // host:port of its API, for the others
	Log     *slog.Logger
}

// cache holds the newest State.
type cache struct {
	etcd *etcd.Client
	log  *slog.Logger
	// Election is of the manager that may write.
	Election *election.Election

	mu      sync.Mutex
	state   *State
	changed chan struct{} // closed when state is replaced
}

// Store is the State that etcd holds, and what changes it.
type Store struct {
	*cache
	*writer
	Status     *nodestatus.Writer // of nodes
	Health     *HealthWriter      // of hosts' backends
	Chunks     *ChunkWriter       // of prefix lists
	Conditions *vipstatus.Writer  // of VIPs
	Presence   *presence.Registry // of the nodes whose stream this manager holds
	Events     *eventlog.Log
	Audit      *auditlog.Log

	journal *journal.Journal // of VIPs, for those who watch them
}

// Open reads the State. It follows changes, and writes return, only while Run runs.
func Open(ctx context.Context, client *etcd.Client, cfg Config) (*Store, error) {
	s := newStore(client, cfg)
	if err := s.found(ctx); err != nil {
		return nil, err
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	var err error
	s.Trust, err = truststore.Open(ctx, client)
	return s, err
}

func newStore(client *etcd.Client, cfg Config) *Store {
	c := &cache{etcd: client, log: cfg.Log, changed: make(chan struct{})}
	c.Election = election.New(client, election.Document{Name: cfg.Name, Address: cfg.Address}, c.elected, cfg.Log)
	return &Store{
		cache: c, writer: &writer{cache: c, queue: newWrites()}, Status: nodestatus.New(client, cfg.Log), Health: &HealthWriter{c}, Chunks: &ChunkWriter{cache: c},
		Conditions: vipstatus.New(c.Election), Presence: presence.New(client, cfg.Log),
		Events: eventlog.New(client), Audit: auditlog.New(client), journal: journal.New(),
	}
}

// Check reads all of the State that etcd holds, and says what is wrong with it.
func Check(ctx context.Context, client *etcd.Client, log *slog.Logger) error {
	return newStore(client, Config{Log: log}).load(ctx)
}

// Name is that of this manager among the replicas.
func (s *Store) Name() string { return s.Election.Name() }

// Run follows etcd until ctx ends. It fails if that holds something that can't be read.
func (s *Store) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.follow(ctx) })
	group.Go(func() error { return s.Trust.Run(ctx) })
	group.Go(func() error {
		return s.Presence.Run(ctx, func(node string) bool { return s.State().Streams.Has(node) })
	})
	group.Go(func() error { return s.Election.Run(ctx) })
	group.Go(func() error { return s.run(ctx) })
	group.Go(func() error { return s.Status.Run(ctx) })
	return group.Wait()
}

// State returns the newest State.
func (c *cache) State() *State {
	state, _ := c.Watch()
	return state
}

// Watch returns the newest State and a channel that is closed when there is a newer one.
func (c *cache) Watch() (*State, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state, c.changed
}

// elected is what the newest State shows of the election.
func (c *cache) elected() (election.View, <-chan struct{}) {
	state, changed := c.Watch()
	return election.View{Leader: state.Leader, Epoch: state.Epoch, Revision: state.revision}, changed
}

// set takes over the State that b made.
func (c *cache) set(b *builder) {
	b.next.step = &step{delta: b.delta}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != nil {
		c.state.step.next.Store(b.next.step)
	}
	c.state = b.next
	close(c.changed)
	c.changed = make(chan struct{})
}

// Await returns when the State fulfils reached.
func (c *cache) Await(ctx context.Context, reached func(*State) bool) error {
	for {
		state, changed := c.Watch()
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
	value, err := codec.Encode(secret)
	if err != nil {
		return fmt.Errorf("make the pool's hash key: %w", err)
	}
	secrets, err := codec.Encode(codec.NewSYNSecrets(syncookie.NextSecrets(nil, time.Now(), 0, DrawSYNSecret)))
	if err != nil {
		return fmt.Errorf("make the secrets of syn cookies: %w", err)
	}
	none, err := codec.Encode(struct{}{})
	if err != nil {
		return fmt.Errorf("make the first generation: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	_, err = s.etcd.Txn(ctx).
		If(clientv3.Compare(clientv3.CreateRevision(keyspace.HashKey), "=", 0)).
		Then(clientv3.OpPut(keyspace.HashKey, value), clientv3.OpPut(keyspace.SYNSecrets, secrets), clientv3.OpPut(keyspace.Generation, none)).
		Commit()
	return etcd.Explain("found the store", err)
}

// load reads the whole State.
func (s *Store) load(ctx context.Context) error {
	var b *builder
	revision, err := s.etcd.Pages(ctx, keyspace.Root, func() { b = follow(&State{}) }, func(page []*mvccpb.KeyValue) error {
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
	s.journal.Begin(b.next.revision, func() { s.set(b) })
	return nil
}

// show makes the State that b made the newest.
func (s *Store) show(b *builder) {
	s.journal.Add(b.vips, b.next.revision, func() { s.set(b) })
}

// follow keeps the State current.
func (s *Store) follow(ctx context.Context) error {
	return s.etcd.Follow(ctx, etcd.Follower{
		Prefix: keyspace.Root, Revision: func() int64 { return s.State().revision }, Take: s.takeOver, Load: s.load,
	})
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
			return err
		}
		b.next.revision = max(b.next.revision, event.Kv.ModRevision)
	}
	s.show(b)
	return nil
}

// Sync returns when the State holds all that was written before, by whatever replica.
func (s *Store) Sync(ctx context.Context) error {
	newest, err := s.etcd.Get(ctx, keyspace.Generation, clientv3.WithKeysOnly())
	if err != nil {
		return etcd.Explain("read the store", err)
	}
	// The revision of the answer may be one that wrote nothing of ours.
	if len(newest.Kvs) != 1 {
		return nil
	}
	generation := model.Generation(newest.Kvs[0].ModRevision)
	return s.Await(ctx, func(s *State) bool { return s.Generation >= generation })
}

// currentTimeout bounds how long Current waits.
const currentTimeout = 5 * time.Second

// Current says which generation this manager's view has reached, or that it is behind what the store
// holds, which is asked.
func (s *Store) Current(ctx context.Context) (model.Generation, error) {
	ctx, cancel := context.WithTimeout(ctx, currentTimeout)
	defer cancel()
	response, err := s.etcd.Get(ctx, keyspace.Generation)
	if err != nil {
		return 0, etcd.Explain("read the store", err)
	}
	if len(response.Kvs) != 1 {
		return 0, fmt.Errorf("read the store: %s is missing", keyspace.Generation)
	}
	held := model.Generation(response.Kvs[0].ModRevision)
	if err := s.Await(ctx, func(s *State) bool { return s.Generation >= held }); err != nil {
		return 0, fmt.Errorf("generation %d is behind the store's, %d", s.State().Generation, held)
	}
	return s.State().Generation, nil
}

// DrawSYNSecret draws what a new secret of SYN cookies is.
func DrawSYNSecret() (secret [16]byte) {
	_, _ = rand.Read(secret[:]) // never fails
	return secret
}
