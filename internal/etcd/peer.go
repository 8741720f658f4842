package etcd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"sync"
	"syscall"
	"time"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/etcdhttp"
	"go.etcd.io/etcd/server/v3/etcdserver/api/rafthttp"
	"golang.org/x/sys/unix"
)

const (
	// peerUserTimeout is how long data sent to another member may stay without an acknowledgement (RFC 5482): the
	// connection is closed then.
	peerUserTimeout = rafthttp.DefaultConnWriteTimeout
	// peerRequestTimeout bounds how long a request of another member takes to arrive, and peerCloseTimeout how long requests
	// under way may take when this member ends. Both are etcd's own.
	peerRequestTimeout = 5 * time.Minute
	peerCloseTimeout   = time.Second
)

// peerServer serves the other members of the embedded etcd. It does so in place of etcd's own listener, to set the TCP user
// timeout.
//
// A member sends to another one on a stream, a connection that the other one opened. While the network between them is
// down, TCP sends again what was lost after 0.2 s, 0.4 s, and so on up to every two minutes. When the network is back,
// nothing arrives before the next try: for about as long as the network was down. etcd means to end such streams by a
// deadline of five seconds on each read of the other one, and fails to: transport.NewTimeoutTransport sets the Dial of
// a http.Transport, which is not called, as transport.NewTransport has set its DialContext.
//
// The user timeout ends the sender's side of the stream instead. From then on etcd sends each message as a request on
// connections that it dials, which works as soon as the network does. It has streams again when the other side has found
// out by TCP keepalive that the old ones are closed.
type peerServer struct {
	listener net.Listener
	http     *http.Server // nil: not yet
	serving  sync.WaitGroup
}

// listenPeers listens at an URL for the other members.
func listenPeers(at url.URL, secured transport.TLSInfo) (*peerServer, error) {
	listener, err := transport.NewListenerWithOpts(at.Host, at.Scheme,
		transport.WithTLSInfo(&secured),
		transport.WithTimeout(rafthttp.ConnReadTimeout, rafthttp.ConnWriteTimeout),
		func(o *transport.ListenerOptions) {
			o.ListenConfig.SetMultipathTCP(false) // its sockets do not take TCP_USER_TIMEOUT
			o.ListenConfig.Control = setUserTimeout
		})
	if err != nil {
		return nil, fmt.Errorf("listen for the other managers at %s: %w", at.Host, err)
	}
	return &peerServer{listener: listener}, nil
}

// setUserTimeout sets the TCP_USER_TIMEOUT of a socket that will listen: the connections that it accepts have it too.
func setUserTimeout(_, _ string, c syscall.RawConn) error {
	var failed error
	err := c.Control(func(fd uintptr) {
		failed = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(peerUserTimeout/time.Millisecond))
	})
	if err != nil {
		return err
	}
	return failed
}

// serve answers the other members until close.
func (p *peerServer) serve(etcd *embed.Etcd, logger *slog.Logger) {
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	p.http = &http.Server{
		Handler:     etcdhttp.NewPeerHandler(etcd.GetLogger(), etcd.Server),
		Protocols:   &protocols,
		ReadTimeout: peerRequestTimeout,
		ErrorLog:    log.New(io.Discard, "", 0), // of what others sent: etcd logs it
	}
	p.serving.Go(func() {
		if err := p.http.Serve(p.listener); !errors.Is(err, http.ErrServerClosed) {
			logger.Error("the other managers can't reach this one any more", "err", err)
		}
	})
}

// close ends all connections. etcd has ended before: its streams with it.
func (p *peerServer) close() {
	if p.http == nil {
		p.listener.Close()
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), peerCloseTimeout)
	defer cancel()
	if p.http.Shutdown(ctx) != nil {
		p.http.Close()
	}
	p.serving.Wait()
}
