package apiserver

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

// Run answers calls until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	handler, err := s.Handler()
	if err != nil {
		return err
	}
	limited, err := connlimit.New(s.Listener, s.UnauthenticatedTime)
	if err != nil {
		return err
	}
	var group errgroup.Group
	group.Go(func() error {
		limited.Run()
		return nil
	})
	defer group.Wait() //nolint:errcheck // there is none
	watching, stop := context.WithCancel(ctx)
	defer stop()
	group.Go(func() error {
		s.open.run(watching)
		return nil
	})
	defer limited.Close()

	servers := []*http.Server{
		s.server(handler, limits.StreamsCertified, limits.HeadersCertified, idleTimeout),
		s.server(handler, limits.StreamsOthers, limits.HeadersOthers, s.UnauthenticatedTime),
	}
	listeners := []net.Listener{limited}
	if s.Identity.Insecure() {
		servers = servers[:1]
	} else {
		certified, others := newConnections(limited.Addr()), newConnections(limited.Addr())
		listeners = []net.Listener{certified, others}
		group.Go(func() error {
			s.handshakes(ctx, limited, certified, others)
			return nil
		})
	}
	ended := make(chan error, len(servers))
	for i, server := range servers {
		go func() { ended <- server.Serve(listeners[i]) }()
	}
	select {
	case err := <-ended:
		return fmt.Errorf("serve on %s: %w", s.Listener.Addr(), err)
	case <-ctx.Done():
	}
	s.Stop()
	s.shutdown(ctx, servers)
	for range servers {
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			return fmt.Errorf("serve on %s: %w", s.Listener.Addr(), err)
		}
	}
	return nil
}

// server is one whose connections may have as many requests under way, with as many bytes of headers each, and may have
// none for as long.
func (s *Server) server(handler http.Handler, streams, headers int, idle time.Duration) *http.Server {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(s.Identity.Insecure())
	protocols.SetHTTP2(!s.Identity.Insecure())
	return &http.Server{
		Handler:        handler,
		MaxHeaderBytes: headers,
		IdleTimeout:    idle,
		Protocols:      &protocols,
		HTTP2: &http.HTTP2Config{
			MaxConcurrentStreams: streams, SendPingTimeout: 5 * time.Second, PingTimeout: 5 * time.Second,
		},
		ReadHeaderTimeout: s.UnauthenticatedTime,
		ErrorLog:          slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		ConnContext:       connlimit.WithConn,
	}
}

// shutdown waits for the calls under way, for stopTimeout at most.
func (s *Server) shutdown(ctx context.Context, servers []*http.Server) {
	deadline, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTimeout)
	defer cancel()
	var all sync.WaitGroup
	for _, server := range servers {
		all.Go(func() {
			if err := server.Shutdown(deadline); err != nil {
				s.Log.Warn("stopped with calls under way", "err", err)
				server.Close()
			}
		})
	}
	all.Wait()
}

// handshakes makes the TLS handshakes of the connections that l accepts, and hands each over to the server of those
// whose certificate is in force, or to the other: HTTP/2 tells a client at the beginning how many streams it may open.
// A failed one goes to the other too, which says why.
func (s *Server) handshakes(ctx context.Context, l net.Listener, certified, others *connections) {
	config := s.Identity.TLS()
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
			within, cancel := context.WithTimeout(ctx, s.UnauthenticatedTime)
			defer cancel()
			err := conn.HandshakeContext(within)
			below.complete.Store(true)
			if err == nil && s.callers.certified(conn) {
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
