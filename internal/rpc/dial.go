package rpc

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirlb/weir/internal/trust"
)

const (
	// dialTimeout bounds the attempt to connect to one manager, TLS with it.
	dialTimeout = 3 * time.Second
	// hedgeDelay is how long a manager may take before the next one is asked too. Two of five that are frozen or
	// whose machines died cost a caller less than a second.
	hedgeDelay = 400 * time.Millisecond
	// A connection without traffic is probed, so that a stream, and who waits for ports, notices within four seconds
	// that a manager froze or its machine died.
	pingAfter   = 1500 * time.Millisecond
	pingTimeout = 2500 * time.Millisecond
)

// dialer connects to the first manager that takes the connection and, with TLS, proves who it is, beginning with
// the one after that which did last. One that is frozen takes connections, as its kernel does that, and says nothing
// more: who has not answered for hedgeDelay goes on beside the next one.
type dialer struct {
	addresses []string
	next      atomic.Int64 // index of the manager to begin with

	mu    sync.Mutex
	conns map[*conn]bool // that are open
	last  string         // address of the newest
}

// conn is a connection that its dialer knows of.
type conn struct {
	net.Conn
	dialer *dialer
}

// Close closes the connection.
func (c *conn) Close() error {
	c.dialer.mu.Lock()
	delete(c.dialer.conns, c)
	c.dialer.mu.Unlock()
	return c.Conn.Close()
}

func (d *dialer) track(opened net.Conn, address string) net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = map[*conn]bool{}
	}
	c := &conn{opened, d}
	d.conns[c], d.last = true, address
	return c
}

// closeAll ends all connections, if there is another manager to go to: HTTP opens more than it uses, and which one a
// call came by is not known here.
func (d *dialer) closeAll() {
	if len(d.addresses) > 1 {
		d.cutAll()
	}
}

func (d *dialer) cutAll() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for c := range d.conns {
		c.Conn.Close()
	}
	clear(d.conns)
}

// attempt is how connecting to one manager went.
type attempt struct {
	at   int // index of the manager
	conn net.Conn
	err  error
}

// dial connects without TLS. A transport names one address; which manager that is, the dialer decides.
func (d *dialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	return d.first(ctx, network, nil)
}

// dialTLS connects with TLS, over HTTP/2.
func (d *dialer) dialTLS(secure *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	secure = secure.Clone()
	secure.NextProtos = []string{"h2"}
	return func(ctx context.Context, network, _ string) (net.Conn, error) { return d.first(ctx, network, secure) }
}

// first connects to the first that answers.
func (d *dialer) first(ctx context.Context, network string, secure *tls.Config) (net.Conn, error) {
	trying, cancel := context.WithCancel(ctx)
	defer cancel() // those that lost
	attempts := make(chan attempt)
	first, started := int(d.next.Load()), 0
	try := func() {
		at := (first + started) % len(d.addresses)
		started++
		go d.try(trying, network, secure, at, attempts)
	}
	try()
	hedge := time.NewTicker(hedgeDelay)
	defer hedge.Stop()
	failures := make([]attempt, 0, len(d.addresses))
	for len(failures) < len(d.addresses) {
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case a := <-attempts:
			if a.err == nil {
				d.next.Store(int64(a.at + 1))
				return a.conn, nil
			}
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			if failures = append(failures, a); started < len(d.addresses) {
				hedge.Reset(hedgeDelay)
				try()
			}
		case <-hedge.C:
			if started < len(d.addresses) {
				try()
			}
		}
	}
	return nil, d.unreachable(failures)
}

// try connects to one manager and tells attempts, unless nobody asks any more.
func (d *dialer) try(ctx context.Context, network string, secure *tls.Config, at int, attempts chan<- attempt) {
	a := attempt{at: at}
	a.conn, a.err = d.connect(ctx, network, d.addresses[at], secure)
	select {
	case attempts <- a:
	case <-ctx.Done():
		if a.err == nil {
			a.conn.Close()
		}
	}
}

// connect connects to one manager; without a configuration, without TLS.
func (d *dialer) connect(ctx context.Context, network, address string, secure *tls.Config) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	plain, err := new(net.Dialer).DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	plain = d.track(plain, address)
	if secure == nil {
		return plain, nil
	}
	proven := tls.Client(plain, secure)
	if err := proven.HandshakeContext(ctx); err != nil {
		plain.Close()
		if errors.As(err, new(tls.RecordHeaderError)) {
			return nil, &SchemeError{Address: address}
		}
		return nil, err
	}
	return proven, nil
}

// unreachable says why no manager was reached. What one that was reached is, and should not be, goes before.
func (d *dialer) unreachable(failures []attempt) error {
	unreachable := &UnreachableError{}
	for _, a := range failures {
		if errors.As(a.err, new(*SchemeError)) || errors.As(a.err, new(*trust.WrongCAError)) || errors.As(a.err, new(*trust.ServerError)) {
			return a.err
		}
		unreachable.add(d.addresses[a.at], a.err)
	}
	return unreachable
}

func joinPort(host string) string { return net.JoinHostPort(host, DefaultPort) }
