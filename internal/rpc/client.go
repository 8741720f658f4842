package rpc

import (
	"cmp"
	"context"
	"os"
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

// idleTimeout is how long a connection that no call uses is kept: one that was opened with an older certificate is not
// used again.
const idleTimeout = 90 * time.Second

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

// Separate is a client of the same managers over connections of its own.
func (c *Client) Separate() (*Client, error) {
	access := c.transport.access
	access.Memory = "" // one client keeps it
	return access.Client()
}

// Leave ends all connections: the next call goes to the next manager, or to the same one anew.
func (c *Client) Leave() { c.transport.dialer.cutAll() }

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

// EachNode watches nodes as EachVIP does VIPs.
func (c *Client) EachNode(ctx context.Context, r *weirv1.WatchNodesRequest, do func(*weirv1.WatchNodesResponse) error) error {
	stream, err := c.WatchNodes(ctx, r)
	if err != nil {
		return translate(err)
	}
	return each(stream, do)
}

// EachStatus watches the status as EachVIP does VIPs.
func (c *Client) EachStatus(ctx context.Context, do func(*weirv1.WatchStatusResponse) error) error {
	stream, err := c.WatchStatus(ctx, &weirv1.WatchStatusRequest{})
	if err != nil {
		return translate(err)
	}
	return each(stream, do)
}

// EachRate watches samples of rates as EachVIP does VIPs.
func (c *Client) EachRate(ctx context.Context, r *weirv1.WatchRatesRequest, do func(*weirv1.WatchRatesResponse) error) error {
	stream, err := c.WatchRates(ctx, r)
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
	return each(stream, do)
}

// EachObserved observes muxes and calls do for what comes, in order, until it or ctx ends or do fails.
func (c *Client) EachObserved(ctx context.Context, r *weirv1.ObserveRequest, do func(*weirv1.ObserveResponse) error) error {
	stream, err := c.Observe(ctx, r)
	if err != nil {
		return translate(err)
	}
	return each(stream, do)
}

// EachBackup copies a manager's store and calls do for each part, in order, until it or ctx ends or do fails.
func (c *Client) EachBackup(ctx context.Context, do func(part *weirv1.BackupResponse) error) error {
	stream, err := c.Backup(ctx, &weirv1.BackupRequest{})
	if err != nil {
		return translate(err)
	}
	return each(stream, do)
}
