package manager

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/trust"
)

// secure runs a manager with TLS, tuned so, and returns it, the admin's client and its URL.
func secure(t *testing.T, cfg Config, tune ...func(*Manager)) (*Manager, *rpc.Client, string) {
	t.Helper()
	cfg.DataDir, cfg.Listen, cfg.Version, cfg.Log = t.TempDir(), "127.0.0.1:0", "test", logger(t)
	m, err := New(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	for _, do := range tune {
		do(m)
	}
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
	access, err := rpc.ReadConfig(pki.AdminFile(cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	return m, connected(t, access), "https://" + m.Address().String()
}

func connected(t *testing.T, access rpc.Access) *rpc.Client {
	t.Helper()
	client, err := access.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// member is a node that has yet to join, with a token of the admin's.
func member(t *testing.T, admin *rpc.Client, url string, request *weirv1.CreateTokenRequest, kind trust.Kind, name string) *rpc.Membership {
	t.Helper()
	made, err := admin.CreateToken(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(made.GetText()+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	return &rpc.Membership{
		Managers: url, Kind: kind, Name: name, DataDir: t.TempDir(), TokenFile: file, CAHash: made.GetCaHash(), Log: logger(t),
	}
}

func refusedWith(t *testing.T, what string, err error, want string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%s: got %v, want an error with %q", what, err, want)
	}
}

func TestNodesJoinAndAreRevoked(t *testing.T) {
	m, admin, url := secure(t, Config{})
	mux := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "mux"}, trust.Mux, "mux1")
	if err := mux.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := mux.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	stream, err := client.SyncMux(t.Context(), &weirv1.SyncMuxRequest{Name: "mux1", Addresses: []string{"10.1.1.2"}})
	if err != nil || !stream.Receive() {
		t.Fatalf("the stream of a mux that joined: %v", err)
	}

	replay := &rpc.Membership{
		Managers: url, Kind: trust.Mux, Name: "mux2", DataDir: t.TempDir(), TokenFile: mux.TokenFile, CAHash: mux.CAHash, Log: logger(t),
	}
	refusedWith(t, "a token used twice", replay.Obtain(t.Context()), "was used already")
	replay.CAHash = "sha256:" + strings.Repeat("0", 64)
	refusedWith(t, "another CA", replay.Obtain(t.Context()), "has another hash")
	wrong := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "agent"}, trust.Mux, "mux3")
	refusedWith(t, "a token of another role", wrong.Obtain(t.Context()), "is for a host, not for a mux")
	taken := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "mux"}, trust.Mux, "mux1")
	refusedWith(t, "a name that is taken", taken.Obtain(t.Context()), "has joined already")

	_, err = client.ReportMux(t.Context(), &weirv1.ReportMuxRequest{Name: "mux2"})
	refusedWith(t, "a report for another", err, "may not call ReportMux for mux/mux2")
	_, err = client.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{})
	refusedWith(t, "a list by a mux", err, "that takes the role viewer")

	if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "mux", Name: "mux1"}); err != nil {
		t.Fatal(err)
	}
	for stream.Receive() {
	}
	refusedWith(t, "the stream of a mux that was revoked", stream.Err(), "was revoked")
	_, err = client.WhoAmI(t.Context(), &weirv1.WhoAmIRequest{})
	refusedWith(t, "a mux that was revoked", err, "was revoked")
	again := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "mux"}, trust.Mux, "mux1")
	if err := again.Obtain(t.Context()); err != nil {
		t.Errorf("join again: %v", err)
	}

	callAsStrangers(t, m, url)
	auditedRefusals(t, admin)
}

// callAsStrangers calls without a credential, and with one that was made up.
func callAsStrangers(t *testing.T, m *Manager, url string) {
	t.Helper()
	_, err := connected(t, rpc.Access{Managers: url, CA: m.identity.Authority().Certificate}).GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	refusedWith(t, "nobody", err, "show a client certificate or a bearer token")
	_, err = connected(t, rpc.Access{Managers: url, CA: m.identity.Authority().Certificate, Token: "weir_user_x." + strings.Repeat("a", 43)}).
		GetStatus(t.Context(), &weirv1.GetStatusRequest{})
	refusedWith(t, "a made-up token", err, "the bearer token is not valid")
}

// auditedRefusals waits until the refusals of the test stand in the audit log.
func auditedRefusals(t *testing.T, admin *rpc.Client) {
	t.Helper()
	eventually(t, "the refusals are audited", func() bool {
		list, err := admin.ListAudit(t.Context(), &weirv1.ListAuditRequest{Refused: true})
		if err != nil {
			return false
		}
		var all strings.Builder
		for _, e := range list.GetEntries() {
			all.WriteString(e.GetReason() + "\n")
		}
		for _, want := range []string{"used already", "not for a mux", "may not call ReportMux", "bearer token is not valid", "show a client"} {
			if !strings.Contains(all.String(), want) {
				return false
			}
		}
		return true
	})
}

func TestNodesRenew(t *testing.T) {
	_, admin, url := secure(t, Config{CertificateLife: 9 * time.Second})
	host := member(t, admin, url, &weirv1.CreateTokenRequest{Role: "agent"}, trust.Host, "host1")
	if err := host.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	client, err := host.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	first := host.Credential()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- host.Keep(ctx, client) }()
	eventually(t, "a call works after the first certificate's end", func() bool {
		_, err := client.WhoAmI(t.Context(), &weirv1.WhoAmIRequest{})
		return err == nil && time.Now().After(first.Certificate.NotAfter)
	})
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestTenantsSeeAndChangeTheirOwn(t *testing.T) {
	m, admin, url := secure(t, Config{})
	two := uint32(1)
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{
		{Name: "red", Ranges: []string{"203.0.113.0/28"}, Quotas: &weirv1.Quotas{Vips: &two}}, {Name: "blue"},
	}}); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "rita", Bindings: []*weirv1.Binding{{Tenant: "red", Role: "operator"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	rita := connected(t, rpc.Access{Managers: url, CA: m.identity.Authority().Certificate, Token: made.GetToken()})
	vip := func(name, tenant, address string) *weirv1.ApplyVIPsRequest {
		return &weirv1.ApplyVIPsRequest{Vips: []*weirv1.VIP{{
			Name: name, Tenant: tenant, Address: address, Endpoints: []*weirv1.Endpoint{{Protocol: "TCP", Port: 80}},
		}}}
	}
	if _, err := admin.ApplyVIPs(t.Context(), vip("sea", "blue", "198.51.100.1")); err != nil {
		t.Fatal(err)
	}
	if _, err := rita.ApplyVIPs(t.Context(), vip("rose", "red", "203.0.113.1")); err != nil {
		t.Fatal(err)
	}
	_, err = rita.ApplyVIPs(t.Context(), vip("wine", "red", "203.0.113.2"))
	refusedWith(t, "more VIPs than the quota", err, "vips[0].tenant: tenant red may have 1 VIPs, and would have 2")
	_, err = rita.ApplyVIPs(t.Context(), vip("rose", "red", "198.51.100.7"))
	refusedWith(t, "an address out of range", err, "vips[0].address: 198.51.100.7 is not in the ranges of tenant red")
	_, err = rita.ApplyVIPs(t.Context(), vip("sky", "blue", "198.51.100.2"))
	refusedWith(t, "another tenant", err, "vips[0].tenant")
	_, err = rita.ApplyVIPs(t.Context(), vip("sea", "red", "203.0.113.3"))
	refusedWith(t, "a name of another tenant", err, "sea is taken")
	for what, call := range map[string]func() error{
		"get":    func() error { _, err := rita.GetVIP(t.Context(), &weirv1.GetVIPRequest{Name: "sea"}); return err },
		"delete": func() error { _, err := rita.DeleteVIP(t.Context(), &weirv1.DeleteVIPRequest{Name: "sea"}); return err },
		"explain": func() error {
			_, err := rita.Explain(t.Context(), &weirv1.ExplainRequest{
				Protocol: "TCP", SourceAddress: "192.0.2.1", SourcePort: 1024, DestinationAddress: "198.51.100.1", DestinationPort: 80,
			})
			return err
		},
	} {
		if err := call(); connect.CodeOf(err) != connect.CodeNotFound && !isCode(err, connect.CodeNotFound) {
			t.Errorf("%s of another tenant's VIP: %v, want not found", what, err)
		}
	}
	list, err := rita.ListVIPs(t.Context(), &weirv1.ListVIPsRequest{})
	if err != nil || len(list.GetVips()) != 1 || list.GetVips()[0].GetName() != "rose" {
		t.Errorf("the list is %v, %v, want rose alone", list, err)
	}
	_, err = rita.CreateToken(t.Context(), &weirv1.CreateTokenRequest{Role: "mux"})
	refusedWith(t, "a token by a tenant", err, "takes the role admin")
}

func isCode(err error, code connect.Code) bool {
	refused, ok := err.(*rpc.Error) //nolint:errorlint // calls return it bare
	return ok && refused.Code == code
}
