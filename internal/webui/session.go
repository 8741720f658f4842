package webui

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/trust"
	"github.com/weirlb/weir/internal/webui/origin"
)

// Bounds of sessions.
const (
	maxSessions     = 1000           // of all users: who signs in beyond it is refused
	maxUserSessions = 16             // of one user: the one that was used last long ago makes room
	maxAge          = 12 * time.Hour // after which a user signs in again
	maxIdle         = 30 * time.Minute
	maxAgent        = 120 // bytes of what a browser says of itself
)

// CookieName is of the cookie that holds a session's secret. Browsers take a __Host- cookie by TLS alone, for this host
// alone, and from this host alone.
const CookieName = "__Host-weir"

// key finds a session: the hash of its secret, so that nothing here tells the secret.
type key [sha256.Size]byte

// session is one that a user began with a token, or by a provider.
type session struct {
	caller  trust.Identity
	from    string // address that it began from
	agent   string // that the browser says it is
	created time.Time
	until   time.Time // after which its user signs in again
	used    time.Time
	open    int // requests under way
	ended   context.Context
	end     context.CancelFunc
}

// id names a session in lists: it does not tell the secret.
func (k key) id() string { return hex.EncodeToString(k[:8]) }

// Sessions are those of one manager, in memory: whoever is sent to another manager, or to one that was restarted, signs in
// again.
type Sessions struct {
	now func() time.Time

	mu  sync.Mutex
	all map[key]*session
}

// NewSessions returns none.
func NewSessions(now func() time.Time) *Sessions {
	return &Sessions{now: now, all: map[key]*session{}}
}

// begin makes a session of a user, which lasts for most at most, and returns its secret; empty: there are too many.
func (s *Sessions) begin(caller trust.Identity, from, agent string, most time.Duration) (secret string) {
	var random [32]byte
	rand.Read(random[:]) // it never fails
	secret = base64.RawURLEncoding.EncodeToString(random[:])
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	if own := s.of(caller.String()); len(own) >= maxUserSessions {
		s.drop(own[len(own)-1])
	}
	if len(s.all) >= maxSessions {
		return ""
	}
	now := s.now()
	caller.From = "" // each request has its own
	made := &session{caller: caller, from: from, agent: agent[:min(len(agent), maxAgent)], created: now, until: now.Add(min(most, maxAge)), used: now}
	made.ended, made.end = context.WithCancel(context.Background())
	s.all[keyOf(secret)] = made
	return secret
}

func keyOf(secret string) key { return sha256.Sum256([]byte(secret)) }

// of are the keys of a user's sessions, the one used last first.
func (s *Sessions) of(user string) []key {
	var own []key
	for k, one := range s.all {
		if one.caller.String() == user {
			own = append(own, k)
		}
	}
	slices.SortFunc(own, func(a, b key) int {
		return cmp.Or(s.all[b].used.Compare(s.all[a].used), cmp.Compare(a.id(), b.id()))
	})
	return own
}

// expire drops the sessions whose time is over.
func (s *Sessions) expire() {
	now := s.now()
	for k, one := range s.all {
		if one.expired(now) {
			s.drop(k)
		}
	}
}

func (one *session) expired(now time.Time) bool {
	return !now.Before(one.until) || one.open == 0 && now.Sub(one.used) >= maxIdle
}

func (s *Sessions) drop(k key) {
	if one := s.all[k]; one != nil {
		one.end()
		delete(s.all, k)
	}
}

// secretOf is the secret that a request shows, if a browser says that a page of this origin makes it.
func secretOf(r *http.Request) (string, bool) {
	if !origin.Own(r) {
		return "", false
	}
	cookie, err := r.Cookie(CookieName)
	if err != nil {
		return "", false
	}
	return cookie.Value, true
}

// Caller is the user whose session a request shows, as that user was when the session began.
func (s *Sessions) Caller(r *http.Request) (caller trust.Identity, shown bool) {
	secret, shown := secretOf(r)
	if !shown {
		return caller, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.find(secret)
	if one == nil {
		return caller, false
	}
	return one.caller, true
}

// find returns the session of a secret. One whose time is over is dropped, so that no later request revives it.
func (s *Sessions) find(secret string) *session {
	k := keyOf(secret)
	if one := s.all[k]; one != nil && one.expired(s.now()) {
		s.drop(k)
	}
	return s.all[k]
}

// Use notes that a request of a session is under way until leave is called. Its context ends with the session.
func (s *Sessions) Use(r *http.Request) (within *http.Request, leave func()) {
	secret, shown := secretOf(r)
	if !shown {
		return r, func() {}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	one := s.find(secret)
	if one == nil {
		return r, func() {}
	}
	one.open++
	ctx, cancel := context.WithTimeout(r.Context(), one.until.Sub(s.now()))
	stop := context.AfterFunc(one.ended, cancel)
	return r.WithContext(ctx), func() {
		stop()
		cancel()
		s.mu.Lock()
		defer s.mu.Unlock()
		one.open--
		one.used = s.now()
	}
}

// EndOf ends the session that a request shows.
func (s *Sessions) EndOf(r *http.Request) {
	if secret, shown := secretOf(r); shown {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.drop(keyOf(secret))
	}
}

// endByID ends a session of a user, and says whether there was one.
func (s *Sessions) endByID(user, id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.of(user) {
		if k.id() == id {
			s.drop(k)
			return true
		}
	}
	return false
}

// Listed is a session in a list of a user's.
type Listed struct {
	ID       string    `json:"id"`
	From     string    `json:"from"`
	Agent    string    `json:"agent"`
	Created  time.Time `json:"created"`
	LastUsed time.Time `json:"lastUsed"`
	Current  bool      `json:"current"` // the request's own
}

// list lists the sessions of a user.
func (s *Sessions) list(user string, r *http.Request) []Listed {
	secret, _ := secretOf(r)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.expire()
	listed := []Listed{}
	for _, k := range s.of(user) {
		one := s.all[k]
		listed = append(listed, Listed{
			ID: k.id(), From: one.from, Agent: one.agent, Created: one.created, LastUsed: one.used, Current: k == keyOf(secret),
		})
	}
	return listed
}
