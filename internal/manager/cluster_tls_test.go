package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// trustedCluster is one of managers with TLS that joined by tokens.
type trustedCluster struct {
	managers []*Manager
	admin    *rpc.Client
}

// startTrusted founds a cluster with TLS and has others join it.
func startTrusted(t *testing.T, n int) *trustedCluster {
	t.Helper()
	first, admin, url := secure(t, Config{Name: "m1", PeerListen: freeAddress(t)})
	c := &trustedCluster{managers: []*Manager{first}, admin: admin}
	for i := 1; i < n; i++ {
		cfg := joinConfig(t, admin, url, fmt.Sprintf("m%d", i+1), "manager")
		m, err := New(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		runManager(t, m)
		c.managers = append(c.managers, m)
	}
	return c
}

// joinConfig is that of a manager with a token of its own.
func joinConfig(t *testing.T, admin *rpc.Client, url, name, role string) Config {
	t.Helper()
	made, err := admin.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: role})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(made.GetText()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return Config{
		Name: name, Listen: "127.0.0.1:0", PeerListen: freeAddress(t), Join: strings.TrimPrefix(url, "https://"),
		TokenFile: file, CAHash: made.GetCaHash(), DataDir: t.TempDir(), Version: "test", Log: logger(t),
	}
}

// runManager runs m until the test ends.
func runManager(t *testing.T, m *Manager) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		m.Close()
	})
}

// at is how to reach manager i, as nobody.
func (c *trustedCluster) at(i int) rpc.Access {
	return rpc.Access{Managers: "https://" + c.managers[i].Address().String(), CA: c.managers[0].identity.Authority().Certificate}
}

// httpAt calls manager i with that certificate.
func (c *trustedCluster) httpAt(t *testing.T, credential *trust.Credential) *http.Client {
	t.Helper()
	config := trust.ClientTLS(c.managers[0].identity.Authority().Certificate, func() *trust.Credential { return credential }, time.Now)
	transport := &http.Transport{TLSClientConfig: config, Protocols: &http.Protocols{}}
	transport.Protocols.SetHTTP2(true)
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// rest writes a VIP by REST, with those headers.
func rest(t *testing.T, client *http.Client, manager, name string, n int, headers map[string]string) (int, string) {
	t.Helper()
	body := fmt.Sprintf(`{"name":%q,"tenant":"red","address":"203.0.113.%d","endpoints":[{"protocol":"TCP","port":80}]}`, name, n)
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, manager+"/v1/vips", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for key, value := range headers {
		r.Header.Set(key, value)
	}
	answer, err := client.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	var text bytes.Buffer
	if _, err := text.ReadFrom(answer.Body); err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, text.String()
}

// adminKnowsAll holds that the first user's configuration names the managers that joined.
func (c *trustedCluster) adminKnowsAll(t *testing.T) {
	t.Helper()
	m := c.managers[0]
	trusted, _ := m.store.Trust.Watch()
	if err := m.identity.KeepAdmin(trusted, m.cluster.Managers(), time.Now()); err != nil {
		t.Fatal(err)
	}
	access, err := rpc.ReadConfig(pki.AdminFile(m.cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	for _, known := range m.cluster.Managers() {
		if !strings.Contains(access.Managers+",", "https://"+known.Address+",") {
			t.Errorf("the first user's configuration names %s, not %s", access.Managers, known.Address)
		}
	}
}

// Managers that joined by tokens hand writes of a tenant's user on to the leader, who believes them of whom the
// write is, and nobody else.
func TestManagersWithTLS(t *testing.T) {
	t.Parallel()
	c := startTrusted(t, 3)
	eventually(t, "all have joined, and say how they are", func() bool {
		managers := listManagers(t, c.admin)
		for _, m := range managers {
			if m.Problem != "" || m.Learner || m.Replica.GetLeader() != "m1" {
				return false
			}
		}
		return len(managers) == 3 && leaderOf(managers) == "m1"
	})
	c.adminKnowsAll(t)
	for _, m := range c.managers {
		for _, member := range m.cluster.Managers() {
			if !strings.HasPrefix(member.PeerURL, "https://") {
				t.Errorf("the etcd of %s is reached at %q, want TLS", member.Name, member.PeerURL)
			}
		}
	}
	rita := c.user(t)
	c.writesOfUser(t, rita)
	c.strangers(t)
}

// user makes one who may write VIPs of the tenant red, and returns its token.
func (c *trustedCluster) user(t *testing.T) string {
	t.Helper()
	if _, err := c.admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{
		{Name: "red", Ranges: []string{"203.0.113.0/28"}},
	}}); err != nil {
		t.Fatal(err)
	}
	made, err := c.admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "rita", Bindings: []*weirv1.Binding{{Tenant: "red", Role: "operator"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for i, m := range c.managers {
		eventually(t, fmt.Sprintf("m%d knows the user", i+1), func() bool {
			trusted, _ := m.store.Trust.Watch()
			return trusted.Accounts.Has("rita")
		})
	}
	return made.GetToken()
}

// writesOfUser has the user write through followers, by each protocol.
func (c *trustedCluster) writesOfUser(t *testing.T, token string) {
	t.Helper()
	url := c.at(1).Managers
	code, text := rest(t, c.httpAt(t, nil), url, "by-rest", 1, map[string]string{"Authorization": "Bearer " + token})
	if code != http.StatusOK {
		t.Errorf("a write by REST through a follower: %d %s", code, text)
	}
	code, text = rest(t, c.httpAt(t, nil), url, "abroad", 99, map[string]string{"Authorization": "Bearer " + token})
	var refused struct{ Message string }
	if err := json.Unmarshal([]byte(text), &refused); err != nil || code != http.StatusBadRequest || !strings.Contains(refused.Message, "not in the ranges of tenant red") {
		t.Errorf("a write outside of the tenant's ranges: %d %s", code, text)
	}
	for i, option := range []connect.ClientOption{connect.WithGRPC(), connect.WithGRPCWeb(), connect.WithProtoJSON()} {
		client := weirv1connect.NewWeirServiceClient(c.httpAt(t, nil), c.at(2).Managers, option)
		call := func(tenant string) error {
			ctx, info := connect.NewClientContext(t.Context())
			info.RequestHeader().Set("Authorization", "Bearer "+token)
			_, err := client.CreateVIP(ctx, &weirv1.CreateVIPRequest{Vip: &weirv1.VIP{
				Name: fmt.Sprintf("by-protocol%d", i), Tenant: tenant, Address: fmt.Sprintf("203.0.113.%d", i+2),
				Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}},
			}})
			return err
		}
		if err := call("blue"); err == nil || !strings.Contains(err.Error(), "tenant") {
			t.Errorf("protocol %d: a write to another tenant through a follower: %v", i, err)
		}
		if err := call("red"); err != nil {
			t.Errorf("protocol %d: a write through a follower: %v", i, err)
		}
	}
	list, err := c.admin.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{})
	if err != nil || len(list.GetVips()) != 4 {
		t.Errorf("the VIPs are %v, %v", list, err)
	}
	eventually(t, "the leader audits each write, once, and of the user", func() bool {
		audit, err := c.admin.ListAudit(t.Context(), &weirv1.ListAuditRequest{})
		if err != nil {
			return false
		}
		written := map[string]int{}
		for _, e := range audit.GetEntries() {
			if e.GetIdentity() == "user/rita" && e.GetResult() == "ok" && e.GetManager() == "m1" && e.GetFrom() != "" {
				written[e.GetSubject()]++
			}
		}
		return len(written) == 4 && written["vip/by-rest"] == 1 && written["vip/by-protocol0"] == 1 && written["vip/by-protocol2"] == 1
	})
}

// strangers say that they call for somebody else.
func (c *trustedCluster) strangers(t *testing.T) {
	t.Helper()
	boss, err := trust.Identity{
		Kind: trust.User, Name: "admin", Method: trust.ByCertificate, Bindings: []trust.Binding{{Tenant: trust.AllTenants, Role: trust.Admin}},
	}.Encode()
	if err != nil {
		t.Fatal(err)
	}
	mux := member(t, c.admin, c.at(0).Managers, &weirv1.CreateTokenRequest{Role: "mux"}, trust.Mux, "mux1")
	if err := mux.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	other, err := trust.NewAuthority(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	forged, err := pki.Issue(other, trust.Identity{Kind: trust.Manager, Name: "m2"}, []string{pki.AnyManager}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	for i := range c.managers {
		for what, c1 := range map[string]struct {
			credential *trust.Credential
			bearer     string
			want       string
		}{
			"nobody":                     {want: "only a manager may call on behalf of others"},
			"a mux":                      {credential: mux.Credential(), want: "mux/mux1 may not call on behalf of others"},
			"a manager of another CA":    {credential: forged, want: "the certificate is of another CA"},
			"nobody, with a wrong token": {bearer: "Bearer weir_user_admin." + strings.Repeat("a", 43), want: "the bearer token is not valid"},
		} {
			headers := map[string]string{trust.OnBehalfHeader: boss, trust.ForwardedByHeader: "m2"}
			if c1.bearer != "" {
				headers["Authorization"] = c1.bearer
			}
			code, text := rest(t, c.httpAt(t, c1.credential), c.at(i).Managers, "stolen", 9, headers)
			if code != http.StatusUnauthorized || !strings.Contains(text, c1.want) {
				t.Errorf("%s calls m%d on behalf of the admin: %d %s, want %q", what, i+1, code, text, c1.want)
			}
		}
	}
	for what, credential := range map[string]*trust.Credential{"a mux": mux.Credential(), "a manager of another CA": forged, "nobody": nil} {
		if err := c.handshake(t, credential); err == nil {
			t.Errorf("%s may talk to the etcd of m1", what)
		}
	}
	if err := c.handshake(t, c.managers[1].identity.Current()); err != nil {
		t.Errorf("m2 may not talk to the etcd of m1: %v", err)
	}
}

// handshake asks the etcd of m1 for its version.
func (c *trustedCluster) handshake(t *testing.T, credential *trust.Credential) error {
	t.Helper()
	config := &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12} //nolint:gosec // it is the server that must look
	if credential != nil {
		config.Certificates = []tls.Certificate{*credential.TLS()}
	}
	transport := &http.Transport{TLSClientConfig: config}
	defer transport.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+c.managers[0].cfg.PeerListen+"/version", nil)
	if err != nil {
		t.Fatal(err)
	}
	answer, err := transport.RoundTrip(r)
	if err != nil {
		return err
	}
	return answer.Body.Close()
}

// Who may not join is told why.
func TestManagersThatMayNotJoin(t *testing.T) {
	_, admin, url := secure(t, Config{Name: "m1", PeerListen: freeAddress(t)})
	try := func(change func(*Config)) error {
		cfg := joinConfig(t, admin, url, "m2", "manager")
		change(&cfg)
		m, err := New(t.Context(), cfg)
		if err == nil {
			m.Close()
		}
		return err
	}
	write := func(text string) string {
		file := filepath.Join(t.TempDir(), "token")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	agents := joinConfig(t, admin, url, "m2", "agent")
	refusedWith(t, "a token of agents", try(func(cfg *Config) { cfg.TokenFile = agents.TokenFile }), "is for a host, not for a manager")
	refusedWith(t, "a made-up token", try(func(cfg *Config) {
		cfg.TokenFile = write("weir_join_0123456789ab." + strings.Repeat("a", 43))
	}), "the join token is not valid")
	refusedWith(t, "no token", try(func(cfg *Config) { cfg.TokenFile = "" }), "join with --token-file and --ca-hash")
	refusedWith(t, "another CA", try(func(cfg *Config) { cfg.CAHash = "sha256:" + strings.Repeat("0", 64) }), "has another hash")
	refusedWith(t, "no TLS", try(func(cfg *Config) { cfg.Join = "http://" + cfg.Join }), "--insecure")
	refusedWith(t, "no peer address", try(func(cfg *Config) { cfg.PeerListen = "" }), "--peer-listen")
	eventually(t, "the founder is the only manager", func() bool { return len(listManagers(t, admin)) == 1 })
}
