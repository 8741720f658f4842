package manager

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/weirlb/weir/internal/connlimit"
	"github.com/weirlb/weir/internal/limits"
)

const (
	idleTimeout = 2 * time.Minute
	// stopTimeout bounds how long calls under way may take once the manager stops.
	stopTimeout = 3 * time.Second
)

// listen takes the address of the API.
func listen(ctx context.Context, address string) (*net.TCPListener, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
	switch tcp, ok := listener.(*net.TCPListener); {
	case ok:
		return tcp, nil
	case errors.Is(err, syscall.EADDRINUSE):
		return nil, fmt.Errorf("listen on %s: another program does: stop it, or choose another address with --listen", address)
	default:
		return nil, fmt.Errorf("listen on %s: %w: choose another address with --listen", address, err)
	}
}

// serve answers calls until ctx ends.
func (m *Manager) serve(ctx context.Context) error {
	handler, err := m.handler()
	if err != nil {
		return err
	}
	limited, err := connlimit.New(m.listener, m.unauthenticatedTime)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.Go(func() error {
		limited.Run()
		return nil
	})
	defer group.Wait() //nolint:errcheck // there is none
	defer limited.Close()

	servers := []*http.Server{
		m.server(handler, limits.StreamsCertified, limits.HeadersCertified, idleTimeout),
		m.server(handler, limits.StreamsOthers, limits.HeadersOthers, m.unauthenticatedTime),
	}
	listeners := []net.Listener{limited}
	if m.identity.Insecure() {
		servers = servers[:1]
	} else {
		certified, others := newConnections(limited.Addr()), newConnections(limited.Addr())
		listeners = []net.Listener{certified, others}
		group.Go(func() error {
			m.handshakes(ctx, limited, certified, others)
			return nil
		})
	}
	ended := make(chan error, len(servers))
	for i, server := range servers {
		go func() { ended <- server.Serve(listeners[i]) }()
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", m.Address(), err)
	case <-ctx.Done():
	}
	close(m.stopping)
	m.shutdown(ctx, servers)
	for range servers {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", m.Address(), err)
		}
	}
	return nil
}

// server is one whose connections may have as many requests under way, with as many bytes of headers each, and may have
// none for as long.
func (m *Manager) server(handler http.Handler, streams, headers int, idle time.Duration) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(m.identity.Insecure())
	protocols.SetHTTP2(!m.identity.Insecure())
	return &http.Server{
		Handler:        handler,
		MaxHeaderBytes: headers,
		IdleTimeout:    idle,
		Protocols:      &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second,
		},
		ReadHeaderTimeout: m.unauthenticatedTime,
		ErrorLog:          slog.NewLogLogger(m.log.Handler(), slog.LevelDebug),
		ConnContext:       connlimit.WithConn,
	}
}

// shutdown waits for the calls under way, for stopTimeout at most.
func (m *Manager) shutdown(ctx context.Context, servers []*http.Server) {
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() {
			if err := server.Shutdown(deadline); err != nil {
				m.log.Warn("stopped with calls under way", "err", err)
				server.Close()
			}
		})
	}
	all.Wait()
}

// handshakes makes the TLS handshakes of the connections that l accepts, and hands each over to the server of those
// whose certificate is in force, or to the other: HTTP/2 tells a client at the beginning how many streams it may open.
// A failed one goes to the other too, which says why.
func (m *Manager) handshakes(ctx context.Context, l net.Listener, certified, others *connections) {
	config := m.identity.TLS()
	config.NextProtos = []string{"h2", "http/1.1"}
	defer context.AfterFunc(ctx, func() { l.Close() })()
	for {
		accepted, err := l.Accept()
		if err != nil {
			return
		}
		go func() { // as many as connlimit accepts
			below := &handshakeConn{Conn: accepted, left: limits.HandshakeBytes}
			conn := tls.Server(below, config)
			within, cancel := context.WithTimeout(ctx, m.unauthenticatedTime)
			defer cancel()
			err := conn.HandshakeContext(within)
			below.complete.Store(true)
			if err == nil && m.certified(conn) {
				certified.accept(conn)
			} else {
				others.accept(conn)
			}
		}()
	}
}

// handshakeConn is a connection of which few bytes are read before its TLS handshake is complete: crypto/tls parses 256
// KiB of certificates.
type handshakeConn struct {
	net.Conn

	left     int // bytes, used by the handshake alone
	complete atomic.Bool
}

var errLongHandshake = fmt.Errorf("the TLS handshake has more than %d bytes", limits.HandshakeBytes)

// Read reads what is left to the handshake, or what follows it.
func (c *handshakeConn) Read(p []byte) (int, error) {
	if c.complete.Load() {
		return c.Conn.Read(p)
	}
	if c.left == 0 {
		return 0, errLongHandshake
	}
	n, err := c.Conn.Read(p[:min(len(p), c.left)])
	c.left -= n
	return n, err
}

// NetConn is the connection below.
func (c *handshakeConn) NetConn() net.Conn { return c.Conn }

// certified says whether a client has shown a certificate that is in force.
func (m *Manager) certified(conn *tls.Conn) bool {
	shown := conn.ConnectionState().PeerCertificates
	if len(shown) == 0 {
		return false
	}
	trusted, _ := m.store.Trust.Watch()
	_, err := m.identity.ByCertificate(shown[0], trusted, m.now())
	return err == nil
}

// connections is a net.Listener of connections that were accepted elsewhere.
type connections struct {
	address net.Addr
	next    chan net.Conn
	closed  chan struct{}
	close   func()
}

func newConnections(address net.Addr) *connections {
	closed := make(chan struct{})
	return &connections{address: address, next: make(chan net.Conn), closed: closed, close: sync.OnceFunc(func() { close(closed) })}
}

// accept passes a connection to Accept, or closes it if that is called no more.
func (c *connections) accept(conn net.Conn) {
	select {
	case c.next <- conn:
	case <-c.closed:
		conn.Close()
	}
}

// Accept waits for a connection.
func (c *connections) Accept() (net.Conn, error) {
	select {
	case conn := <-c.next:
		return conn, nil
	case <-c.closed:
		return nil, net.ErrClosed
	}
}

// Close ends Accept.
func (c *connections) Close() error {
	c.close()
	return nil
}

// Addr is the address of who accepted them.
func (c *connections) Addr() net.Addr { return c.address }
