// Package connlimit bounds the connections of clients that have not authenticated yet: a TLS handshake, and what HTTP keeps of
// a connection, cost a server far more than a socket that waits in a queue.
package connlimit

import (
	"context"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirlb/weir/internal/limits"
)

// Listener bounds how many connections of unauthenticated clients are accepted, at once and a second, by source address and
// of all together (internal/limits). What is beyond waits in a queue, served round robin by source address: one that opens
// thousands waits for itself.
//
// The bounds are token buckets: an accepted connection holds a token of its source address and one of all. It gives them
// back when its client authenticates, and then counts no longer; one that ends without that has used them up.
type Listener struct {
	net.Listener

	accepted chan *conn
	ended    chan struct{}
	timeout  time.Duration // of a connection in the queue

	mu          sync.Mutex
	all         bucket
	sources     map[string]*source
	ring        []string // source addresses with queued connections; the first has the next turn
	queueLength int
	timer       *time.Timer // while some are queued
	swept       time.Time
	trusted     map[string]time.Time // when a client authenticated from there
	err         error                // of the listener below
}

// source is a source address with unauthenticated connections: accepted, queued, or ended so lately that tokens are missing.
type source struct {
	bucket
	queued []*conn
}

// bucket is a token bucket, and how many of its tokens are held by connections.
type bucket struct {
	tokens *rate.Limiter
	used   int
}

func newBucket(perSecond float64, burst int) bucket {
	return bucket{tokens: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

func (b *bucket) has(now time.Time) bool { return b.tokens.TokensAt(now) >= float64(b.used+1) }

// spend uses up a token that was held.
func (b *bucket) spend(now time.Time) {
	b.used--
	b.tokens.ReserveN(now, 1)
}

// full says whether a new bucket would be the same.
func (b *bucket) full(now time.Time) bool {
	return b.used == 0 && b.tokens.TokensAt(now) >= float64(b.tokens.Burst())
}

// conn is a connection whose client has not authenticated yet.
type conn struct {
	net.Conn

	listener *Listener
	source   string
	exempt   bool // it holds no token of all: a client authenticated from its source address
	sent     atomic.Bool
	once     sync.Once
	timer    *time.Timer // while it is queued
}

const (
	// queueInterval is the time between two looks whether there are tokens for queued connections.
	queueInterval = 5 * time.Millisecond
	// sweepInterval is the time between two looks for source addresses that can be forgotten.
	sweepInterval = 100 * time.Millisecond
	// trustedTime is how long a source address from which a client authenticated needs no token of all; maxTrusted bounds
	// how many are remembered.
	trustedTime = time.Hour
	maxTrusted  = 16384
	// backlog is how many connections may wait for Accept.
	backlog = 1024
)

// New returns a Listener of the connections that below accepts; one is queued for at most timeout. Run must run.
func New(below net.Listener, timeout time.Duration) *Listener {
	return &Listener{
		Listener: below, accepted: make(chan *conn, backlog), ended: make(chan struct{}), timeout: timeout,
		all:     newBucket(limits.HandshakesAll, limits.ConnectionsAll),
		sources: map[string]*source{}, trusted: map[string]time.Time{},
	}
}

// Run accepts connections of the listener below until that is closed.
func (l *Listener) Run() {
	for {
		accepted, err := l.Listener.Accept()
		if err != nil {
			if passing, ok := err.(net.Error); ok && passing.Timeout() { //nolint:errorlint // Accept returns it bare
				continue
			}
			l.end(err)
			return
		}
		l.arrive(&conn{Conn: accepted, listener: l, source: limits.SourceOf(accepted.RemoteAddr().String())})
	}
}

// end closes the queued connections.
func (l *Listener) end(err error) {
	l.mu.Lock()
	l.err = err
	var queued []*conn
	for _, s := range l.sources {
		queued, s.queued = append(queued, s.queued...), nil
	}
	l.ring, l.queueLength = nil, 0
	l.mu.Unlock()
	close(l.ended)
	for _, c := range queued {
		c.timer.Stop()
		c.Conn.Close()
	}
	for {
		select {
		case c := <-l.accepted: // nobody takes it any more
			c.Conn.Close()
		default:
			return
		}
	}
}

// Accept returns the next connection that is within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	select {
	case c := <-l.accepted:
		return c, nil
	case <-l.ended:
		return nil, l.err
	}
}

// arrive accepts a connection, queues it, or closes it if the queue is full.
func (l *Listener) arrive(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.sources[c.source]
	if s == nil {
		l.sweep(now)
		s = &source{bucket: newBucket(limits.HandshakesEach, limits.ConnectionsEach)}
		l.sources[c.source] = s
	}
	switch {
	case len(s.queued) == 0 && l.admit(s, c, now):
	case l.queueLength >= limits.ConnectionsWait || len(s.queued) >= limits.ConnectionsWaitEach:
		c.Conn.Close()
	default:
		if len(s.queued) == 0 {
			l.ring = append(l.ring, c.source)
		}
		l.queueLength++
		s.queued = append(s.queued, c)
		c.timer = time.AfterFunc(l.timeout, func() { l.expire(c) })
		if l.timer == nil {
			l.timer = time.AfterFunc(queueInterval, l.dequeue)
		}
	}
}

// admit accepts a connection if there are tokens, and returns whether it did.
func (l *Listener) admit(s *source, c *conn, now time.Time) bool {
	at, known := l.trusted[c.source]
	c.exempt = known && now.Sub(at) < trustedTime
	if !s.has(now) || !c.exempt && !l.all.has(now) {
		return false
	}
	select {
	case l.accepted <- c:
	default: // the server is slower than its clients
		return false
	}
	s.used++
	if !c.exempt {
		l.all.used++
	}
	return true
}

// sweep forgets the source addresses of which nothing is to be remembered.
func (l *Listener) sweep(now time.Time) {
	if now.Sub(l.swept) < sweepInterval {
		return
	}
	l.swept = now
	for name, s := range l.sources {
		if len(s.queued) == 0 && s.full(now) {
			delete(l.sources, name)
		}
	}
}

// dequeue accepts queued connections while there are tokens, and comes again while some are left.
func (l *Listener) dequeue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.timer = nil
	for l.roundRobin(now) {
	}
	if l.queueLength > 0 {
		l.timer = time.AfterFunc(queueInterval, l.dequeue)
	}
}

// roundRobin accepts the first queued connection of each source address, if there are tokens. It returns whether it accepted one.
func (l *Listener) roundRobin(now time.Time) (admitted bool) {
	for range len(l.ring) {
		name := l.ring[0]
		l.ring = l.ring[1:]
		s := l.sources[name]
		if first := s.queued[0]; l.admit(s, first, now) {
			s.queued = s.queued[1:]
			l.queueLength--
			first.timer.Stop()
			admitted = true
		}
		if len(s.queued) > 0 {
			l.ring = append(l.ring, name)
		}
	}
	return admitted
}

// expire closes a connection that was queued for too long.
func (l *Listener) expire(c *conn) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.sources[c.source]
	if s == nil {
		return
	}
	at := slices.Index(s.queued, c)
	if at < 0 {
		return
	}
	s.queued = slices.Delete(s.queued, at, at+1)
	l.queueLength--
	if len(s.queued) == 0 {
		l.leaveRing(c.source)
	}
	c.Conn.Close()
}

func (l *Listener) leaveRing(name string) {
	if at := slices.Index(l.ring, name); at >= 0 {
		l.ring = slices.Delete(l.ring, at, at+1)
	}
}

// release gives the tokens of a connection back, or uses them up if it ended unauthenticated. One that never sent a byte, as
// a health check of TCP, uses none up: it has cost no handshake.
func (l *Listener) release(c *conn, authenticated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	used := []*bucket{&l.sources[c.source].bucket, &l.all}
	if c.exempt {
		used = used[:1]
	}
	for _, b := range used {
		if authenticated || !c.sent.Load() {
			b.used--
		} else {
			b.spend(now)
		}
	}
	if authenticated {
		l.remember(c.source, now)
	}
}

// remember notes that a client authenticated from a source address.
func (l *Listener) remember(name string, now time.Time) {
	if _, there := l.trusted[name]; !there && len(l.trusted) >= maxTrusted {
		maps.DeleteFunc(l.trusted, func(_ string, at time.Time) bool { return now.Sub(at) >= trustedTime })
		if len(l.trusted) >= maxTrusted {
			return
		}
	}
	l.trusted[name] = now
}

// Close closes the connection, and gives its tokens back.
func (c *conn) Close() error {
	c.once.Do(func() { c.listener.release(c, false) })
	return c.Conn.Close()
}

// Read notes that the client sent something: it may have cost a TLS handshake.
func (c *conn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		c.sent.Store(true)
	}
	return n, err
}

// authenticated ends the bounds of a connection.
func (c *conn) authenticated() { c.once.Do(func() { c.listener.release(c, true) }) }

type connKey struct{}

// WithConn notes the connection that requests come by. It is for http.Server.ConnContext.
func WithConn(ctx context.Context, of net.Conn) context.Context {
	for {
		above, ok := of.(interface{ NetConn() net.Conn }) // tls.Conn, for one
		if !ok {
			break
		}
		of = above.NetConn()
	}
	if c, ok := of.(*conn); ok {
		return context.WithValue(ctx, connKey{}, c)
	}
	return ctx
}

// Authenticated notes that the client of a request has authenticated: its connection is bounded no longer.
func Authenticated(ctx context.Context) {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		c.authenticated()
	}
}
