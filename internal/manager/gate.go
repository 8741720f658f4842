package manager

import (
	"context"
	"crypto/tls"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/weirlb/weir/internal/rpc/bound"
)

// gate bounds the connections of those that have not said yet who they are: a TLS handshake and what HTTP keeps of a
// connection cost far more than a socket that waits. Addresses have their turns: one that opens thousands waits for its own.
//
// The places of an address, and those of all, are token buckets: at most as many connections are served as there are tokens. One
// that ends and never said who it is takes its token along; one whose caller is known has its place no longer, and gives it back.
type gate struct {
	net.Listener

	admitted chan *visitor
	ended    chan struct{}
	patience time.Duration // that a connection waits to be served

	mu      sync.Mutex
	all     bucket
	sources map[string]*source
	order   []string // of sources with connections that wait; the first has the next turn
	waits   int
	timer   *time.Timer // while some wait
	swept   time.Time
	known   map[string]time.Time // when a caller from there was known
	err     error                // of the listener
}

// source is an address with connections that are served without a known caller, or wait, or ended so lately.
type source struct {
	bucket
	waiting []*visitor
}

// bucket is a token bucket, and how many of its tokens are used just now.
type bucket struct {
	tokens *rate.Limiter
	used   int
}

func newBucket(perSecond float64, burst int) bucket {
	return bucket{tokens: rate.NewLimiter(rate.Limit(perSecond), burst)}
}

func (b *bucket) has(now time.Time) bool { return b.tokens.TokensAt(now) >= float64(b.used+1) }

// spend ends the use of a token, which is gone.
func (b *bucket) spend(now time.Time) {
	b.used--
	b.tokens.ReserveN(now, 1)
}

// unused says whether a new bucket would be the same.
func (b *bucket) unused(now time.Time) bool {
	return b.used == 0 && b.tokens.TokensAt(now) >= float64(b.tokens.Burst())
}

// visitor is a connection whose caller is not known yet.
type visitor struct {
	net.Conn

	gate   *gate
	source string
	exempt bool // it takes no token of all: a caller was known from its address
	spoke  atomic.Bool
	once   sync.Once
	timer  *time.Timer // while it waits
}

const (
	// lookPause is the time between two looks whether there are tokens for connections that wait.
	lookPause = 5 * time.Millisecond
	// sweepSources is the time between two looks for addresses that can be forgotten.
	sweepSources = 100 * time.Millisecond
	// sourceKnown is how long an address that a known caller came from needs no tokens of the others, and maxKnown how many do.
	sourceKnown = time.Hour
	maxKnown    = 16384
	// maxAdmitted is how many connections may wait for the server to accept them.
	maxAdmitted = 1024
)

func newGate(l net.Listener, patience time.Duration) *gate {
	return &gate{
		Listener: l, admitted: make(chan *visitor, maxAdmitted), ended: make(chan struct{}), patience: patience,
		all:     newBucket(bound.HandshakesAll, bound.ConnectionsAll),
		sources: map[string]*source{}, known: map[string]time.Time{},
	}
}

// run takes connections until the listener is closed.
func (g *gate) run() {
	for {
		conn, err := g.Listener.Accept()
		if err != nil {
			if passing, ok := err.(net.Error); ok && passing.Timeout() { //nolint:errorlint // Accept returns it bare
				continue
			}
			g.end(err)
			return
		}
		g.arrive(&visitor{Conn: conn, gate: g, source: bound.SourceOf(conn.RemoteAddr().String())})
	}
}

// end closes what waits.
func (g *gate) end(err error) {
	g.mu.Lock()
	g.err = err
	var waiting []*visitor
	for _, s := range g.sources {
		waiting, s.waiting = append(waiting, s.waiting...), nil
	}
	g.order, g.waits = nil, 0
	g.mu.Unlock()
	close(g.ended)
	for _, v := range waiting {
		v.timer.Stop()
		v.Conn.Close()
	}
	for {
		select {
		case v := <-g.admitted: // nobody takes it any more
			v.Conn.Close()
		default:
			return
		}
	}
}

// Accept returns the next connection that is to be served.
func (g *gate) Accept() (net.Conn, error) {
	select {
	case v := <-g.admitted:
		return v, nil
	case <-g.ended:
		return nil, g.err
	}
}

// arrive serves a connection, has it wait, or closes it.
func (g *gate) arrive(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	s := g.sources[v.source]
	if s == nil {
		g.sweep(now)
		s = &source{bucket: newBucket(bound.HandshakesEach, bound.ConnectionsEach)}
		g.sources[v.source] = s
	}
	switch {
	case len(s.waiting) == 0 && g.serve(s, v, now):
	case g.waits >= bound.ConnectionsWait || len(s.waiting) >= bound.ConnectionsWaitEach:
		v.Conn.Close()
	default:
		if len(s.waiting) == 0 {
			g.order = append(g.order, v.source)
		}
		g.waits++
		s.waiting = append(s.waiting, v)
		v.timer = time.AfterFunc(g.patience, func() { g.giveUp(v) })
		if g.timer == nil {
			g.timer = time.AfterFunc(lookPause, g.look)
		}
	}
}

// serve serves a connection, if there are tokens.
func (g *gate) serve(s *source, v *visitor, now time.Time) bool {
	seen, known := g.known[v.source]
	v.exempt = known && now.Sub(seen) < sourceKnown
	if !s.has(now) || !v.exempt && !g.all.has(now) {
		return false
	}
	select {
	case g.admitted <- v:
	default: // the server is slower than its callers
		return false
	}
	s.used++
	if !v.exempt {
		g.all.used++
	}
	return true
}

// sweep forgets the addresses of which nothing is to be remembered.
func (g *gate) sweep(now time.Time) {
	if now.Sub(g.swept) < sweepSources {
		return
	}
	g.swept = now
	for name, s := range g.sources {
		if len(s.waiting) == 0 && s.unused(now) {
			delete(g.sources, name)
		}
	}
}

// look serves those that wait, by turns, and looks again while some do.
func (g *gate) look() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	g.timer = nil
	for g.turn(now) {
	}
	if g.waits > 0 {
		g.timer = time.AfterFunc(lookPause, g.look)
	}
}

// turn serves the first that waits of each address, if there are tokens. It returns whether one was served.
func (g *gate) turn(now time.Time) (served bool) {
	for range len(g.order) {
		name := g.order[0]
		g.order = g.order[1:]
		s := g.sources[name]
		if first := s.waiting[0]; g.serve(s, first, now) {
			s.waiting = s.waiting[1:]
			g.waits--
			first.timer.Stop()
			served = true
		}
		if len(s.waiting) > 0 {
			g.order = append(g.order, name)
		}
	}
	return served
}

// giveUp closes a connection that has waited too long.
func (g *gate) giveUp(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[v.source]
	if s == nil {
		return
	}
	at := slices.Index(s.waiting, v)
	if at < 0 {
		return
	}
	s.waiting = slices.Delete(s.waiting, at, at+1)
	g.waits--
	if len(s.waiting) == 0 {
		g.leaveOrder(v.source)
	}
	v.Conn.Close()
}

func (g *gate) leaveOrder(name string) {
	if at := slices.Index(g.order, name); at >= 0 {
		g.order = slices.Delete(g.order, at, at+1)
	}
}

// leave takes the place of a connection back, and its token unless its caller is known.
func (g *gate) leave(v *visitor, known bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	used := []*bucket{&g.sources[v.source].bucket, &g.all}
	if v.exempt {
		used = used[:1]
	}
	for _, b := range used {
		if known || !v.spoke.Load() {
			b.used--
		} else {
			b.spend(now)
		}
	}
	if known {
		g.note(v.source, now)
	}
}

// note notes that a caller from an address is known.
func (g *gate) note(name string, now time.Time) {
	if _, there := g.known[name]; !there && len(g.known) >= maxKnown {
		maps.DeleteFunc(g.known, func(_ string, at time.Time) bool { return now.Sub(at) >= sourceKnown })
		if len(g.known) >= maxKnown {
			return
		}
	}
	g.known[name] = now
}

// Close closes a connection that is served.
func (v *visitor) Close() error {
	v.once.Do(func() { v.gate.leave(v, false) })
	return v.Conn.Close()
}

// Read notes that the caller said something: a TLS handshake may follow.
func (v *visitor) Read(p []byte) (int, error) {
	n, err := v.Conn.Read(p)
	if n > 0 {
		v.spoke.Store(true)
	}
	return n, err
}

// prove gives the place back: the caller is known.
func (v *visitor) prove() { v.once.Do(func() { v.gate.leave(v, true) }) }

type visitorKey struct{}

// withVisitor notes the connection that requests come by.
func withVisitor(ctx context.Context, conn net.Conn) context.Context {
	if secured, ok := conn.(*tls.Conn); ok {
		conn = secured.NetConn()
	}
	if v, ok := conn.(*visitor); ok {
		return context.WithValue(ctx, visitorKey{}, v)
	}
	return ctx
}

// prove notes that the caller of a request is known.
func prove(ctx context.Context) {
	if v, ok := ctx.Value(visitorKey{}).(*visitor); ok {
		v.prove()
	}
}
