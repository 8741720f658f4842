package store

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/client/pkg/v3/types"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"
	"go.uber.org/zap"
)

const (
	// lonely is the peer address of a member that is alone: it only names it.
	lonely = "http://localhost:2380"
	// heartbeat and election are etcd's, in milliseconds: a leader that died is replaced within one to two
	// elections.
	heartbeat = 100
	election  = 1000
	// waitNotice is how long a start waits for the other members before it says so, again and again.
	waitNotice = 10 * time.Second
)

// PeerTLS are the files, as PEM, by which members talk to each other. Of the other side it is asked that
// its certificate is of the same CA and good for Name.
type PeerTLS struct {
	Certificate string
	Key         string
	CA          string
	Name        string
}

// Member is a member of the embedded etcd, by the name of its manager.
type Member struct {
	Name    string
	PeerURL string
}

// member is an etcd that runs in this process.
type member struct {
	etcd *embed.Etcd
	peer *peerServer // nil: it is the only one
	lock *os.File
	dir  string
	log  *slog.Logger
	// end is the error by which etcd ended.
	end atomic.Pointer[string]
}

// startMember starts etcd on the data directory and waits until it has a vote and there is a leader.
func startMember(ctx context.Context, cfg Config) (*member, error) {
	lock, err := lockDirectory(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	m := &member{lock: lock, dir: cfg.DataDir, log: cfg.Log}
	if err := m.start(ctx, cfg); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (m *member) start(ctx context.Context, cfg Config) error {
	if _, err := os.Stat(m.removedFile()); err == nil {
		return m.removedError()
	}
	etcdConfig, err := m.config(cfg)
	if err != nil {
		return err
	}
	if !m.exists() {
		if err := m.begin(ctx, cfg, etcdConfig); err != nil {
			return err
		}
	}
	if cfg.PeerListen != "" {
		if m.peer, err = listenPeers(etcdConfig.AdvertisePeerUrls[0], etcdConfig.PeerTLSInfo); err != nil {
			return fmt.Errorf("start the embedded etcd in %s: %w", cfg.DataDir, err)
		}
	}
	if m.etcd, err = startEtcd(etcdConfig); err != nil {
		return fmt.Errorf("start the embedded etcd in %s: %w", cfg.DataDir, err)
	}
	if m.peer != nil {
		m.peer.serve(m.etcd, m.log)
	}
	if cfg.Lone != nil && len(m.members()) > 1 {
		return cfg.Lone
	}
	if err := m.ready(ctx); err != nil {
		return fmt.Errorf("start the embedded etcd in %s: %w", cfg.DataDir, err)
	}
	return m.settle(ctx, etcdConfig.AdvertisePeerUrls[0].String())
}

// exists says whether the data directory holds a member that was started before.
func (m *member) exists() bool {
	_, err := os.Stat(filepath.Join(m.dir, "etcd", "member", "wal"))
	return !errors.Is(err, fs.ErrNotExist)
}

// config is what holds of founding, joining and restarting members alike.
func (m *member) config(cfg Config) (*embed.Config, error) {
	stop := fatal{log: cfg.Log, dir: cfg.DataDir}
	logger := zap.New(quiet{log: cfg.Log, end: &m.end}, zap.WithPanicHook(stop), zap.WithFatalHook(stop))
	c := embed.NewConfig()
	c.Name = cfg.Name
	c.Dir = filepath.Join(cfg.DataDir, "etcd")
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	// Calls go to the server in this process: nothing listens for clients. Other members are served by peerServer.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	peer, err := url.Parse(lonely)
	if err != nil {
		return nil, err
	}
	if cfg.PeerListen != "" {
		if peer, err = peerURL(cfg); err != nil {
			return nil, err
		}
	}
	if t := cfg.PeerTLS; t != nil {
		c.PeerTLSInfo = transport.TLSInfo{
			CertFile: t.Certificate, KeyFile: t.Key, TrustedCAFile: t.CA, ClientCertAuth: true,
			ServerName: t.Name, AllowedHostnames: []string{t.Name}, Logger: logger,
			// The name says that it is a manager; its address may be one that its certificate does not know.
			SkipClientSANVerify: true,
		}
	}
	c.AdvertisePeerUrls = []url.URL{*peer}
	c.InitialCluster = c.Name + "=" + peer.String()
	c.TickMs, c.ElectionMs = heartbeat, election
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModeRevision, keepRevisions
	c.QuotaBackendBytes = cfg.Quota
	c.MaxTxnOps, c.MaxRequestBytes = MaxOperations, maxRequestBytes
	return c, nil
}

// peerURL is the URL by which the other members reach this one.
func peerURL(cfg Config) (*url.URL, error) {
	host, _, err := net.SplitHostPort(cfg.PeerListen)
	if ip := net.ParseIP(host); err != nil || host == "" || ip != nil && ip.IsUnspecified() {
		return nil, fmt.Errorf("read --peer-listen: must be host:port, with an address that the other managers reach, is %q", cfg.PeerListen)
	}
	scheme := "http"
	if cfg.PeerTLS != nil {
		scheme = "https"
	}
	return &url.URL{Scheme: scheme, Host: cfg.PeerListen}, nil
}

// begin prepares the first start: founding a cluster of one, or joining one.
func (m *member) begin(ctx context.Context, cfg Config, etcdConfig *embed.Config) error {
	if cfg.Join == nil {
		token := make([]byte, 8)
		if _, err := rand.Read(token); err != nil {
			return fmt.Errorf("name the cluster: %w", err)
		}
		etcdConfig.InitialClusterToken = "weir-" + hex.EncodeToString(token)
		return nil
	}
	if cfg.PeerListen == "" {
		return errors.New("join a cluster: --peer-listen is needed, at which the other managers reach this one")
	}
	members, err := cfg.Join(ctx, etcdConfig.AdvertisePeerUrls[0].String())
	if err != nil {
		return fmt.Errorf("join the cluster: %w", err)
	}
	var cluster []string
	for _, other := range members {
		cluster = append(cluster, other.Name+"="+other.PeerURL)
	}
	slices.Sort(cluster)
	etcdConfig.InitialCluster, etcdConfig.ClusterState = strings.Join(cluster, ","), embed.ClusterStateFlagExisting
	m.log.Info("joins the cluster", "members", cluster)
	return nil
}

// ready returns when the member takes part: it knows a leader, and has a vote.
func (m *member) ready(ctx context.Context) error {
	notice := time.NewTicker(waitNotice)
	defer notice.Stop()
	poll := time.NewTicker(retryWait)
	defer poll.Stop()
	started := false
	for {
		if started && !m.etcd.Server.IsLearner() {
			return nil
		}
		var readied <-chan struct{}
		if !started {
			readied = m.etcd.Server.ReadyNotify()
		}
		select {
		case <-readied:
			started = true
		case <-poll.C:
		case <-notice.C:
			m.log.Warn("waits for a majority of the managers", "members", m.members())
		case <-m.etcd.Server.StopNotify():
			return m.ended()
		case err := <-m.etcd.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// settle has the cluster know the member by its peer address, which may be another than before.
func (m *member) settle(ctx context.Context, peer string) error {
	id := m.etcd.Server.MemberID()
	if self := m.etcd.Server.Cluster().Member(id); self != nil && slices.Equal(self.PeerURLs, []string{peer}) {
		return nil
	}
	client := m.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := client.MemberUpdate(ctx, uint64(id), []string{peer})
	return explain("tell the other managers the peer address "+peer, err)
}

// members are the names of all members.
func (m *member) members() []string {
	names := map[string]bool{}
	for _, other := range m.etcd.Server.Cluster().Members() {
		name := other.Name
		if name == "" {
			name = other.ID.String()
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// watch returns when etcd ended by itself, or nil when ctx ends.
func (m *member) watch(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-m.etcd.Server.StopNotify():
		return m.ended()
	}
}

// ended says why etcd ended by itself.
func (m *member) ended() error {
	if !m.removed() {
		if reason := m.end.Load(); reason != nil {
			return fmt.Errorf("the embedded etcd ended by itself: %s", *reason)
		}
		return errors.New("the embedded etcd ended by itself")
	}
	if err := os.WriteFile(m.removedFile(), nil, 0o600); err != nil {
		m.log.Warn("can't note that this manager was removed", "err", err)
	}
	return m.removedError()
}

// removed reports whether etcd ended because the member was taken out: it learns that by the log of changes, or
// from another member that has applied the change before this one did.
func (m *member) removed() bool {
	cluster, ok := m.etcd.Server.Cluster().(interface{ IsIDRemoved(types.ID) bool })
	if ok && cluster.IsIDRemoved(m.etcd.Server.MemberID()) {
		return true
	}
	reason := m.end.Load()
	return reason != nil && strings.Contains(*reason, "the member has been permanently removed")
}

func (m *member) removedFile() string { return filepath.Join(m.dir, "removed") }

func (m *member) removedError() error {
	return fmt.Errorf("this manager was taken out of the cluster for good: to join again, move %s away", m.dir)
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

// changes calls do with what changes in the State from a revision on, as etcd applies it, until ctx ends or do fails.
// It asks etcd itself: by its client, which is made for another process, each change passes five goroutines more.
func (m *member) changes(ctx context.Context, from int64, do func([]*mvccpb.Event) error) error {
	stream := m.etcd.Server.Watchable().NewWatchStream()
	defer stream.Close()
	if _, err := stream.Watch(ctx, clientv3.AutoWatchID, []byte(root), []byte(clientv3.GetPrefixRangeEnd(root)), from); err != nil {
		return fmt.Errorf("watch the store: %w", err)
	}
	for {
		select {
		case response := <-stream.Chan():
			if response.CompactRevision != 0 {
				return rpctypes.ErrCompacted
			}
			if err := do(response.Events); err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (m *member) client() *clientv3.Client { return v3client.New(m.etcd.Server) }

func (m *member) close() {
	if m.etcd != nil {
		m.etcd.Close()
	}
	if m.peer != nil {
		m.peer.close()
	}
	m.lock.Close()
}
