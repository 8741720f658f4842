// Package truststore stores in etcd who may do what: the CA, join tokens, principals, users and tenants.
package truststore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/sorted"
	"github.com/weirlb/weir/internal/store/codec"
	"github.com/weirlb/weir/internal/store/keyspace"
	"github.com/weirlb/weir/internal/trust"
)

// Trust is what decides who may do what, as of one revision. It is read only.
type Trust struct {
	Authority  *trust.Authority                    // nil: there is no CA yet
	Tokens     sorted.Map[string, trust.JoinToken] // by id
	Uses       Uses                                // of tokens
	Principals sorted.Map[string, trust.Principal] // by "mux/mux1"
	Accounts   sorted.Map[string, trust.Account]   // users, by name
	Tenants    sorted.Map[string, model.Tenant]    // by name

	version   int64                      // revision of keyspace.Trust
	tenants   int64                      // revision of keyspace.TenantsVersion
	withdrawn int64                      // revision at which somebody last lost a right
	unknown   sorted.Map[string, []byte] // documents with fields of a newer release, by key
	revision  int64
}

// CompareVersion holds in a transaction that no newer Trust is stored.
func (t *Trust) CompareVersion() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(keyspace.Trust), "=", t.version)
}

// CompareTenants holds in a transaction that no newer tenants are stored.
func (t *Trust) CompareTenants() clientv3.Cmp {
	return clientv3.Compare(clientv3.ModRevision(keyspace.TenantsVersion), "=", t.tenants)
}

// Revision is the one in etcd that t is of.
func (t *Trust) Revision() int64 { return t.revision }

// Version grows with every change.
func (t *Trust) Version() int64 { return t.version }

// TenantsVersion grows with every change of tenants.
func (t *Trust) TenantsVersion() int64 { return t.tenants }

// Withdrawn grows whenever somebody may have lost a right. Whoever joins anew takes none.
func (t *Trust) Withdrawn() int64 { return t.withdrawn }

// HasRevoked says whether nobody has a credential of a principal that is in force.
func (t *Trust) HasRevoked(kind trust.Kind, name string) bool {
	return t.Principals.At(string(kind) + "/" + name).Revoked
}

// clone returns a Trust that may be written to. Its price does not depend on how many have joined.
func (t *Trust) clone() *Trust {
	next := *t
	next.Tokens, next.Uses, next.Principals = t.Tokens.Clone(), t.Uses.clone(), t.Principals.Clone()
	next.Accounts, next.Tenants, next.unknown = t.Accounts.Clone(), t.Tenants.Clone(), t.unknown.Clone()
	return &next
}

// Change is one step of Trust.
type Change struct {
	Authority      *trust.Authority
	Tokens         []trust.JoinToken
	uses           []TokenUse
	DeleteTokens   []string
	Principals     []trust.Principal
	Accounts       []trust.Account
	DeleteAccounts []string
	Tenants        []model.Tenant // see store.Change.DeleteTenants
}

// Store holds the newest Trust, and changes it.
type Store struct {
	etcd   *etcd.Client
	asking shared        // for the newest Trust
	turn   chan struct{} // held by the call of Update that writes

	mu      sync.Mutex
	now     *Trust
	changed chan struct{} // closed when now is replaced
}

// Open reads what etcd holds. It follows changes only while Run runs.
func Open(ctx context.Context, client *etcd.Client) (*Store, error) {
	s := &Store{etcd: client, turn: make(chan struct{}, 1), changed: make(chan struct{})}
	return s, s.load(ctx)
}

// Watch returns the newest Trust and a channel that is closed when there is a newer one.
func (s *Store) Watch() (*Trust, <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.now, s.changed
}

func (s *Store) set(next *Trust) {
	s.mu.Lock()
	defer s.mu.Unlock()
	close(s.changed)
	s.now, s.changed = next, make(chan struct{})
}

// Update changes Trust by what decide makes of the newest one, all of it or nothing. If another
// manager is faster, decide is called again: what it refuses or leaves as it is, it decided on what the store
// holds. It returns when Trust shows the change. Calls of one manager take turns to write: of many that wrote at once one would
// succeed, and all others decide again. A refusal waits for nobody.
func (s *Store) Update(ctx context.Context, decide func(*Trust) (Change, error)) error {
	mine := false
	defer func() {
		if mine {
			<-s.turn
		}
	}()
	for {
		now, _ := s.Watch()
		change, refusal := decide(now)
		ops, err := change.operations(now)
		if err != nil {
			return err
		}
		if refusal != nil || len(ops) == 0 {
			if newest, err := s.IsNewest(ctx, now); err != nil || newest {
				return cmp.Or(err, refusal)
			}
			continue
		}
		if !mine {
			if err := s.takeTurn(ctx); err != nil {
				return err
			}
			mine = true
			if newest, _ := s.Watch(); newest != now {
				continue
			}
		}
		value, err := codec.Encode(struct{}{})
		if err != nil {
			return err
		}
		callCtx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
		response, err := s.etcd.Txn(callCtx).
			If(now.CompareVersion()).
			Then(append(ops, clientv3.OpPut(keyspace.Trust, value))...).
			Commit()
		cancel()
		if err != nil {
			return etcd.Explain("write to the store", err)
		}
		if err := s.await(ctx, response.Succeeded, now, response.Header.Revision); err != nil || response.Succeeded {
			return err
		}
	}
}

func (s *Store) takeTurn(ctx context.Context) error {
	select {
	case s.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Newest returns the Trust that the store holds, which may be the one that was read before: what is refused by
// that is asked of this one. All who ask at once share a read, and none a read that had begun before.
func (s *Store) Newest(ctx context.Context, was *Trust) (*Trust, error) {
	err := s.asking.share(ctx, func() error {
		now, _ := s.Watch()
		_, err := s.IsNewest(context.WithoutCancel(ctx), now)
		return err
	})
	if err != nil {
		return was, err
	}
	now, _ := s.Watch()
	return now, nil
}

// IsNewest reports whether the store holds no newer Trust than now. If it does, Trust has it by then.
func (s *Store) IsNewest(ctx context.Context, now *Trust) (bool, error) {
	callCtx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	response, err := s.etcd.Get(callCtx, keyspace.Trust, clientv3.WithKeysOnly())
	if err != nil {
		return false, etcd.Explain("read the store", err)
	}
	if len(response.Kvs) == 0 || response.Kvs[0].ModRevision <= now.version {
		return true, nil
	}
	return false, s.await(ctx, false, now, 0)
}

// FoundCA keeps authority if there is no CA yet, and returns the one that there is. It is for the time
// before Run.
func (s *Store) FoundCA(ctx context.Context, authority *trust.Authority) (*trust.Authority, error) {
	ops, err := Change{Authority: authority}.operations(&Trust{})
	if err != nil {
		return nil, err
	}
	value, err := codec.Encode(struct{}{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	_, err = s.etcd.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(keyspace.CA), "=", 0)).
		Then(append(ops, clientv3.OpPut(keyspace.Trust, value))...).Commit()
	if err != nil {
		return nil, etcd.Explain("write the CA to the store", err)
	}
	if err := s.load(ctx); err != nil {
		return nil, err
	}
	now, _ := s.Watch()
	return now.Authority, nil
}

// await returns when Trust holds the revision written, or, if nothing was, is newer than it was.
func (s *Store) await(ctx context.Context, written bool, was *Trust, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	for {
		now, changed := s.Watch()
		if written && now.revision >= revision || !written && now.version > was.version {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return fmt.Errorf("wait for the store's own write: %w", ctx.Err())
		}
	}
}

// operations are the writes that make now hold the change.
func (c Change) operations(now *Trust) ([]clientv3.Op, error) {
	var ops []clientv3.Op
	var errs []error
	put := func(key, value string, err error) {
		ops, errs = append(ops, clientv3.OpPut(key, value)), append(errs, err)
	}
	if c.Authority != nil {
		text, err := c.Authority.PEM()
		if err != nil {
			return nil, err
		}
		value, err := codec.Encode(string(text))
		put(keyspace.CA, value, err)
	}
	for _, t := range c.Tokens {
		value, err := codec.EncodeOver(now.unknown.At(keyspace.Tokens+t.ID), t)
		put(keyspace.Tokens+t.ID, value, err)
	}
	for _, u := range c.uses {
		value, err := codec.Encode(struct{}{})
		put(keyspace.TokenUses+u.path(), value, err)
	}
	for _, m := range c.Principals {
		value, err := codec.EncodeOver(now.unknown.At(keyspace.Principals+m.Key()), m)
		put(keyspace.Principals+m.Key(), value, err)
	}
	for _, a := range c.Accounts {
		value, err := codec.EncodeOver(now.unknown.At(keyspace.Users+a.Name), a)
		put(keyspace.Users+a.Name, value, err)
	}
	for _, t := range c.Tenants {
		value, err := codec.EncodeMessage(now.unknown.At(keyspace.Tenants+t.Name), compile.TenantMessage(t))
		put(keyspace.Tenants+t.Name, value, err)
	}
	if len(c.Tenants) > 0 {
		value, err := codec.Encode(struct{}{})
		put(keyspace.TenantsVersion, value, err)
	}
	for prefix, names := range map[string][]string{keyspace.Tokens: c.DeleteTokens, keyspace.Users: c.DeleteAccounts} {
		for _, name := range names {
			ops = append(ops, clientv3.OpDelete(prefix+name))
		}
	}
	for _, id := range c.DeleteTokens {
		ops = append(ops, clientv3.OpDelete(usesOf(id), clientv3.WithPrefix()))
	}
	return ops, errors.Join(errs...)
}

// load reads the whole of Trust.
func (s *Store) load(ctx context.Context) error {
	var next *Trust
	revision, err := s.etcd.Pages(ctx, keyspace.TrustRoot, func() { next = &Trust{} }, func(page []*mvccpb.KeyValue) error {
		for _, kv := range page {
			if err := next.put(string(kv.Key), kv.Value, kv.ModRevision); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	next.revision, next.withdrawn = revision, revision
	s.set(next)
	return nil
}

// put takes over one key's value.
func (t *Trust) put(key string, value []byte, revision int64) (err error) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(key, keyspace.TrustRoot), "/")
	switch prefix := keyspace.TrustRoot + kind; prefix {
	case keyspace.Trust:
		t.version = revision
	case keyspace.TenantsVersion:
		t.tenants = revision
	case keyspace.CA:
		var text string
		if text, err = codec.Decode[string](key, value); err == nil {
			t.Authority, err = trust.ParseAuthority([]byte(text))
		}
	case keyspace.Tokens[:len(keyspace.Tokens)-1]:
		var token trust.JoinToken
		token, err = decodeOf[trust.JoinToken](t, key, value)
		t.putToken(name, token)
	case keyspace.TokenUses[:len(keyspace.TokenUses)-1]:
		t.Uses.add(useOf(name))
	case keyspace.Principals[:len(keyspace.Principals)-1]:
		var principal trust.Principal
		principal, err = decodeOf[trust.Principal](t, key, value)
		if principal.Revoked || principal.Issue != t.Principals.At(name).Issue {
			t.withdrawn = revision
		}
		t.Principals.Set(name, principal)
	case keyspace.Users[:len(keyspace.Users)-1]:
		var account trust.Account
		account, err = decodeOf[trust.Account](t, key, value)
		t.Accounts.Set(name, account)
		t.withdrawn = revision
	case keyspace.Tenants[:len(keyspace.Tenants)-1]:
		tenant, unknown, failed := codec.DecodeMessage(key, value, &weirv1.Tenant{}, compile.StoredTenant)
		t.Tenants.Set(name, tenant)
		t.noteUnknown(key, value, unknown)
		err = failed
	}
	return err
}

// decodeOf is decode of a document that the Trust being built holds.
func decodeOf[T any](t *Trust, key string, data []byte) (T, error) {
	value, unknown, err := codec.DecodeKnown[T](key, data)
	t.noteUnknown(key, data, unknown && err == nil)
	return value, err
}

// noteUnknown keeps the document of a key if it has fields that this release does not know.
func (t *Trust) noteUnknown(key string, data []byte, unknown bool) {
	if t.unknown.Delete(key); unknown {
		t.unknown.Set(key, slices.Clone(data))
	}
}

// remove forgets one key.
func (t *Trust) remove(key string, revision int64) {
	t.unknown.Delete(key)
	kind, name, _ := strings.Cut(strings.TrimPrefix(key, keyspace.TrustRoot), "/")
	switch keyspace.TrustRoot + kind + "/" {
	case keyspace.Tokens:
		t.removeToken(name)
	case keyspace.TokenUses:
		t.Uses.remove(useOf(name))
	case keyspace.Principals:
		t.Principals.Delete(name)
		t.withdrawn = revision
	case keyspace.Users:
		t.Accounts.Delete(name)
		t.withdrawn = revision
	case keyspace.Tenants:
		t.Tenants.Delete(name)
	}
}

// Run keeps Trust current until ctx ends. It fails if there is something in etcd that it can't read.
func (s *Store) Run(ctx context.Context) error {
	revision := func() int64 {
		now, _ := s.Watch()
		return now.revision
	}
	return s.etcd.Follow(ctx, etcd.Follower{Prefix: keyspace.TrustRoot, Revision: revision, Take: s.take, Load: s.load})
}

// take makes Trust hold what changed.
func (s *Store) take(events []*mvccpb.Event) error {
	now, _ := s.Watch()
	next := now.clone()
	for _, event := range events {
		if event.Type == mvccpb.Event_DELETE {
			next.remove(string(event.Kv.Key), event.Kv.ModRevision)
		} else if err := next.put(string(event.Kv.Key), event.Kv.Value, event.Kv.ModRevision); err != nil {
			return err
		}
		next.revision = max(next.revision, event.Kv.ModRevision)
	}
	s.set(next)
	return nil
}

// FoundAdmin writes the cluster's first user. It is for the time before Run.
func (s *Store) FoundAdmin(ctx context.Context, account trust.Account) error {
	ops, err := Change{Accounts: []trust.Account{account}}.operations(&Trust{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	if _, err := s.etcd.Txn(ctx).Then(ops...).Commit(); err != nil {
		return etcd.Explain("write the first user to the store", err)
	}
	return s.load(ctx)
}

// ResetAdmin writes the first user anew, and returns the issue from which on its credentials are in force. It is for the
// time before Run.
func (s *Store) ResetAdmin(ctx context.Context, account trust.Account) (issue uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, etcd.CallTimeout)
	defer cancel()
	value, err := codec.Encode(struct{}{})
	if err != nil {
		return 0, err
	}
	for {
		now, _ := s.Watch()
		principal := trust.Principal{Kind: trust.User, Name: account.Name}
		principal.Issue = now.Principals.At(principal.Key()).Issue + 1
		ops, err := Change{Accounts: []trust.Account{account}, Principals: []trust.Principal{principal}}.operations(now)
		if err != nil {
			return 0, err
		}
		done, err := s.etcd.Txn(ctx).If(now.CompareVersion()).
			Then(append(ops, clientv3.OpPut(keyspace.Trust, value))...).Commit()
		if err != nil {
			return 0, etcd.Explain("reset the first user", err)
		}
		if err := s.load(ctx); err != nil || done.Succeeded {
			return principal.Issue, err
		}
	}
}
