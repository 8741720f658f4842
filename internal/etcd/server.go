package etcd

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
	// Lonely is the peer address of a member that is alone: it only names it.
	Lonely = "http://localhost:2380"
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

// Server is an etcd that runs in this process: a member of the cluster of all managers.
type Server struct {
	etcd *embed.Etcd
	peer *peerServer // nil: it is the only one
	lock *os.File
	dir  string
	log  *slog.Logger
	// end is the error by which etcd ended.
	end atomic.Pointer[string]
}

// startServer starts etcd on the data directory and waits until it has a vote and there is a leader.
func startServer(ctx context.Context, cfg Config) (*Server, error) {
	lock, err := lockDirectory(cfg.DataDir)
	if err != nil {
		return nil, err
	}
	m := &Server{lock: lock, dir: cfg.DataDir, log: cfg.Log}
	if err := m.start(ctx, cfg); err != nil {
		m.close()
		return nil, err
	}
	return m, nil
}

func (s *Server) start(ctx context.Context, cfg Config) error {
	if _, err := os.Stat(removedFile(s.dir)); err == nil {
		return removedError(s.dir)
	}
	etcdConfig, err := s.config(cfg)
	if err != nil {
		return err
	}
	if !exists(s.dir) {
		if err := s.prepareFirstStart(ctx, cfg, etcdConfig); err != nil {
			return err
		}
	}
	if cfg.PeerListen != "" {
		if s.peer, err = listenPeers(etcdConfig.AdvertisePeerUrls[0], etcdConfig.PeerTLSInfo); err != nil {
			return fmt.Errorf("start the embedded etcd in %s: %w", cfg.DataDir, err)
		}
	}
	if s.etcd, err = startEtcd(etcdConfig); err != nil {
		return fmt.Errorf("start the embedded etcd in %s: %w", cfg.DataDir, err)
	}
	if s.peer != nil {
		s.peer.serve(s.etcd, s.log)
	}
	if cfg.Lone != nil && len(s.memberNames()) > 1 {
		return cfg.Lone
	}
	if err := s.awaitReady(ctx); err != nil {
		return fmt.Errorf("start the embedded etcd in %s: %w", cfg.DataDir, err)
	}
	return s.advertise(ctx, etcdConfig.AdvertisePeerUrls[0].String())
}

// exists says whether the data directory holds a member that was started before.
func exists(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "etcd", "member", "wal"))
	return !errors.Is(err, fs.ErrNotExist)
}

// config is what holds of founding, joining and restarting members alike.
func (s *Server) config(cfg Config) (*embed.Config, error) {
	stop := fatal{log: cfg.Log, dir: cfg.DataDir}
	logger := zap.New(quiet{log: cfg.Log, end: &s.end}, zap.WithPanicHook(stop), zap.WithFatalHook(stop))
	c := embed.NewConfig()
	c.Name = cfg.Name
	c.Dir = filepath.Join(cfg.DataDir, "etcd")
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(logger)
	// Calls go to the server in this process: nothing listens for clients. Other members are served by peerServer.
	c.ListenPeerUrls, c.ListenClientUrls = nil, nil
	c.AdvertiseClientUrls = []url.URL{{Scheme: "http", Host: "localhost:2380"}}
	peer, err := url.Parse(Lonely)
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

// prepareFirstStart prepares the first start: founding a cluster of one, or joining one.
func (s *Server) prepareFirstStart(ctx context.Context, cfg Config, etcdConfig *embed.Config) error {
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
	s.log.Info("joins the cluster", "members", cluster)
	return nil
}

// awaitReady returns when the member takes part: it knows a leader, and has a vote.
func (s *Server) awaitReady(ctx context.Context) error {
	notice := time.NewTicker(waitNotice)
	defer notice.Stop()
	poll := time.NewTicker(RetryWait)
	defer poll.Stop()
	started := false
	for {
		if started && !s.etcd.Server.IsLearner() {
			return nil
		}
		var readied <-chan struct{}
		if !started {
			readied = s.etcd.Server.ReadyNotify()
		}
		select {
		case <-readied:
			started = true
		case <-poll.C:
		case <-notice.C:
			s.log.Warn("waits for a majority of the managers", "members", s.memberNames())
		case <-s.etcd.Server.StopNotify():
			return s.ended()
		case err := <-s.etcd.Err():
			return err
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// advertise has the cluster know the member by its peer address, which may be another than before.
func (s *Server) advertise(ctx context.Context, peer string) error {
	id := s.etcd.Server.MemberID()
	if self := s.etcd.Server.Cluster().Member(id); self != nil && slices.Equal(self.PeerURLs, []string{peer}) {
		return nil
	}
	client := s.client()
	defer client.Close()
	ctx, cancel := context.WithTimeout(ctx, CallTimeout)
	defer cancel()
	_, err := client.MemberUpdate(ctx, uint64(id), []string{peer})
	return Explain("tell the other managers the peer address "+peer, err)
}

// memberNames are the names of all members.
func (s *Server) memberNames() []string {
	names := map[string]bool{}
	for _, other := range s.etcd.Server.Cluster().Members() {
		name := other.Name
		if name == "" {
			name = other.ID.String()
		}
		names[name] = true
	}
	return slices.Sorted(maps.Keys(names))
}

// awaitEnd returns when etcd ended by itself, or nil when ctx ends.
func (s *Server) awaitEnd(ctx context.Context) error {
	select {
	case <-ctx.Done():
		return nil
	case <-s.etcd.Server.StopNotify():
		return s.ended()
	}
}

// ended says why etcd ended by itself.
func (s *Server) ended() error {
	if !s.removed() {
		if reason := s.end.Load(); reason != nil {
			return fmt.Errorf("the embedded etcd ended by itself: %s", *reason)
		}
		return errors.New("the embedded etcd ended by itself")
	}
	if err := os.WriteFile(removedFile(s.dir), nil, 0o600); err != nil {
		s.log.Warn("can't note that this manager was removed", "err", err)
	}
	return removedError(s.dir)
}

// removed reports whether etcd ended because the member was taken out: it learns that by the log of changes, or
// from another member that has applied the change before this one did.
func (s *Server) removed() bool {
	cluster, ok := s.etcd.Server.Cluster().(interface{ IsIDRemoved(types.ID) bool })
	if ok && cluster.IsIDRemoved(s.etcd.Server.MemberID()) {
		return true
	}
	reason := s.end.Load()
	return reason != nil && strings.Contains(*reason, "the member has been permanently removed")
}

func removedFile(dir string) string { return filepath.Join(dir, "removed") }

func removedError(dir string) error {
	return fmt.Errorf("this manager was taken out of the cluster for good: to join again, move %s away", dir)
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

// Leads says whether this member leads etcd.
func (s *Server) Leads() bool { return s.etcd.Server.Leader() == s.etcd.Server.MemberID() }

// AwaitLead returns when this member leads etcd.
func (s *Server) AwaitLead(ctx context.Context) error {
	for {
		moved := s.etcd.Server.LeaderChangedNotify()
		if s.Leads() {
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// eachChange calls do with what changes below a prefix from a revision on, as etcd applies it, until ctx ends or do fails.
// It asks etcd itself: by its client, which is made for another process, each change passes five goroutines more.
func (s *Server) eachChange(ctx context.Context, prefix string, from int64, do func([]*mvccpb.Event) error) error {
	stream := s.etcd.Server.Watchable().NewWatchStream()
	defer stream.Close()
	if _, err := stream.Watch(ctx, clientv3.AutoWatchID, []byte(prefix), []byte(clientv3.GetPrefixRangeEnd(prefix)), from); err != nil {
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

func (s *Server) client() *clientv3.Client { return v3client.New(s.etcd.Server) }

func (s *Server) close() {
	if s.etcd != nil {
		s.etcd.Close()
	}
	if s.peer != nil {
		s.peer.close()
	}
	s.lock.Close()
}

// ID is that of this member.
func (s *Server) ID() uint64 { return uint64(s.etcd.Server.MemberID()) }

// PeerURL is where the other members reach this one; empty: it is alone.
func (s *Server) PeerURL() string {
	if m := s.etcd.Server.Cluster().Member(s.etcd.Server.MemberID()); m != nil && len(m.PeerURLs) == 1 && m.PeerURLs[0] != Lonely {
		return m.PeerURLs[0]
	}
	return ""
}

// Learners are the members that have no vote yet, by their ids; a name is empty until its member has started.
func (s *Server) Learners() map[uint64]string {
	learners := map[uint64]string{}
	for _, other := range s.etcd.Server.Cluster().Members() {
		if other.IsLearner {
			learners[uint64(other.ID)] = other.Name
		}
	}
	return learners
}

// LeaderChanged returns a channel that is closed when another member leads etcd.
func (s *Server) LeaderChanged() <-chan struct{} { return s.etcd.Server.LeaderChangedNotify() }

// ErrRetry is returned by changes of the cluster that can't be made just now.
var ErrRetry = errors.New("try again")

// MoveLeader has another member lead etcd.
func (s *Server) MoveLeader(ctx context.Context) error {
	self := s.etcd.Server.MemberID()
	for _, other := range s.etcd.Server.Cluster().Members() {
		if other.ID == self || other.IsLearner {
			continue
		}
		if err := s.etcd.Server.MoveLeader(ctx, uint64(self), uint64(other.ID)); err == nil {
			return fmt.Errorf("another manager leads from now on: %w", ErrRetry)
		}
	}
	return errors.New("no other manager can lead: start them first")
}
