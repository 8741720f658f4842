// Package connlimit bounds the connections of clients that have not authenticated yet: a TLS handshake, and what HTTP keeps of
// a connection, cost a server far more than a socket that waits in a queue.
package connlimit

import (
	"context"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirlb/weir/internal/limits"
)

// Listener bounds how many connections of unauthenticated clients are accepted, at once and a second, by source address and
// of all together (internal/limits). What is beyond waits in a queue, served round robin by source address: one that opens
// thousands waits for itself.
//
// The bounds are token buckets: an accepted connection holds a token of its source address and takes one of all. It gives
// them back when its client authenticates, and then counts no longer; one that ends without that has used them up.
type Listener struct {
	address  net.Addr
	file     *os.File // of the listening socket
	raw      syscall.RawConn
	accepted chan *conn
	ended    chan struct{}
	timeout  time.Duration // of a connection in the queue

	mu          sync.Mutex
	served      int // connections that took a token of all, and have neither ended nor authenticated
	begun       pace
	sources     map[netip.Prefix]*source
	ring        []netip.Prefix // source addresses with queued connections; the first has the next turn
	queueLength int
	ticking     bool // dequeue comes by itself, while some are queued
	swept       time.Time
	trusted     map[netip.Prefix]time.Time // when a client authenticated from there
}

// source is a source address with unauthenticated connections: accepted, queued, or ended so lately that tokens are missing.
type source struct {
	bucket
	queued []queued // the oldest first
}

// queued is a connection in the queue.
type queued struct {
	socket
	until time.Time
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

// pace is a token bucket that takes tokens back, which rate.Limiter does not.
type pace struct {
	tokens, perSecond, burst float64
	at                       time.Time // when the tokens were so many
}

func newPace(perSecond, burst float64) pace { return pace{burst, perSecond, burst, time.Time{}} }

// has says whether there is a token.
func (p *pace) has(now time.Time) bool {
	p.tokens = min(p.burst, p.tokens+p.perSecond*now.Sub(p.at).Seconds())
	p.at = now
	return p.tokens >= 1
}

// conn is a connection whose client has not authenticated yet.
type conn struct {
	net.Conn

	listener *Listener
	socket   socket // until Accept opens it
	source   netip.Prefix
	began    time.Time
	exempt   bool // it holds no token of all: a client authenticated from its source address
	sent     atomic.Bool
	once     sync.Once
}

const (
	// queueInterval is the time between two looks whether queued connections have tokens, or were queued for too long.
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

// New returns a Listener of the connections of below, which it takes over; one is queued for at most timeout. Run must run.
func New(below *net.TCPListener, timeout time.Duration) (*Listener, error) {
	l := newListener(timeout)
	l.address = below.Addr()
	defer below.Close()
	var err error
	if l.file, err = below.File(); err != nil {
		return nil, fmt.Errorf("take over the socket of %s: %w", l.address, err)
	}
	l.raw, err = l.file.SyscallConn()
	return l, err
}

func newListener(timeout time.Duration) *Listener {
	return &Listener{
		accepted: make(chan *conn, backlog), ended: make(chan struct{}), timeout: timeout,
		begun:   newPace(limits.HandshakesAll, limits.HandshakesBurst),
		sources: map[netip.Prefix]*source{}, trusted: map[netip.Prefix]time.Time{},
	}
}

// Addr is the address that it listens at.
func (l *Listener) Addr() net.Addr { return l.address }

// Close ends Run and Accept.
func (l *Listener) Close() error { return l.file.Close() }

// end closes the connections that nobody takes any more.
func (l *Listener) end() {
	close(l.ended)
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, name := range l.ring {
		for _, q := range l.sources[name].queued {
			q.close()
		}
		l.sources[name].queued = nil
	}
	l.ring, l.queueLength = nil, 0
	for {
		select {
		case c := <-l.accepted:
			c.socket.close()
		default:
			return
		}
	}
}

// Accept returns the next connection that is within the bounds.
func (l *Listener) Accept() (net.Conn, error) {
	for {
		select {
		case c := <-l.accepted:
			opened, err := c.socket.open()
			if err != nil {
				c.once.Do(func() { l.release(c, false) })
				continue
			}
			c.Conn = opened
			return c, nil
		case <-l.ended:
			return nil, net.ErrClosed
		}
	}
}

// arrive accepts a connection, queues it, or closes it if the queue is full.
func (l *Listener) arrive(from netip.Prefix, arrived socket) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := l.sources[from]
	if s == nil {
		l.sweep(now)
		s = &source{bucket: newBucket(limits.HandshakesEach, limits.ConnectionsEach)}
		l.sources[from] = s
	}
	switch {
	case len(s.queued) == 0 && l.admit(s, from, arrived, false, now):
	case l.queueLength >= limits.ConnectionsWait || len(s.queued) >= limits.ConnectionsWaitEach:
		arrived.close()
	default:
		if len(s.queued) == 0 {
			l.ring = append(l.ring, from)
		}
		l.queueLength++
		s.queued = append(s.queued, queued{arrived, now.Add(l.timeout)})
		l.tick()
	}
}

// admit accepts a connection if there are tokens, and returns whether it did. One that was queued, and whose client has gone,
// costs none: they are the first of a long queue, and those that still wait would find no token for ever.
func (l *Listener) admit(s *source, from netip.Prefix, waiting socket, queued bool, now time.Time) bool {
	at, known := l.trusted[from]
	exempt := known && now.Sub(at) < trustedTime
	if !s.has(now) || !exempt && (l.served >= limits.ConnectionsAll || !l.begun.has(now)) {
		return false
	}
	if queued && waiting.gone() {
		waiting.close()
		return true
	}
	select {
	case l.accepted <- &conn{listener: l, socket: waiting, source: from, began: now, exempt: exempt}:
	default: // the server is slower than its clients
		return false
	}
	s.used++
	if !exempt {
		l.served++
		l.begun.tokens--
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

// tick has dequeue come, if connections are queued.
func (l *Listener) tick() {
	if l.queueLength > 0 && !l.ticking {
		l.ticking = true
		time.AfterFunc(queueInterval, l.dequeue)
	}
}

// dequeue closes connections that were queued for too long, and accepts queued ones while there are tokens.
func (l *Listener) dequeue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	l.ticking = false
	l.expire(now)
	for l.roundRobin(now) {
	}
	l.tick()
}

// expire closes the connections that were queued for too long.
func (l *Listener) expire(now time.Time) {
	l.ring = slices.DeleteFunc(l.ring, func(name netip.Prefix) (empty bool) {
		s := l.sources[name]
		for len(s.queued) > 0 && !now.Before(s.queued[0].until) {
			s.queued[0].close()
			s.queued = s.queued[1:]
			l.queueLength--
		}
		return len(s.queued) == 0
	})
}

// roundRobin accepts the first queued connection of each source address, if there are tokens. It returns whether one left the
// queue.
func (l *Listener) roundRobin(now time.Time) (admitted bool) {
	for range len(l.ring) {
		name := l.ring[0]
		l.ring = l.ring[1:]
		s := l.sources[name]
		if l.admit(s, name, s.queued[0].socket, true, now) {
			s.queued = s.queued[1:]
			l.queueLength--
			admitted = true
		}
		if len(s.queued) > 0 {
			l.ring = append(l.ring, name)
		}
	}
	return admitted
}

// release gives the tokens of a connection back, or uses them up if it ended unauthenticated. One that never sent a byte, as
// a health check of TCP, uses none up: it has cost no handshake.
func (l *Listener) release(c *conn, authenticated bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	s := &l.sources[c.source].bucket
	unspent := authenticated || !c.sent.Load()
	if unspent {
		s.used--
	} else {
		s.spend(now)
	}
	if !c.exempt {
		l.served--
		if unspent {
			l.begun.tokens++
		}
	}
	if authenticated {
		l.remember(c.source, now)
	}
}

// remember notes that a client authenticated from a source address.
func (l *Listener) remember(name netip.Prefix, now time.Time) {
	if _, there := l.trusted[name]; !there && len(l.trusted) >= maxTrusted {
		maps.DeleteFunc(l.trusted, func(_ netip.Prefix, at time.Time) bool { return now.Sub(at) >= trustedTime })
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

// Age is for how long the connection that a request comes by has been served.
func Age(ctx context.Context) time.Duration {
	if c, ok := ctx.Value(connKey{}).(*conn); ok {
		return time.Since(c.began)
	}
	return 0
}
