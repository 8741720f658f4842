package etcd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
)

// Bounds of the embedded etcd. MaxOperations bounds one transaction: the VIPs and tables of one apply.
const (
	MaxOperations   = 16384
	maxRequestBytes = 64 << 20
	keepRevisions   = "1000"
	reachTimeout    = 5 * time.Second
)

// Bounds of the quota of the embedded etcd, in bytes: how large its file may be. A manager has what is in it in memory,
// too, and a new replica is sent all of it.
const (
	DefaultQuota int64 = 8 << 30
	MinQuota     int64 = 256 << 20
	MaxQuota     int64 = 64 << 30
)

func checkQuota(bytes int64) error {
	if bytes < MinQuota || bytes > MaxQuota {
		return fmt.Errorf("read --quota-backend-bytes: must be %d to %d, is %d", MinQuota, MaxQuota, bytes)
	}
	return nil
}

// probeKey is asked for to see whether etcd answers: users of an external etcd may have to be let in to keys below /weir/.
const probeKey = "/weir/v1/generation"

// lockDirectory makes the data directory, and holds that no other manager uses it.
func lockDirectory(dir string) (*os.File, error) {
	const advice = "name one that weir-manager may write, with --data-dir"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make the data directory: %w: %s", err, advice)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open the data directory: %w: %s", err, advice)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("lock the data directory %s: another weir-manager uses it: stop that one, or name another with --data-dir", dir)
	}
	return lock, nil
}

// DialOne connects to one endpoint of an external etcd alone.
func (c *Client) DialOne(ctx context.Context, endpoint string) (*clientv3.Client, error) {
	one := c.external
	one.Endpoints = []string{endpoint}
	return dialExternal(ctx, one)
}

// dialExternal connects to the etcd at the endpoints and holds that it answers.
func dialExternal(ctx context.Context, cfg Config) (*clientv3.Client, error) {
	endpoints := strings.Join(cfg.Endpoints, ",")
	secured := &tlsCredentials{files: cfg.TLS, log: cfg.Log}
	var options []grpc.DialOption
	if strings.HasPrefix(endpoints, "https://") {
		options = append(options, grpc.WithTransportCredentials(secured))
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            cfg.Endpoints,
		DialTimeout:          reachTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   maxRequestBytes,
		Logger:               zap.New(quiet{log: cfg.Log}),
		DialOptions:          options,
	})
	if err != nil {
		return nil, fmt.Errorf("read --etcd-endpoints %s: %w", endpoints, err)
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if _, err := client.Get(ctx, probeKey); err != nil {
		client.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", reachTimeout)
		}
		if problem := secured.last(); problem != "" {
			return nil, fmt.Errorf("reach etcd at %s: %s: check --etcd-ca-file, --etcd-cert-file and --etcd-key-file, and etcd's own", endpoints, problem)
		}
		return nil, fmt.Errorf("reach etcd at %s: %w: check that it runs there, and --etcd-endpoints", endpoints, err)
	}
	return client, nil
}
