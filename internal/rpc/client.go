package rpc

import (
	"cmp"
	"context"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
)

// Where a manager is when nothing else is said.
const (
	DefaultPort    = "7400" // also of a URL that names none
	DefaultManager = "https://127.0.0.1:" + DefaultPort
	// ManagerVariable names the environment variable that says something else.
	ManagerVariable = "WEIR_MANAGER"
)

// ManagerURL is where the manager is, by the environment or by default.
func ManagerURL() string { return cmp.Or(os.Getenv(ManagerVariable), DefaultManager) }

const (
	dialTimeout = 3 * time.Second
	// A connection without traffic is probed, so that a stream notices that a manager's machine died.
	pingAfter   = 5 * time.Second
	pingTimeout = 5 * time.Second
	// A connection that was opened with an older certificate is closed when no call uses it.
	idleTimeout = 90 * time.Second
)

// Client calls a manager. Errors of unary calls are *Error or *UnreachableError.
type Client struct {
	weirv1connect.WeirServiceClient
	weirv1connect.SyncServiceClient
	weirv1connect.ClusterServiceClient
	weirv1connect.TrustServiceClient

	transport *transport
}

// NewClient makes a client of managers without TLS: "http://host:7400", several separated by commas.
func NewClient(managers string) (*Client, error) {
	return Access{Managers: managers}.Client()
}

// Close closes idle connections.
func (c *Client) Close() { c.transport.CloseIdleConnections() }

func translateUnary(next connect.UnaryFunc) connect.UnaryFunc {
	return func(ctx context.Context, request connect.AnyRequest) (connect.AnyResponse, error) {
		response, err := next(ctx, request)
		return response, translate(err)
	}
}

// EachVIP watches VIPs and calls do for what comes, in order, until it or ctx ends or do fails.
func (c *Client) EachVIP(ctx context.Context, r *weirv1.WatchVIPsRequest, do func(*weirv1.WatchVIPsResponse) error) error {
	stream, err := c.WatchVIPs(ctx, r)
	if err != nil {
		return translate(err)
	}
	return each(stream, do)
}

// EachEvent watches events as EachVIP does VIPs.
func (c *Client) EachEvent(ctx context.Context, r *weirv1.WatchEventsRequest, do func(*weirv1.WatchEventsResponse) error) error {
	stream, err := c.WatchEvents(ctx, r)
	if err != nil {
		return translate(err)
	}
	return each(stream, do)
}

func each[T any](stream *connect.ServerStreamForClient[T], do func(*T) error) error {
	defer stream.Close()
	for stream.Receive() {
		if err := do(stream.Msg()); err != nil {
			return err
		}
	}
	return translate(stream.Err())
}

// EachCapture starts a capture and calls do for what comes, in order, until it or ctx ends or do fails.
func (c *Client) EachCapture(ctx context.Context, r *weirv1.CaptureRequest, do func(*weirv1.CaptureResponse) error) error {
	stream, err := c.Capture(ctx, r)
	if err != nil {
		return translate(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := do(stream.Msg()); err != nil {
			return err
		}
	}
	return translate(stream.Err())
}

// EachBackup copies a manager's store and calls do for each part, in order, until it or ctx ends or do fails.
func (c *Client) EachBackup(ctx context.Context, do func(chunk []byte) error) error {
	stream, err := c.Backup(ctx, &weirv1.BackupRequest{})
	if err != nil {
		return translate(err)
	}
	defer stream.Close()
	for stream.Receive() {
		if err := do(stream.Msg().GetChunk()); err != nil {
			return err
		}
	}
	return translate(stream.Err())
}

func joinPort(host string) string { return net.JoinHostPort(host, DefaultPort) }

// dialer connects to the first manager that takes the connection, beginning with the one after that which
// did last: one that is frozen takes connections and answers nothing, and must not be tried for ever.
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

func (d *dialer) hold(opened net.Conn, address string) net.Conn {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.conns == nil {
		d.conns = map[*conn]bool{}
	}
	c := &conn{opened, d}
	d.conns[c], d.last = true, address
	return c
}

// leave ends all connections, if there is another manager to go to: HTTP opens more than it uses, and which one a
// call came by is not known here.
func (d *dialer) leave() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.addresses) < 2 {
		return
	}
	for c := range d.conns {
		c.Conn.Close()
	}
	clear(d.conns)
}

func (d *dialer) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	unreachable := &UnreachableError{}
	first := int(d.next.Load())
	for i := range d.addresses {
		at := (first + i) % len(d.addresses)
		conn, err := (&net.Dialer{Timeout: dialTimeout}).DialContext(ctx, network, d.addresses[at])
		if err == nil {
			d.next.Store(int64(at + 1))
			return d.hold(conn, d.addresses[at]), nil
		}
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		unreachable.add(d.addresses[at], err)
	}
	return nil, unreachable
}
