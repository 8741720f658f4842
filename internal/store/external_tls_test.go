package store

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/weirlb/weir/internal/model"
	"github.com/weirlb/weir/internal/testkit/etcd"
)

// secured is an etcd with TLS, and a store on it; both sides have their files from the CA.
func secured(t *testing.T, by *etcd.Authority) (server *etcd.Server, theirs, ours etcd.Files, cfg Config) {
	t.Helper()
	theirs, ours = etcd.In(filepath.Join(t.TempDir(), "etcd")), etcd.In(filepath.Join(t.TempDir(), "manager"))
	by.Write(t, theirs)
	by.Write(t, ours)
	server = etcd.StartTLS(t, theirs)
	return server, theirs, ours, Config{Endpoints: []string{server.URL()}, EtcdTLS: EtcdTLS(ours)}
}

// Whoever runs etcd replaces its CA, its certificate and the manager's, and the manager goes on.
func TestTheCAOfAnExternalStoreIsReplaced(t *testing.T) {
	server, theirs, ours, cfg := secured(t, etcd.NewAuthority(t, "old"))
	s, _ := open(t, cfg)
	takes(t, s, "before")
	other := etcd.NewAuthority(t, "new")
	other.Write(t, theirs)
	other.Write(t, ours)
	server.Restart(t)
	takes(t, s, "after")
	if n := s.State().VIPs.Len(); n != 2 {
		t.Errorf("there are %d VIPs", n)
	}
}

// Files that do not fit each other, as between two renames, end nothing: those from before serve until they do.
func TestFilesForAnExternalStoreMayBeTorn(t *testing.T) {
	by := etcd.NewAuthority(t, "ca")
	server, _, ours, cfg := secured(t, by)
	s, _ := open(t, cfg)
	next := etcd.In(filepath.Join(t.TempDir(), "next"))
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
func takes(t *testing.T, s *Store, name string) {
	t.Helper()
	var last error
	defer func() {
		if t.Failed() {
			t.Logf("%s: %v", name, last)
		}
	}()
	eventually(t, "the store takes "+name, func() bool {
		_, last = s.Update(t.Context(), change(Change{VIPs: []model.VIP{vip(name, "203.0.113.1")}}))
		return last == nil
	})
}

func TestAnExternalStoreSaysWhyItIsNotReached(t *testing.T) {
	by := etcd.NewAuthority(t, "ca")
	server, _, ours, cfg := secured(t, by)
	stranger := etcd.In(t.TempDir())
	etcd.NewAuthority(t, "stranger").Write(t, stranger)
	plain := strings.Replace(server.URL(), "https", "http", 1)
	for _, c := range []struct {
		what      string
		endpoints []string
		files     EtcdTLS
		says      string
	}{
		{"another CA", cfg.Endpoints, EtcdTLS{CA: stranger.CA, Certificate: ours.Certificate, Key: ours.Key}, "certificate signed by unknown authority"},
		{"a certificate of another CA", cfg.Endpoints, EtcdTLS{CA: ours.CA, Certificate: stranger.Certificate, Key: stranger.Key}, "remote error: tls"},
		{"no certificate", cfg.Endpoints, EtcdTLS{CA: ours.CA}, "remote error: tls: certificate required"},
		{"no key", cfg.Endpoints, EtcdTLS{CA: ours.CA, Certificate: ours.Certificate}, "--etcd-cert-file and --etcd-key-file go together"},
		{"no file", cfg.Endpoints, EtcdTLS{CA: "/none"}, "read --etcd-ca-file: open /none"},
		{"no CA in it", cfg.Endpoints, EtcdTLS{CA: ours.Key}, "holds no certificate as PEM"},
		{"another's key", cfg.Endpoints, EtcdTLS{Certificate: ours.Certificate, Key: stranger.Key}, "private key does not match"},
		{"no TLS", []string{plain}, EtcdTLS(ours), "must be https:// with --etcd-ca-file"},
		{"TLS in part", []string{plain, server.URL()}, EtcdTLS(ours), "must all be https:// or none"},
		{"the embedded one", nil, EtcdTLS(ours), "name it with --etcd-endpoints"},
	} {
		t.Run(c.what, func(t *testing.T) {
			s, err := Open(t.Context(), Config{Endpoints: c.endpoints, EtcdTLS: c.files, DataDir: t.TempDir(), Log: testLog(t)})
			if err == nil {
				s.Close()
			}
			if err == nil || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want an error with %q", err, c.says)
			}
		})
	}
}
