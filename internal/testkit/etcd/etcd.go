// Package etcd starts an etcd of a test's own, as an external store.
package etcd

import (
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	"go.etcd.io/etcd/client/pkg/v3/transport"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// Start runs etcd, with the limits that it has by default, until the test ends, and returns its URL.
func Start(t testing.TB) string {
	t.Helper()
	return start(t, "http", transport.TLSInfo{}).URL()
}

// Server is an etcd that can be started again.
type Server struct {
	cfg     *embed.Config
	running *embed.Etcd
}

// StartTLS runs etcd with the files of a folder, and asks clients for certificates of its CA.
func StartTLS(t testing.TB, files Files) *Server {
	t.Helper()
	return start(t, "https", transport.TLSInfo{
		CertFile: files.Certificate, KeyFile: files.Key, TrustedCAFile: files.CA, ClientCertAuth: true,
	})
}

func start(t testing.TB, scheme string, secured transport.TLSInfo) *Server {
	t.Helper()
	s := &Server{cfg: config(t, scheme)}
	s.cfg.InitialCluster = s.cfg.InitialClusterFromName(s.cfg.Name)
	s.cfg.ClientTLSInfo = secured
	s.run(t)
	t.Cleanup(func() { s.running.Close() })
	return s
}

func config(t testing.TB, scheme string) *embed.Config {
	t.Helper()
	client, peer := freeURL(t, scheme), freeURL(t, "http")
	cfg := embed.NewConfig()
	cfg.Dir = t.TempDir()
	cfg.ZapLoggerBuilder = embed.NewZapLoggerBuilder(zap.NewNop())
	cfg.ListenClientUrls, cfg.AdvertiseClientUrls = []url.URL{client}, []url.URL{client}
	cfg.ListenPeerUrls, cfg.AdvertisePeerUrls = []url.URL{peer}, []url.URL{peer}
	return cfg
}

// StartCluster runs an etcd of n members until the test ends.
func StartCluster(t testing.TB, n int) []*Server {
	t.Helper()
	var members []*Server
	var all []string
	for i := range n {
		cfg := config(t, "http")
		cfg.Name = fmt.Sprintf("etcd%d", i)
		all = append(all, cfg.Name+"="+cfg.AdvertisePeerUrls[0].String())
		members = append(members, &Server{cfg: cfg})
	}
	for _, s := range members {
		s.cfg.InitialCluster = strings.Join(all, ",")
		s.launch(t)
		t.Cleanup(func() { s.running.Close() })
	}
	for _, s := range members {
		s.await(t)
	}
	return members
}

// Cut ends all traffic between the member and others, both ways, but for what is under way.
func (s *Server) Cut(others ...*Server) {
	for _, other := range others {
		s.running.Server.CutPeer(other.running.Server.MemberID())
		other.running.Server.CutPeer(s.running.Server.MemberID())
	}
}

func (s *Server) run(t testing.TB) {
	t.Helper()
	s.launch(t)
	s.await(t)
}

func (s *Server) launch(t testing.TB) {
	t.Helper()
	var err error
	if s.running, err = embed.StartEtcd(s.cfg); err != nil {
		t.Fatalf("start etcd: %v", err)
	}
}

func (s *Server) await(t testing.TB) {
	t.Helper()
	select {
	case <-s.running.Server.ReadyNotify():
	case <-t.Context().Done():
		t.Fatalf("start etcd: %v", t.Context().Err())
	}
}

// URL is where it listens for clients.
func (s *Server) URL() string { return s.cfg.AdvertiseClientUrls[0].String() }

// Restart ends it and starts it again on the same data, with its files as they are by then.
func (s *Server) Restart(t testing.TB) {
	t.Helper()
	s.running.Close()
	s.run(t)
}

// freeURL is a URL on a port that was free a moment ago.
func freeURL(t testing.TB, scheme string) url.URL {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // it listens on loopback for an instant
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return url.URL{Scheme: scheme, Host: l.Addr().String()}
}
