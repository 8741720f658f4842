package manager

import (
	"bytes"
	"context"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// startUntil starts a manager and runs it until the function returned is called, or the test ends.
func startUntil(t *testing.T, cfg Config) (*Manager, func()) {
	t.Helper()
	m, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	stop := sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil && !strings.Contains(err.Error(), "taken out of the cluster") {
			t.Error(err)
		}
		m.Close()
	})
	t.Cleanup(stop)
	return m, stop
}

// clusterOf is a cluster of two whose managers can be stopped and started again.
func clusterOf(t *testing.T) (configs []Config, stops []func(), ca *trust.Authority) {
	t.Helper()
	first := Config{Name: "m1", Listen: "127.0.0.1:0", PeerListen: freeAddress(t), DataDir: t.TempDir(), Version: "test", Log: logger(t)}
	m1, stop1 := startUntil(t, first)
	access, err := rpc.ReadConfig(pki.AdminFile(first.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	second := joinConfig(t, connected(t, access), access.Managers, "m2", "manager")
	_, stop2 := startUntil(t, second)
	return []Config{first, second}, []func(){stop1, stop2}, m1.identity.Authority()
}

// expire replaces a manager's certificate by one that ended.
func expire(t *testing.T, cfg Config, ca *trust.Authority) {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	certificate, err := ca.Sign(trust.Identity{Kind: trust.Manager, Name: cfg.Name}, request, time.Now().Add(-time.Hour), time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	credential, err := key.Credential(certificate, ca.Certificate)
	if err != nil {
		t.Fatal(err)
	}
	if err := credential.Save(cfg.DataDir); err != nil {
		t.Fatal(err)
	}
}

// refusedToStart holds that a manager does not start, says why, and leaves its files alone.
func refusedToStart(t *testing.T, what string, cfg Config, why string) {
	t.Helper()
	folder := filepath.Dir(trust.NodeFile(cfg.DataDir))
	before := filesOf(t, folder)
	m, err := New(t.Context(), cfg)
	if err == nil {
		m.Close()
	}
	refusedWith(t, what, err, why)
	if after := filesOf(t, folder); !maps.Equal(before, after) {
		t.Errorf("%s: files were written", what)
	}
}

// filesOf are the files of a folder and what they hold.
func filesOf(t *testing.T, folder string) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(folder, "*"))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[path] = string(text)
	}
	return files
}

// All managers were away for longer than their certificates live, or lost them: none makes a CA of its own.
func TestManagersFoundNothingAnew(t *testing.T) {
	t.Parallel()
	configs, stops, ca := clusterOf(t)
	credential, err := trust.LoadCredential(configs[1].DataDir)
	if err != nil {
		t.Fatal(err)
	}
	if left := time.Until(credential.Certificate.NotAfter); left < trust.ManagerLife-24*time.Hour {
		t.Errorf("a manager that joined has a certificate for %s", left)
	}
	for _, stop := range stops {
		stop()
	}
	expire(t, configs[0], ca)
	refusedToStart(t, "an expired certificate", configs[0], "join again with --join")
	if err := os.RemoveAll(filepath.Dir(trust.NodeFile(configs[0].DataDir))); err != nil {
		t.Fatal(err)
	}
	refusedToStart(t, "no certificate", configs[0], "its store has other managers")
	refusedToStart(t, "no certificate, once more", configs[0], "its store has other managers")
}

// A manager that is alone is its own CA: it returns after any time, with the certificate or without.
func TestALoneManagerReturns(t *testing.T) {
	t.Parallel()
	cfg := Config{Name: "m1", Listen: "127.0.0.1:0", PeerListen: freeAddress(t), DataDir: t.TempDir(), Version: "test", Log: logger(t)}
	m, stop := startUntil(t, cfg)
	ca := m.identity.Authority()
	for what, lose := range map[string]func(){
		"expired": func() { expire(t, cfg, ca) },
		"lost": func() {
			if err := os.RemoveAll(filepath.Dir(trust.NodeFile(cfg.DataDir))); err != nil {
				t.Fatal(err)
			}
		},
	} {
		stop()
		lose()
		m, stop = startUntil(t, cfg)
		if !m.identity.Authority().Certificate.Equal(ca.Certificate) {
			t.Errorf("%s: the cluster has another CA", what)
		}
		if left := time.Until(m.identity.Current().Certificate.NotAfter); left < trust.ManagerLife-24*time.Hour {
			t.Errorf("%s: the certificate is good for %s", what, left)
		}
		access, err := rpc.ReadConfig(pki.AdminFile(cfg.DataDir))
		if err != nil {
			t.Fatal(err)
		}
		access.Managers = "https://" + m.Address().String()
		if _, err := connected(t, access).GetStatus(t.Context(), &weirv1.GetStatusRequest{}); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// The first user's certificate beside the store of the manager that founded the cluster is renewed there.
func TestTheFirstUsersCertificateIsRenewed(t *testing.T) {
	m, admin, _ := secure(t, Config{Name: "m1"})
	trusted, _ := m.store.Trust.Watch()
	file := pki.AdminFile(m.cfg.DataDir)
	before, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	renewed := func(after time.Duration) bool {
		t.Helper()
		if err := m.identity.KeepAdmin(trusted, m.cluster.Managers(), time.Now().Add(after)); err != nil {
			t.Fatal(err)
		}
		now, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		return !bytes.Equal(before, now)
	}
	if renewed(trust.UserLife / 2) {
		t.Error("it was renewed early")
	}
	if !renewed(trust.UserLife * 3 / 4) {
		t.Error("it was not renewed")
	}
	access, err := rpc.ReadConfig(file)
	if err != nil {
		t.Fatal(err)
	}
	who, err := connected(t, access).WhoAmI(t.Context(), &weirv1.WhoAmIRequest{})
	if err != nil || who.GetIdentity() != "user/admin" || !strings.HasPrefix(access.Managers, "https://") {
		t.Errorf("by the renewed one: %v, %v", who, err)
	}
	// Revoked: it stays as it is.
	if _, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "other", Bindings: []*weirv1.Binding{{Tenant: "*", Role: "admin"}},
	}}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "admin"}); err != nil {
		t.Fatal(err)
	}
	trusted, _ = m.store.Trust.Watch()
	before, _ = os.ReadFile(file)
	if renewed(2 * trust.UserLife) {
		t.Error("one that was revoked was renewed")
	}
}

// A cluster without TLS gets it: one manager goes first, alone, and the others join it anew.
func TestAPlainClusterGetsTLS(t *testing.T) {
	t.Parallel()
	plain := func(name string) Config {
		return Config{Name: name, Listen: "127.0.0.1:0", PeerListen: freeAddress(t), DataDir: t.TempDir(), Insecure: true, Version: "test", Log: logger(t)}
	}
	first, second := plain("m1"), plain("m2")
	m1, stop1 := startUntil(t, first)
	second.Join = m1.Address().String()
	m2, stop2 := startUntil(t, second)
	client := connected(t, rpc.Access{Managers: "http://" + m1.Address().String() + ",http://" + m2.Address().String()})
	eventually(t, "both managers are there", func() bool { return len(listManagers(t, client)) == 2 })
	if _, err := client.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: &weirv1.VIP{
		Name: "kept", Address: "203.0.113.7", Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}},
	}}); err != nil {
		t.Fatal(err)
	}

	stop1()
	tls := first
	tls.Insecure = false
	refusedToStart(t, "TLS beside managers without", tls, "weir delete manager")
	m1, stop1 = startUntil(t, first)
	client = connected(t, rpc.Access{Managers: "http://" + m1.Address().String()})
	eventually(t, "the other one is out", func() bool {
		_, err := client.DeleteManager(t.Context(), &weirv1.DeleteManagerRequest{Name: "m2"})
		return err == nil
	})
	stop2()
	stop1()

	m1, _ = startUntil(t, tls)
	access, err := rpc.ReadConfig(pki.AdminFile(tls.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	admin := connected(t, access)
	joins := joinConfig(t, admin, "https://"+m1.Address().String(), "m2", "manager")
	m2, _ = startUntil(t, joins)
	access.Managers = "https://" + m2.Address().String()
	if _, err := connected(t, access).GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "kept"}); err != nil {
		t.Error(err)
	}
}
