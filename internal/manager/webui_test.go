package manager

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/cookiejar"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/webui"
)

// browser calls a manager as a browser does that trusts its CA.
type browser struct {
	t      *testing.T
	client *http.Client
	url    string
	dialed *atomic.Int32 // connections
}

func newBrowser(t *testing.T, m *Manager, url string) *browser {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AddCert(m.identity.Authority().Certificate)
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	dialed := &atomic.Int32{}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: true} //nolint:gosec // the default is 1.2
	transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		dialed.Add(1)
		return (&net.Dialer{}).DialContext(ctx, network, address)
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t, &http.Client{Transport: transport, Jar: jar}, url, dialed}
}

// send makes a request as a script of the page does, unless change says otherwise.
func (b *browser) send(method, path, body string, change ...func(*http.Request)) (status int, answer string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	r.Header.Set("Content-Type", "application/json")
	for _, do := range change {
		do(r)
	}
	w, err := b.client.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Body.Close()
	if !strings.HasPrefix(path, "/ui/assets/") && (w.Header.Get("Cache-Control") == "" || w.Header.Get("X-Content-Type-Options") != "nosniff") {
		b.t.Errorf("%s: a browser may keep the answer or guess what it is: %v", path, w.Header)
	}
	text, err := io.ReadAll(w.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return w.StatusCode, string(text)
}

func (b *browser) whoAmI(change ...func(*http.Request)) (int, string) {
	b.t.Helper()
	return b.send(http.MethodPost, "/weir.v1.TrustService/WhoAmI", "{}", change...)
}

// expect holds that a request was answered so.
func (b *browser) expect(what string, status int, answer string, want int, has string) {
	b.t.Helper()
	if status != want || !strings.Contains(answer, has) {
		b.t.Errorf("%s: got %d %s, want %d with %q", what, status, answer, want, has)
	}
}

// A user signs in by a token, reads what the API lets it read, and is signed out everywhere when the token is replaced.
func TestWebPageSessions(t *testing.T) {
	m, admin, url := secure(t, Config{})
	if _, err := admin.ApplyTenants(t.Context(), &weirv1.ApplyTenantsRequest{Tenants: []*weirv1.Tenant{{Name: "red"}}}); err != nil {
		t.Fatal(err)
	}
	made, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "vic", Bindings: []*weirv1.Binding{{Tenant: "red", Role: "viewer"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, m, url)
	got, text := b.send(http.MethodGet, "/ui/", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "cross-site") })
	b.expect("the page, from a link elsewhere", got, text, http.StatusOK, "<title>Weir</title>")
	got, text = b.whoAmI()
	b.expect("nobody", got, text, http.StatusUnauthorized, "unauthenticated")
	got, text = b.send(http.MethodPost, "/ui/session", `{"token": "`+made.GetToken()+`x"}`)
	b.expect("a wrong token", got, text, http.StatusUnauthorized, "is no user's token")
	auditedWith(t, admin, "nobody /ui/session  unauthenticated")
	signIn := func(b *browser) {
		t.Helper()
		got, text := b.send(http.MethodPost, "/ui/session", `{"token": "`+made.GetToken()+`"}`)
		b.expect("signed in", got, text, http.StatusNoContent, "")
	}
	signIn(b)
	got, text = b.whoAmI()
	b.expect("with a session", got, text, http.StatusOK, `"user/vic"`)
	got, text = b.send(http.MethodPost, "/weir.v1.TrustService/ListUsers", "{}")
	b.expect("what takes another role", got, text, http.StatusForbidden, "that takes the role admin")
	b.strangers()

	other := newBrowser(t, m, url)
	signIn(other)
	got, text = other.send(http.MethodGet, "/ui/sessions", "")
	other.expect("the list", got, text, http.StatusOK, `"current":true`)
	if strings.Count(text, `"id"`) != 2 {
		t.Errorf("the user's sessions: %s", text)
	}
	got, text = other.send(http.MethodDelete, "/ui/session", "")
	other.expect("signed out", got, text, http.StatusNoContent, "")
	got, text = other.whoAmI()
	other.expect("after it", got, text, http.StatusUnauthorized, "unauthenticated")

	if _, err := admin.RotateUser(t.Context(), &weirv1.RotateUserRequest{Name: "vic"}); err != nil {
		t.Fatal(err)
	}
	got, text = b.whoAmI()
	b.expect("after the token was replaced", got, text, http.StatusUnauthorized, "was revoked")
}

// A browser loads the page and signs in by one connection. Who doesn't sign in keeps none for long.
func TestWebPageConnections(t *testing.T) {
	m, admin, url := secure(t, Config{}, func(m *Manager) { m.api.UnauthenticatedTime = time.Hour })
	made, err := admin.CreateUser(t.Context(), &weirv1.CreateUserRequest{User: &weirv1.User{
		Name: "vic", Bindings: []*weirv1.Binding{{Tenant: "*", Role: "viewer"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, m, url)
	got, text := b.send(http.MethodGet, "/ui/", "")
	b.expect("the page", got, text, http.StatusOK, "<title>Weir</title>")
	got, text = b.whoAmI()
	b.expect("nobody", got, text, http.StatusUnauthorized, "unauthenticated")
	got, text = b.send(http.MethodPost, "/ui/session", `{"token": "`+made.GetToken()+`"}`)
	b.expect("signed in", got, text, http.StatusNoContent, "")
	got, text = b.whoAmI()
	b.expect("with a session", got, text, http.StatusOK, `"user/vic"`)
	if n := b.dialed.Load(); n != 1 {
		t.Errorf("that took %d connections", n)
	}

	m, _, url = secure(t, Config{}, func(m *Manager) { m.api.UnauthenticatedTime = 2 * time.Second })
	stranger := newBrowser(t, m, url)
	eventually(t, "a stranger that goes on asking has to open another connection", func() bool {
		stranger.send(http.MethodGet, "/healthz", "")
		return stranger.dialed.Load() > 1
	})
}

// A browser that has a user's certificate is signed in by it. It shows the certificate to pages elsewhere too, which get
// nothing by it.
func TestWebPageByCertificate(t *testing.T) {
	m, _, url := secure(t, Config{})
	access, err := rpc.ReadConfig(pki.AdminFile(m.cfg.DataDir))
	if err != nil {
		t.Fatal(err)
	}
	b := newBrowser(t, m, url)
	b.client.Transport.(*http.Transport).TLSClientConfig.Certificates = []tls.Certificate{*access.Current().TLS()}
	got, text := b.whoAmI()
	b.expect("with a certificate", got, text, http.StatusOK, `"user/admin"`)
	for _, path := range []string{"/v1/users", "/weir.v1.TrustService/CreateUser"} {
		got, text = b.send(http.MethodPost, path, `{"user": {"name": "eve"}}`, func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", "cross-site")
			r.Header.Set("Content-Type", "text/plain") // asks for no leave
		})
		b.expect("a form elsewhere, "+path, got, text, http.StatusForbidden, "a page of another origin")
	}
}

// strangers are other pages in the browser of a user with a session, and cookies that nobody gave out.
func (b *browser) strangers() {
	b.t.Helper()
	from := func(site, origin string) func(*http.Request) {
		return func(r *http.Request) {
			r.Header.Set("Sec-Fetch-Site", site)
			r.Header.Set("Origin", origin)
		}
	}
	got, text := b.whoAmI(from("cross-site", "https://evil.example"))
	b.expect("a page elsewhere", got, text, http.StatusForbidden, "a page of another origin")
	got, text = b.send(http.MethodDelete, "/ui/session", "", from("same-site", "https://sub.example"))
	b.expect("a sibling that signs the user out", got, text, http.StatusForbidden, "a page of another origin")
	got, text = b.send(http.MethodPost, "/v1/vips", "{}", from("cross-site", "https://evil.example"))
	b.expect("a form elsewhere", got, text, http.StatusForbidden, "a page of another origin")
	got, text = b.send(http.MethodGet, "/v1/whoami", "", func(r *http.Request) { r.Header.Set("Sec-Fetch-Site", "none") })
	b.expect("an address that was typed", got, text, http.StatusUnauthorized, "show a client certificate")
	forged := &browser{b.t, &http.Client{Transport: b.client.Transport}, b.url, b.dialed}
	got, text = forged.whoAmI(func(r *http.Request) {
		r.AddCookie(&http.Cookie{Name: webui.CookieName, Value: strings.Repeat("A", 43)})
	})
	b.expect("a forged cookie", got, text, http.StatusUnauthorized, "unauthenticated")
	got, text = forged.whoAmI(func(r *http.Request) { r.Header.Set("Weir-On-Behalf-Of", "x") })
	b.expect("a header of managers", got, text, http.StatusUnauthorized, "on behalf of others")
}
