package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/etcd"
	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/store"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
)

// secured is an etcd with TLS, and a store on it; both sides have their files from the CA.
func secured(t *testing.T, by *etcdtest.Authority) (server *etcdtest.Server, theirs, ours etcdtest.Files, cfg etcd.Config) {
	t.Helper()
	theirs, ours = etcdtest.In(filepath.Join(t.TempDir(), "etcd")), etcdtest.In(filepath.Join(t.TempDir(), "manager"))
	by.Write(t, theirs)
	by.Write(t, ours)
	server = etcdtest.StartTLS(t, theirs)
	return server, theirs, ours, etcd.Config{Endpoints: []string{server.URL()}, TLS: etcd.TLS(ours)}
}

// Whoever runs etcd replaces its CA, its certificate and the manager's, and the manager goes on.
func TestTheCAOfAnExternalStoreIsReplaced(t *testing.T) {
	server, theirs, ours, cfg := secured(t, etcdtest.NewAuthority(t, "old"))
	s, _ := open(t, cfg)
	takes(t, s, "before")
	other := etcdtest.NewAuthority(t, "new")
	other.Write(t, theirs)
	other.Write(t, ours)
	server.Restart(t)
	takes(t, s, "after")
	if n := s.Store.State().VIPs.Len(); n != 2 {
		t.Errorf("there are %d VIPs", n)
	}
}

// Files that do not fit each other, as between two renames, end nothing: those from before serve until they do.
func TestFilesForAnExternalStoreMayBeTorn(t *testing.T) {
	by := etcdtest.NewAuthority(t, "ca")
	server, _, ours, cfg := secured(t, by)
	s, _ := open(t, cfg)
	next := etcdtest.In(filepath.Join(t.TempDir(), "next"))
	by.Write(t, next)
	if err := os.Rename(next.Certificate, ours.Certificate); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
	takes(t, s, "torn")
	if err := os.Rename(next.Key, ours.Key); err != nil {
		t.Fatal(err)
	}
	server.Restart(t)
	takes(t, s, "whole")
}

// takes writes a VIP once the store leads again.
func takes(t *testing.T, s *Cluster, name string) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v", name, last)
		}
	}()
	eventually(t, "the store takes "+name, func() bool {
		_, last = s.Store.Update(t.Context(), change(store.Change{VIPs: []model.VIP{vip(name, "203.0.113.1")}}))
		return last == nil
	})
}

func TestAnExternalStoreSaysWhyItIsNotReached(t *testing.T) {
	by := etcdtest.NewAuthority(t, "ca")
	server, _, ours, cfg := secured(t, by)
	stranger := etcdtest.In(t.TempDir())
	etcdtest.NewAuthority(t, "stranger").Write(t, stranger)
	plain := strings.Replace(server.URL(), "https", "http", 1)
	for _, c := range []struct {
		what      string
		endpoints []string
		files     etcd.TLS
		says      string
	}{
		{"another CA", cfg.Endpoints, etcd.TLS{CA: stranger.CA, Certificate: ours.Certificate, Key: ours.Key}, "certificate signed by unknown authority"},
		{"a certificate of another CA", cfg.Endpoints, etcd.TLS{CA: ours.CA, Certificate: stranger.Certificate, Key: stranger.Key}, "remote error: tls"},
		{"no certificate", cfg.Endpoints, etcd.TLS{CA: ours.CA}, "remote error: tls: certificate required"},
		{"no key", cfg.Endpoints, etcd.TLS{CA: ours.CA, Certificate: ours.Certificate}, "--etcd-cert-file and --etcd-key-file go together"},
		{"no file", cfg.Endpoints, etcd.TLS{CA: "/none"}, "read --etcd-ca-file: open /none"},
		{"no CA in it", cfg.Endpoints, etcd.TLS{CA: ours.Key}, "holds no certificate as PEM"},
		{"another's key", cfg.Endpoints, etcd.TLS{Certificate: ours.Certificate, Key: stranger.Key}, "private key does not match"},
		{"no TLS", []string{plain}, etcd.TLS(ours), "must be https:// with --etcd-ca-file"},
		{"TLS in part", []string{plain, server.URL()}, etcd.TLS(ours), "must all be https:// or none"},
		{"the embedded one", nil, etcd.TLS(ours), "name it with --etcd-endpoints"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, err := Open(t.Context(), Config{Config: etcd.Config{Endpoints: c.endpoints, TLS: c.files, DataDir: t.TempDir(), Log: testLog(t)}})
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
}
