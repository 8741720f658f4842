package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// Bounds of the embedded etcd. MaxOperations bounds one transaction: the VIPs and tables of one apply.
const (
	MaxOperations   = 16384
	maxRequestBytes = 64 << 20
	quotaBytes      = 8 << 30
	keepRevisions   = "1000"
	startTimeout    = 30 * time.Second
	reachTimeout    = 5 * time.Second
)

// member is an etcd that runs in this process.
type member struct {
	etcd *embed.Etcd
	lock *os.File
}

// startMember starts etcd on the data directory and waits until it leads itself.
func startMember(ctx context.Context, dir string, log *slog.Logger) (*member, error) {
	lock, err := lockDirectory(dir)
	if err != nil {
		return nil, err
	}
	stop := fatal{log: log, dir: dir}
	logger := zap.New(quiet{log: log}, zap.WithPanicHook(stop), zap.WithFatalHook(stop))
	cfg := embed.NewConfig()
	cfg.Name = "weir"
	cfg.Dir = filepath.Join(dir, "etcd")
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	// Calls go to the server in this process: nothing listens. The peer URL only names the member.
	cfg.ListenPeerUrls, cfg.ListenClientUrls = nil, nil
	cfg.AdvertisePeerUrls, cfg.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}, nil
	cfg.InitialCluster = "weir=http://localhost:2380"
	cfg.AutoCompactionMode, cfg.AutoCompactionRetention = embed.CompactorModeRevision, keepRevisions
	cfg.QuotaBackendBytes = quotaBytes
	cfg.MaxTxnOps, cfg.MaxRequestBytes = MaxOperations, maxRequestBytes
	etcd, err := startEtcd(cfg)
	if err != nil {
		lock.Close()
		return nil, fmt.Errorf("start the embedded etcd in %s: %w", dir, err)
	}
	m := &member{etcd: etcd, lock: lock}
	select {
	case <-etcd.Server.ReadyNotify():
		return m, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-time.After(startTimeout):
		err = fmt.Errorf("not ready after %s", startTimeout)
	}
	m.close()
	return nil, fmt.Errorf("start the embedded etcd in %s: %w", dir, err)
}

// startEtcd starts etcd, which panics on some damaged files.
func startEtcd(cfg *embed.Config) (etcd *embed.Etcd, err error) {
	defer func() {
		if reason := recover(); reason != nil {
			err = fmt.Errorf("%v: %s", reason, advice(filepath.Dir(cfg.Dir)))
		}
	}()
	return embed.StartEtcd(cfg)
}

// leads says whether this member leads etcd.
func (m *member) leads() bool { return m.etcd.Server.Leader() == m.etcd.Server.MemberID() }

// awaitLeader returns when this member leads etcd.
func (m *member) awaitLeader(ctx context.Context) error {
	for {
		moved := m.etcd.Server.LeaderChangedNotify()
		if m.leads() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *member) client() *clientv3.Client { return v3client.New(m.etcd.Server) }

func (m *member) close() {
	m.etcd.Close()
	m.lock.Close()
}

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

// dialExternal connects to the etcd at endpoints and holds that it answers.
func dialExternal(ctx context.Context, endpoints []string, log *slog.Logger) (*clientv3.Client, error) {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            endpoints,
		DialTimeout:          reachTimeout,
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: 5 * time.Second,
		MaxCallSendMsgSize:   maxRequestBytes,
		Logger:               zap.New(quiet{log: log}),
	})
	if err != nil {
		return nil, fmt.Errorf("read --etcd-endpoints %s: %w", strings.Join(endpoints, ","), err)
	}
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	if _, err := client.Get(ctx, keyGeneration); err != nil {
		client.Close()
		if errors.Is(err, context.DeadlineExceeded) {
			err = fmt.Errorf("no answer within %s", reachTimeout)
		}
		return nil, fmt.Errorf("reach etcd at %s: %w: check that it runs there, and --etcd-endpoints",
			strings.Join(endpoints, ","), err)
	}
	return client, nil
}
