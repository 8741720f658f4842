package manager

import (
	"bytes"
	"context"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/api/v1/weirv1connect"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	etcdtest "github.com/weirlb/weir/internal/testkit/etcd"
	"github.com/weirlb/weir/internal/trust"
)

// holder has a credential, with which it holds streams open.
type holder struct {
	role, name string
	credential *trust.Credential
	token      string
}

var viewsAll = []*weirv1.Binding{{Tenant: trust.AllTenants, Role: "viewer"}}

// newUser is a user with a bearer token or a certificate.
func (c *trustedCluster) newUser(t *testing.T, name string, certificate bool) holder {
	t.Helper()
	request := &weirv1.CreateUserRequest{User: &weirv1.User{Name: name, Bindings: viewsAll}}
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	if certificate {
		if request.Request, err = key.Request(nil, nil); err != nil {
			t.Fatal(err)
		}
	}
	made, err := c.admin.CreateUser(t.Context(), request)
	if err != nil {
		t.Fatal(err)
	}
	h := holder{role: "user", name: name, token: made.GetToken()}
	if certificate {
		h.credential = signed(t, key, made.GetCertificate(), c.managers[0])
	}
	return h
}

func signed(t *testing.T, key trust.Key, certificate []byte, by *Manager) *trust.Credential {
	t.Helper()
	parsed, err := x509.ParseCertificate(certificate)
	if err != nil {
		t.Fatal(err)
	}
	credential, err := key.Credential(parsed, by.identity.Authority().Certificate)
	if err != nil {
		t.Fatal(err)
	}
	return credential
}

// newNode is a node that joined by a token.
func (c *trustedCluster) newNode(t *testing.T, kind trust.Kind, name string) holder {
	t.Helper()
	node := member(t, c.admin, c.at(0).Managers, &weirv1.CreateTokenRequest{Role: string(kind)}, kind, name)
	if err := node.Obtain(t.Context()); err != nil {
		t.Fatal(err)
	}
	return holder{role: string(kind), name: name, credential: node.Credential()}
}

// stream is the procedure that the holder keeps open, and its request.
func (h holder) stream() (string, proto.Message) {
	switch h.role {
	case "mux":
		return weirv1connect.SyncServiceSyncMuxProcedure, &weirv1.SyncMuxRequest{Name: h.name, Addresses: []string{"10.0.0.1"}}
	case "host":
		return weirv1connect.SyncServiceSyncHostProcedure, &weirv1.SyncHostRequest{Name: h.name, Addresses: []string{"10.0.0.2"}}
	}
	return weirv1connect.WeirServiceWatchVIPsProcedure, &weirv1.WatchVIPsRequest{}
}

// Whatever ends a credential ends all that is done with it, at all managers: calls, open streams, and watches of REST.
func TestRevocationEndsEverything(t *testing.T) {
	t.Parallel()
	c := startTrusted(t, 2)
	if _, err := c.admin.CreateVIP(t.Context(), &weirv1.CreateVIPRequest{Vip: bare("sea", "198.51.100.1")}); err != nil {
		t.Fatal(err)
	}
	revoke := func(h holder) error {
		return failure(c.admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: h.role, Name: h.name}))
	}
	rotate := func(h holder) error {
		return failure(c.admin.RotateUser(t.Context(), &weirv1.RotateUserRequest{Name: h.name}))
	}
	remove := func(h holder) error {
		return failure(c.admin.DeleteUser(t.Context(), &weirv1.DeleteUserRequest{Name: h.name}))
	}
	replace := func(h holder) error {
		if err := remove(h); err != nil {
			return err
		}
		return failure(c.admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{Name: h.name, Bindings: viewsAll}}))
	}
	for what, end := range map[string]func(holder) error{"revoke": revoke, "rotate": rotate, "delete": remove, "delete-and-create": replace} {
		t.Run(what, func(t *testing.T) {
			c.endsEverything(t, c.newUser(t, what+"-token", false), end)
			c.endsEverything(t, c.newUser(t, what+"-certificate", true), end)
		})
	}
	for _, kind := range []trust.Kind{trust.Mux, trust.Host, trust.Manager} {
		t.Run("revoke-"+string(kind), func(t *testing.T) { c.endsEverything(t, c.newNode(t, kind, "old-"+string(kind)), revoke) })
	}
}

// endsEverything holds that nothing of h goes on at manager 1 after the end that manager 0 is told.
func (c *trustedCluster) endsEverything(t *testing.T, h holder, end func(holder) error) {
	t.Helper()
	m := c.managers[1]
	url, caller := "https://"+m.Address().String(), newWireCaller(t, m, h.credential, h.token)
	procedure, request := h.stream()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()

	if got := firstOf(caller.call(ctx, t, url, weirv1connect.TrustServiceWhoAmIProcedure, &weirv1.WhoAmIRequest{})); !got.message {
		t.Fatalf("a call of %s: %+v", h.name, got)
	}
	stream := caller.call(ctx, t, url, procedure, request)
	if got := firstOf(stream); !got.message {
		t.Fatalf("a stream of %s: %+v", h.name, got)
	}
	watch := caller.do(ctx, t, http.MethodGet, url+"/v1/vips:watch", "application/json", nil)
	wanted := http.StatusOK
	if h.role == "mux" || h.role == "host" {
		wanted = http.StatusForbidden
	}
	if watch.StatusCode != wanted {
		t.Fatalf("a watch of %s: %s", h.name, watch.Status)
	}

	if err := end(h); err != nil {
		t.Fatal(err)
	}
	streamEnded, watchEnded := make(chan grpcAnswer, 1), make(chan string, 1)
	go func() { streamEnded <- endOf(stream) }()
	go func() {
		text, _ := io.ReadAll(watch.Body) // how it ends stands in what came
		watchEnded <- string(text)
	}()
	for open := 2; open > 0; open-- {
		select {
		case got := <-streamEnded:
			if got.code != connect.CodeUnauthenticated {
				t.Errorf("the stream of %s ends with %+v", h.name, got)
			}
		case text := <-watchEnded:
			if wanted == http.StatusOK && !strings.Contains(text, `"code":16`) {
				t.Errorf("the watch of %s ends with %s", h.name, text)
			}
		case <-time.After(15 * time.Second):
			t.Fatalf("the stream or the watch of %s goes on", h.name)
		}
	}
	for i := range c.managers {
		at := c.at(i).Managers
		if got := firstOf(caller.call(ctx, t, at, weirv1connect.TrustServiceWhoAmIProcedure, &weirv1.WhoAmIRequest{})); got.code != connect.CodeUnauthenticated {
			t.Errorf("a call of %s at manager %d afterwards: %+v", h.name, i, got)
		}
	}
}

// A join token that was deleted, or that a node had which was revoked, lets nobody join, at any manager. A node that
// sends its request again, with the key that it had, gets no certificate either.
func TestJoinTokensEnd(t *testing.T) {
	t.Parallel()
	c := startTrusted(t, 2)
	join := func(token *weirv1.CreateTokenResponse, name string, request []byte) error {
		client := connected(t, c.at(1))
		return failure(client.Join(t.Context(), &weirv1.JoinRequest{Token: token.GetText(), Role: "mux", Name: name, Request: request}))
	}
	token := func(r *weirv1.CreateTokenRequest) *weirv1.CreateTokenResponse {
		r.Role = "mux"
		made, err := c.admin.CreateToken(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return made
	}
	request := another(t)
	deleted := token(&weirv1.CreateTokenRequest{})
	if _, err := c.admin.DeleteToken(t.Context(), &weirv1.DeleteTokenRequest{Id: deleted.GetToken().GetId()}); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "a token that was deleted", join(deleted, "mux1", request), "the join token is not valid")

	many, own := token(&weirv1.CreateTokenRequest{Uses: 9}), token(&weirv1.CreateTokenRequest{Name: "mux1"})
	if err := join(many, "mux1", request); err != nil {
		t.Fatal(err)
	}
	if err := join(many, "mux1", request); err != nil {
		t.Errorf("an answer that was lost: %v", err)
	}
	if err := join(many, "mux3", request); err != nil {
		t.Fatal(err)
	}
	if err := join(token(&weirv1.CreateTokenRequest{Name: "mux3"}), "mux3", another(t)); err != nil {
		t.Errorf("in the place of another: %v", err)
	}
	refusedWith(t, "the one before, with its token and its key", join(many, "mux3", request), "another has joined as mux/mux3 since")
	if _, err := c.admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "mux", Name: "mux1"}); err != nil {
		t.Fatal(err)
	}
	refusedWith(t, "the token that it joined with, and its key", join(many, "mux1", request), "the join token is not valid")
	refusedWith(t, "the token that it joined with, by another name", join(many, "mux2", request), "the join token is not valid")
	refusedWith(t, "a token for its name", join(own, "mux1", request), "the join token is not valid")
	if err := join(token(&weirv1.CreateTokenRequest{Name: "mux1"}), "mux1", request); err != nil {
		t.Errorf("a token that was made afterwards: %v", err)
	}
}

// another is a request by a new key.
func another(t *testing.T) []byte {
	t.Helper()
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	return request
}

// The last admin who can prove who they are stays: others may have accounts, and nothing to show.
func TestTheLastAdminStays(t *testing.T) {
	_, admin, _ := secure(t, Config{})
	boss := []*weirv1.Binding{{Tenant: trust.AllTenants, Role: "admin"}}
	for _, name := range []string{"bob", "eve"} {
		if _, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{Name: name, Bindings: boss}}); err != nil {
			t.Fatal(err)
		}
		if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: name}); err != nil {
			t.Fatal(err)
		}
	}
	for what, err := range map[string]error{
		"revoke": failure(admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "admin"})),
		"delete": failure(admin.DeleteUser(t.Context(), &weirv1.DeleteUserRequest{Name: "admin"})),
		"update": failure(admin.UpdateUser(t.Context(), &weirv1.UpdateUserRequest{Name: "admin", Bindings: viewsAll})),
	} {
		refusedWith(t, what, err, "make another first")
	}
	if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "bob"}); err != nil {
		t.Errorf("one who was revoked, again: %v", err)
	}
	if _, err := admin.RotateUser(t.Context(), &weirv1.RotateUserRequest{Name: "eve"}); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "admin"}); err != nil {
		t.Errorf("with another admin who has a token: %v", err)
	}
}

// A user's certificate ends: who has a copy of its key does not renew it.
func TestUsersCertificatesEnd(t *testing.T) {
	c := startTrusted(t, 1)
	h := c.newUser(t, "carl", true)
	key, err := trust.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	request, err := key.Request(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	carl := c.at(0)
	carl.Current = func() *trust.Credential { return h.credential }
	_, err = connected(t, carl).RenewCertificate(t.Context(), &weirv1.RenewCertificateRequest{Request: request})
	refusedWith(t, "a user who renews", err, "weir user rotate")
}

// A node that was revoked is deleted at once, though the store still has its stream, and does not register again.
func TestARevokedNodeIsDeleted(t *testing.T) {
	c := startTrusted(t, 1)
	h, m := c.newNode(t, trust.Host, "evil"), c.managers[0]
	procedure, request := h.stream()
	caller := newWireCaller(t, m, h.credential, "")
	if got := firstOf(caller.call(t.Context(), t, c.at(0).Managers, procedure, request)); !got.message {
		t.Fatalf("the stream: %+v", got)
	}
	defer m.store.Presence.Open(h.name)() // as if a manager had not heard of the revocation
	eventually(t, "the stream is in the store", func() bool { return m.store.State().Streams.At(h.name) })
	remove := func() error {
		return failure(c.admin.DeleteNode(t.Context(), &weirv1.DeleteNodeRequest{Name: h.name}))
	}
	refusedWith(t, "a node that is connected", remove(), "stop its program first")
	if _, err := c.admin.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: h.role, Name: h.name}); err != nil {
		t.Fatal(err)
	}
	node := m.store.State().Nodes.At(h.name)
	if err := remove(); err != nil {
		t.Error(err)
	}
	_, err := m.nodes.Register(t.Context(), node)
	refusedWith(t, "its registration, by a manager that has not heard", err, "host/evil was revoked")
}

// adminOf is a client of m with the configuration in its data directory.
func adminOf(t *testing.T, m *Manager) *rpc.Client {
	t.Helper()
	access, err := rpc.ReadConfig(pki.AdminFile(m.cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	access.Managers = "https://" + m.Address().String()
	return connected(t, access)
}

// A manager's data directory is a way back in when no admin can prove who they are, with the embedded etcd and an external one.
func TestAdminReset(t *testing.T) {
	t.Parallel()
	for name, endpoints := range map[string][]string{"embedded": nil, "external": {etcdtest.Start(t)}} {
		t.Run(name, func(t *testing.T) {
			cfg := Config{Name: "m1", Listen: "127.0.0.1:0", EtcdEndpoints: endpoints, DataDir: t.TempDir(), Version: "test", Log: logger(t)}
			refusedWith(t, "a directory of no manager", pki.RequestAdminReset(cfg.DataDir), "--data-dir")
			_, stop := startUntil(t, cfg)
			before, err := os.ReadFile(pki.AdminFile(cfg.DataDir))
			if err != nil {
				t.Fatal(err)
			}
			stop()
			if err := pki.RequestAdminReset(cfg.DataDir); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(pki.AdminFile(cfg.DataDir)); err != nil {
				t.Fatal(err)
			}
			m, stop := startUntil(t, cfg)
			reset := adminOf(t, m)
			if _, err := reset.WhoAmI(t.Context(), &weirv1.WhoAmIRequest{}); err != nil {
				t.Fatal(err)
			}
			if _, err := reset.ListUsers(t.Context(), &weirv1.ListUsersRequest{}); err != nil {
				t.Error(err)
			}
			made, err := reset.ListAudit(t.Context(), &weirv1.ListAuditRequest{})
			if err != nil || !strings.Contains(made.String(), "admin-reset") {
				t.Errorf("the audit log: %v, %v", made, err)
			}
			refusedWith(t, "the last admin, who was reset",
				failure(reset.RevokePrincipal(t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: "admin"})), "make another first")
			stop()

			after, err := os.ReadFile(pki.AdminFile(cfg.DataDir))
			if err != nil {
				t.Fatal(err)
			}
			m, _ = startUntil(t, cfg)
			if now, err := os.ReadFile(pki.AdminFile(cfg.DataDir)); err != nil || !bytes.Equal(now, after) {
				t.Errorf("the admin is reset again: %v", err)
			}
			if err := os.WriteFile(pki.AdminFile(cfg.DataDir), before, 0o600); err != nil {
				t.Fatal(err)
			}
			_, err = adminOf(t, m).WhoAmI(t.Context(), &weirv1.WhoAmIRequest{})
			refusedWith(t, "what the admin had before", err, "was revoked")
		})
	}
}
