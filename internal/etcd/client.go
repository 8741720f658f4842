// Package etcd is a manager's connection to etcd: one that runs in this process, or an external one. It knows no key but the one
// that it asks for to see whether etcd answers.
package etcd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"golang.org/x/sync/errgroup"
)

// CallTimeout bounds a call.
const CallTimeout = 10 * time.Second

// Bounds of one transaction that an external etcd takes by default: operations, and bytes of values (it takes 1.5 MB).
const (
	SafeOperations = 100
	SafeBytes      = 512 << 10
)

// Config says where etcd is: in DataDir, or at Endpoints if there are any.
type Config struct {
	Name      string // of this member of the embedded etcd
	DataDir   string
	Endpoints []string
	TLS       TLS // with the etcd at Endpoints
	// PeerListen is the host:port at which the other managers' etcd reach this one's; empty: it is the only one.
	PeerListen string
	PeerTLS    *PeerTLS // nil: plaintext
	// Join asks the cluster to take a member in that is reached at a peer URL, and returns all members. It is
	// called at the first start only; nil: this manager founds a cluster.
	Join func(ctx context.Context, peerURL string) ([]Member, error)
	// Lone is why the other members of the embedded etcd would not talk to this one; nil: they do. It is the error of
	// Open if there are others.
	Lone  error
	Quota int64 // of the embedded etcd, in bytes; 0: DefaultQuota
	Log   *slog.Logger

	PageKeys    int64         // how many keys a page has at most; 0: DefaultPageKeys
	DefragEvery time.Duration // 0: defragEvery
}

// Client is a connection to etcd.
type Client struct {
	*clientv3.Client
	server   *Server // nil: external
	external Config  // of an external etcd
	where    string
	log      *slog.Logger
	took     *prometheus.HistogramVec // of calls of etcd

	pageKeys    int64
	defragEvery time.Duration
}

// Open connects to etcd, or starts it.
func Open(ctx context.Context, cfg Config) (*Client, error) {
	cfg.Quota = cmp.Or(cfg.Quota, DefaultQuota)
	if err := checkQuota(cfg.Quota); err != nil && len(cfg.Endpoints) == 0 {
		return nil, err
	}
	if err := cfg.TLS.check(cfg.Endpoints); err != nil {
		return nil, err
	}
	c := &Client{log: cfg.Log, pageKeys: cmp.Or(cfg.PageKeys, DefaultPageKeys), defragEvery: cmp.Or(cfg.DefragEvery, defragEvery)}
	if len(cfg.Endpoints) > 0 {
		client, err := dialExternal(ctx, cfg)
		if err != nil {
			return nil, err
		}
		c.external = cfg
		c.Client, c.where = client, "external: "+strings.Join(cfg.Endpoints, ", ")
	} else {
		server, err := startServer(ctx, cfg)
		if err != nil {
			return nil, err
		}
		c.server, c.Client, c.where = server, server.client(), "embedded"
	}
	c.took = timeCalls(c.Client)
	return c, nil
}

// String is "embedded: 1 member" or "external: http://10.0.0.1:2379".
func (c *Client) String() string {
	if c.server == nil {
		return c.where
	}
	if n := len(c.server.memberNames()); n != 1 {
		return fmt.Sprintf("%s: %d members", c.where, n)
	}
	return c.where + ": 1 member"
}

// Server is the etcd in this process; nil: it is an external one.
func (c *Client) Server() *Server { return c.server }

// Close ends the connection, and the embedded etcd.
func (c *Client) Close() {
	c.Client.Close()
	if c.server != nil {
		c.server.close()
	}
}

// Run keeps the embedded etcd until ctx ends. It fails when that ended by itself.
func (c *Client) Run(ctx context.Context) error {
	if c.server == nil {
		<-ctx.Done()
		return nil
	}
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return c.server.awaitEnd(ctx) })
	group.Go(func() error { return c.defragment(ctx) })
	group.Go(func() error { return c.server.watchDiskSpace(ctx) })
	return group.Wait()
}

// CheckDiskSpace refuses, with a NoSpaceError, when the disk of the embedded etcd is almost full.
func (c *Client) CheckDiskSpace() error {
	if c.server == nil {
		return nil
	}
	return c.server.checkDiskSpace()
}

// TooLarge says whether a transaction failed as it has too many operations, or bytes.
func TooLarge(err error) bool {
	return errors.Is(err, rpctypes.ErrTooManyOps) || errors.Is(err, rpctypes.ErrRequestTooLarge) ||
		err != nil && strings.Contains(err.Error(), "message larger than max") // by the client, or by gRPC at etcd
}

// Explain says what an operator can do about an error of etcd.
func Explain(what string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, rpctypes.ErrNoSpace):
		return fmt.Errorf("%s: etcd is full and read-only: free space, defragment, and disarm its NOSPACE alarm", what)
	case errors.Is(err, rpctypes.ErrTooManyOps), errors.Is(err, rpctypes.ErrRequestTooLarge):
		return fmt.Errorf("%s: %w: apply fewer VIPs at a time, or raise etcd's --max-txn-ops and --max-request-bytes", what, err)
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("%s: etcd does not answer", what)
	}
	return fmt.Errorf("%s: %w", what, err)
}
