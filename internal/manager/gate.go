package manager

import (
	"context"
	"crypto/tls"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/weirlb/weir/internal/rpc/bound"
)

// gate bounds the connections of those that have not said yet who they are: a TLS handshake and what HTTP keeps of a
// connection cost far more than a socket that waits. Sources, which are addresses, have their turns: one that opens
// thousands waits for its own. A connection whose caller is known has its place no longer.
type gate struct {
	net.Listener

	admitted chan *visitor
	ended    chan struct{}
	patience time.Duration // that a connection waits to be served

	mu      sync.Mutex
	serving int
	sources map[string]*source
	order   []string // of sources with connections that wait; the first has the next turn
	waits   int
	err     error // of the listener
}

// source is an address with connections that are served without a known caller, or wait.
type source struct {
	serving int
	waiting []*visitor
}

// visitor is a connection whose caller is not known yet.
type visitor struct {
	net.Conn

	gate   *gate
	source string
	once   sync.Once
	timer  *time.Timer // while it waits
}

func newGate(l net.Listener, patience time.Duration) *gate {
	return &gate{Listener: l, admitted: make(chan *visitor, bound.ConnectionsAll), ended: make(chan struct{}), patience: patience, sources: map[string]*source{}}
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
		g.arrive(&visitor{Conn: conn, gate: g, source: sourceOf(conn.RemoteAddr().String())})
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
	s := g.sources[v.source]
	if s == nil {
		s = &source{}
		g.sources[v.source] = s
	}
	switch {
	case g.serving < bound.ConnectionsAll && s.serving < bound.ConnectionsEach && len(s.waiting) == 0:
		g.serve(s, v)
	case g.waits >= bound.ConnectionsWait || len(s.waiting) >= bound.ConnectionsWaitEach:
		g.forget(v.source, s)
		v.Conn.Close()
	default:
		if len(s.waiting) == 0 {
			g.order = append(g.order, v.source)
		}
		g.waits++
		s.waiting = append(s.waiting, v)
		v.timer = time.AfterFunc(g.patience, func() { g.giveUp(v) })
	}
}

func (g *gate) serve(s *source, v *visitor) {
	g.serving++
	s.serving++
	g.admitted <- v // there is room: it has as many places as connections are served
}

func (g *gate) forget(name string, s *source) {
	if s.serving == 0 && len(s.waiting) == 0 {
		delete(g.sources, name)
	}
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
	g.forget(v.source, s)
	v.Conn.Close()
}

func (g *gate) leaveOrder(name string) {
	if at := slices.Index(g.order, name); at >= 0 {
		g.order = slices.Delete(g.order, at, at+1)
	}
}

// leave gives the place of a connection to the next.
func (g *gate) leave(v *visitor) {
	g.mu.Lock()
	defer g.mu.Unlock()
	s := g.sources[v.source]
	g.serving--
	s.serving--
	g.forget(v.source, s)
	for range len(g.order) {
		if g.serving >= bound.ConnectionsAll {
			return
		}
		name := g.order[0]
		g.order = g.order[1:]
		next := g.sources[name]
		if next.serving < bound.ConnectionsEach {
			first := next.waiting[0]
			next.waiting = next.waiting[1:]
			g.waits--
			first.timer.Stop()
			g.serve(next, first)
		}
		if len(next.waiting) > 0 {
			g.order = append(g.order, name)
		}
	}
}

// Close closes a connection that is served.
func (v *visitor) Close() error {
	v.prove()
	return v.Conn.Close()
}

// prove gives the place back: the caller is known, or gone.
func (v *visitor) prove() { v.once.Do(func() { v.gate.leave(v) }) }

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
