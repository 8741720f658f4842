package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/compile"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/trust"
)

// Keys of what decides who may do what. It has no part in generations: a State does not hold it, and
// every manager may write it.
const (
	trustRoot        = "/weir/trust/v1/"
	keyTrust         = trustRoot + "version"         // written with every change
	keyTenants       = trustRoot + "tenants-version" // written with every change of tenants
	keyCA            = trustRoot + "ca"
	prefixTokens     = trustRoot + "tokens/"
	prefixPrincipals = trustRoot + "principals/"
	prefixAccounts   = trustRoot + "users/"
	prefixTenants    = trustRoot + "tenants/"
)

// Trust is what decides who may do what, as of one revision. It is read only.
type Trust struct {
	Authority  *trust.Authority           // nil: there is no CA yet
	Tokens     map[string]trust.JoinToken // by id
	Principals map[string]trust.Principal // by "mux/mux1"
	Accounts   map[string]trust.Account   // users, by name
	Tenants    map[string]model.Tenant    // by name

	version  int64             // revision of keyTrust
	tenants  int64             // revision of keyTenants
	unknown  map[string][]byte // documents with fields of a newer release, by key
	revision int64
}

// Version grows with every change.
func (t *Trust) Version() int64 { return t.version }

// HasRevoked says whether nobody has a credential of a principal that is in force.
func (t *Trust) HasRevoked(kind trust.Kind, name string) bool {
	return t.Principals[string(kind)+"/"+name].Revoked
}

func (t *Trust) clone() *Trust {
	next := *t
	next.Tokens, next.Principals = maps.Clone(t.Tokens), maps.Clone(t.Principals)
	next.Accounts, next.Tenants = maps.Clone(t.Accounts), maps.Clone(t.Tenants)
	next.unknown = maps.Clone(t.unknown)
	return &next
}

// TrustChange is one step of Trust.
type TrustChange struct {
	Authority      *trust.Authority
	Tokens         []trust.JoinToken
	DeleteTokens   []string
	Principals     []trust.Principal
	Accounts       []trust.Account
	DeleteAccounts []string
	Tenants        []model.Tenant // see Change.DeleteTenants
}

// trusted holds the newest Trust.
type trusted struct {
	mu      sync.Mutex
	now     *Trust
	changed chan struct{} // closed when now is replaced
}

func (t *trusted) get() (*Trust, <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.now, t.changed
}

func (t *trusted) set(next *Trust) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.changed != nil {
		close(t.changed)
	}
	t.now, t.changed = next, make(chan struct{})
}

// Trust returns the newest Trust and a channel that is closed when there is a newer one.
func (s *Store) Trust() (*Trust, <-chan struct{}) { return s.trusted.get() }

// UpdateTrust changes Trust by what decide makes of the newest one, all of it or nothing. If another
// manager is faster, decide is called again: what it refuses or leaves as it is, it decided on what the store
// holds. It returns when Trust shows the change.
func (s *Store) UpdateTrust(ctx context.Context, decide func(*Trust) (TrustChange, error)) error {
	for {
		now, _ := s.Trust()
		change, refusal := decide(now)
		ops, err := change.operations(now)
		if err != nil {
			return err
		}
		if refusal != nil || len(ops) == 0 {
			if newest, err := s.isNewest(ctx, now); err != nil || newest {
				return cmp.Or(err, refusal)
			}
			continue
		}
		value, err := encode(struct{}{})
		if err != nil {
			return err
		}
		callCtx, cancel := context.WithTimeout(ctx, callTimeout)
		response, err := s.client.Txn(callCtx).
			If(clientv3.Compare(clientv3.ModRevision(keyTrust), "=", now.version)).
			Then(append(ops, clientv3.OpPut(keyTrust, value))...).
			Commit()
		cancel()
		if err != nil {
			return explain("write to the store", err)
		}
		if err := s.awaitTrust(ctx, response.Succeeded, now, response.Header.Revision); err != nil || response.Succeeded {
			return err
		}
	}
}

// NewestTrust returns the Trust that the store holds, which may be the one that was read before: what is refused by
// that is asked of this one. All who ask at once share a read, and none a read that had begun before.
func (s *Store) NewestTrust(ctx context.Context, was *Trust) (*Trust, error) {
	err := s.asking.share(ctx, func() error {
		now, _ := s.Trust()
		_, err := s.isNewest(context.WithoutCancel(ctx), now)
		return err
	})
	if err != nil {
		return was, err
	}
	now, _ := s.Trust()
	return now, nil
}

// isNewest reports whether the store holds no newer Trust than now. If it does, Trust has it by then.
func (s *Store) isNewest(ctx context.Context, now *Trust) (bool, error) {
	callCtx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	response, err := s.client.Get(callCtx, keyTrust, clientv3.WithKeysOnly())
	if err != nil {
		return false, explain("read the store", err)
	}
	if len(response.Kvs) == 0 || response.Kvs[0].ModRevision <= now.version {
		return true, nil
	}
	return false, s.awaitTrust(ctx, false, now, 0)
}

// FoundTrust keeps authority if there is no CA yet, and returns the one that there is. It is for the time
// before Run.
func (s *Store) FoundTrust(ctx context.Context, authority *trust.Authority) (*trust.Authority, error) {
	ops, err := TrustChange{Authority: authority}.operations(&Trust{})
	if err != nil {
		return nil, err
	}
	value, err := encode(struct{}{})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err = s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(keyCA), "=", 0)).
		Then(append(ops, clientv3.OpPut(keyTrust, value))...).Commit()
	if err != nil {
		return nil, explain("write the CA to the store", err)
	}
	if err := s.loadTrust(ctx); err != nil {
		return nil, err
	}
	now, _ := s.Trust()
	return now.Authority, nil
}

// awaitTrust returns when Trust holds the revision written, or, if nothing was, is newer than it was.
func (s *Store) awaitTrust(ctx context.Context, written bool, was *Trust, revision int64) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for {
		now, changed := s.Trust()
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
func (c TrustChange) operations(now *Trust) ([]clientv3.Op, error) {
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
		value, err := encode(string(text))
		put(keyCA, value, err)
	}
	for _, t := range c.Tokens {
		value, err := encodeOver(now.unknown[prefixTokens+t.ID], t)
		put(prefixTokens+t.ID, value, err)
	}
	for _, m := range c.Principals {
		value, err := encodeOver(now.unknown[prefixPrincipals+m.Key()], m)
		put(prefixPrincipals+m.Key(), value, err)
	}
	for _, a := range c.Accounts {
		value, err := encodeOver(now.unknown[prefixAccounts+a.Name], a)
		put(prefixAccounts+a.Name, value, err)
	}
	for _, t := range c.Tenants {
		value, err := encodeMessage(now.unknown[prefixTenants+t.Name], compile.TenantMessage(t))
		put(prefixTenants+t.Name, value, err)
	}
	if len(c.Tenants) > 0 {
		value, err := encode(struct{}{})
		put(keyTenants, value, err)
	}
	for prefix, names := range map[string][]string{prefixTokens: c.DeleteTokens, prefixAccounts: c.DeleteAccounts} {
		for _, name := range names {
			ops = append(ops, clientv3.OpDelete(prefix+name))
		}
	}
	return ops, errors.Join(errs...)
}

// loadTrust reads the whole of Trust.
func (s *Store) loadTrust(ctx context.Context) error {
	var next *Trust
	revision, err := s.pages(ctx, trustRoot, func() {
		next = &Trust{
			Tokens: map[string]trust.JoinToken{}, Principals: map[string]trust.Principal{},
			Accounts: map[string]trust.Account{}, Tenants: map[string]model.Tenant{}, unknown: map[string][]byte{},
		}
	}, func(page []*mvccpb.KeyValue) error {
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
	next.revision = revision
	s.trusted.set(next)
	return nil
}

// put takes over one key's value.
func (t *Trust) put(key string, value []byte, revision int64) (err error) {
	kind, name, _ := strings.Cut(strings.TrimPrefix(key, trustRoot), "/")
	switch prefix := trustRoot + kind; prefix {
	case keyTrust:
		t.version = revision
	case keyTenants:
		t.tenants = revision
	case keyCA:
		var text string
		if text, err = decode[string](key, value); err == nil {
			t.Authority, err = trust.ParseAuthority([]byte(text))
		}
	case prefixTokens[:len(prefixTokens)-1]:
		t.Tokens[name], err = decodeOf[trust.JoinToken](t, key, value)
	case prefixPrincipals[:len(prefixPrincipals)-1]:
		t.Principals[name], err = decodeOf[trust.Principal](t, key, value)
	case prefixAccounts[:len(prefixAccounts)-1]:
		t.Accounts[name], err = decodeOf[trust.Account](t, key, value)
	case prefixTenants[:len(prefixTenants)-1]:
		var unknown bool
		t.Tenants[name], unknown, err = decodeMessage(key, value, &weirv1.Tenant{}, compile.StoredTenant)
		t.noteUnknown(key, value, unknown)
	}
	return err
}

// decodeOf is decode of a document that the Trust being built holds.
func decodeOf[T any](t *Trust, key string, data []byte) (T, error) {
	value, unknown, err := decodeKnown[T](key, data)
	t.noteUnknown(key, data, unknown && err == nil)
	return value, err
}

// noteUnknown keeps the document of a key if it has fields that this release does not know.
func (t *Trust) noteUnknown(key string, data []byte, unknown bool) {
	if delete(t.unknown, key); unknown {
		t.unknown[key] = slices.Clone(data)
	}
}

// remove forgets one key.
func (t *Trust) remove(key string) {
	delete(t.unknown, key)
	kind, name, _ := strings.Cut(strings.TrimPrefix(key, trustRoot), "/")
	switch trustRoot + kind + "/" {
	case prefixTokens:
		delete(t.Tokens, name)
	case prefixPrincipals:
		delete(t.Principals, name)
	case prefixAccounts:
		delete(t.Accounts, name)
	case prefixTenants:
		delete(t.Tenants, name)
	}
}

// followTrust keeps Trust current.
func (s *Store) followTrust(ctx context.Context) error {
	for {
		err := s.watchTrust(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if errors.As(err, new(*unreadableError)) {
			return err
		}
		if errors.Is(err, rpctypes.ErrCompacted) {
			if err := s.loadTrust(ctx); err == nil {
				continue
			}
		}
		s.log.Warn("lost the watch of the store, opening it again", "err", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(retryWait):
		}
	}
}

func (s *Store) watchTrust(ctx context.Context) error {
	ctx, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	now, _ := s.Trust()
	for response := range s.client.Watch(ctx, trustRoot, clientv3.WithPrefix(), clientv3.WithRev(now.revision+1)) {
		if err := response.Err(); err != nil {
			return err
		}
		now, _ := s.Trust()
		next := now.clone()
		for _, event := range response.Events {
			if event.Type == clientv3.EventTypeDelete {
				next.remove(string(event.Kv.Key))
			} else if err := next.put(string(event.Kv.Key), event.Kv.Value, event.Kv.ModRevision); err != nil {
				return &unreadableError{err}
			}
			next.revision = max(next.revision, event.Kv.ModRevision)
		}
		s.trusted.set(next)
	}
	return errors.New("the watch ended")
}

// FoundAdmin writes the cluster's first user. It is for the time before Run.
func (s *Store) FoundAdmin(ctx context.Context, account trust.Account) error {
	ops, err := TrustChange{Accounts: []trust.Account{account}}.operations(&Trust{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	if _, err := s.client.Txn(ctx).Then(ops...).Commit(); err != nil {
		return explain("write the first user to the store", err)
	}
	return s.loadTrust(ctx)
}

// ResetAdmin writes the first user anew, and returns the issue from which on its credentials are in force. It is for the
// time before Run.
func (s *Store) ResetAdmin(ctx context.Context, account trust.Account) (issue uint32, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	value, err := encode(struct{}{})
	if err != nil {
		return 0, err
	}
	for {
		now, _ := s.Trust()
		principal := trust.Principal{Kind: trust.User, Name: account.Name}
		principal.Issue = now.Principals[principal.Key()].Issue + 1
		ops, err := TrustChange{Accounts: []trust.Account{account}, Principals: []trust.Principal{principal}}.operations(now)
		if err != nil {
			return 0, err
		}
		done, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.ModRevision(keyTrust), "=", now.version)).
			Then(append(ops, clientv3.OpPut(keyTrust, value))...).Commit()
		if err != nil {
			return 0, explain("reset the first user", err)
		}
		if err := s.loadTrust(ctx); err != nil || done.Succeeded {
			return principal.Issue, err
		}
	}
}
