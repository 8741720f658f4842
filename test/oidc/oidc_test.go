package oidc

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	weirv1 "github.com/weirlb/weir/api/v1"
	"github.com/weirlb/weir/internal/manager"
	"github.com/weirlb/weir/internal/manager/pki"
	"github.com/weirlb/weir/internal/rpc"
	"github.com/weirlb/weir/internal/webui/oidc"
)

// provider is one that runs as a program of its own.
type provider struct {
	t        *testing.T
	program  string
	redirect string
	address  string // host:port
	stop     func()
}

// start starts it, by keys of its own, with alice in a group.
func (p *provider) start(group string) (issuer string) {
	p.t.Helper()
	cmd := exec.Command(p.program, "--listen", p.address, "--redirect", p.redirect, "--group", group)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		p.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		p.t.Fatal(err)
	}
	p.stop = func() { stdin.Close(); cmd.Wait() } // it is over either way
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil {
		p.t.Fatalf("the provider does not start: %v", err)
	}
	issuer = strings.TrimSpace(line)
	p.address = strings.Trim(strings.TrimPrefix(issuer, "http://"), "/")
	return issuer
}

// start runs a provider and a manager whose users it signs in.
func start(t *testing.T) (p *provider, admin *rpc.Client, b *browser) {
	t.Helper()
	p, issuer, address := startProvider(t)
	access := startManager(t, address, issuer)
	admin, err := access.Client()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(admin.Close)
	roots := x509.NewCertPool()
	roots.AddCert(access.CA)
	return p, admin, newBrowser(t, roots, "https://"+address)
}

// startProvider runs a provider whose client is the manager of an address that is free.
func startProvider(t *testing.T) (p *provider, issuer, address string) {
	t.Helper()
	dir := t.TempDir()
	program := filepath.Join(dir, "provider")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-C", "../../tools/oidc", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("build the provider: %v\n%s", err, out)
	}
	// The provider is told of the manager before that is there.
	reserved, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address = reserved.Addr().String()
	reserved.Close()
	p = &provider{t: t, program: program, redirect: "https://" + address + oidc.CallbackPath, address: "127.0.0.1:0"}
	issuer = p.start("netops")
	t.Cleanup(func() { p.stop() })
	return p, issuer, address
}

// startManager runs a manager whose users the provider signs in, and returns the first user's access.
func startManager(t *testing.T, address, issuer string) rpc.Access {
	t.Helper()
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("client-secret\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	m, err := manager.New(t.Context(), manager.Config{
		DataDir: filepath.Join(dir, "data"), Listen: address, Version: "test", Log: slog.New(slog.DiscardHandler),
		OIDC: oidc.Config{
			Issuer: issuer, ClientID: "weir", SecretFile: secret, NameClaim: "preferred_username", GroupsClaim: "groups",
			Groups: []string{"netops=operator", "helpdesk=viewer"},
		},
	})
	if err != nil {
		t.Fatal(err)
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
	access, err := rpc.ReadConfig(pki.AdminFile(filepath.Join(dir, "data")))
	if err != nil {
		t.Fatal(err)
	}
	return access
}

// browser follows links and forms as a person does.
type browser struct {
	t     *testing.T
	roots *x509.CertPool
	url   string
	http  *http.Client
}

func newBrowser(t *testing.T, roots *x509.CertPool, at string) *browser {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS13}}
	t.Cleanup(transport.CloseIdleConnections)
	return &browser{t, roots, at, &http.Client{
		Transport: transport, Jar: jar, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

func (b *browser) send(method, to, kind, body, site string) (*http.Response, string) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), method, to, strings.NewReader(body))
	if err != nil {
		b.t.Fatal(err)
	}
	r.Header.Set("Content-Type", kind)
	r.Header.Set("Sec-Fetch-Site", site)
	w, err := b.http.Do(r)
	if err != nil {
		b.t.Fatal(err)
	}
	defer w.Body.Close()
	text, err := io.ReadAll(w.Body)
	if err != nil {
		b.t.Fatal(err)
	}
	return w, string(text)
}

func (b *browser) get(to, site string) (*http.Response, string) {
	b.t.Helper()
	return b.send(http.MethodGet, to, "", "", site)
}

func (b *browser) whoAmI() (*http.Response, string) {
	b.t.Helper()
	return b.send(http.MethodPost, b.url+"/weir.v1.TrustService/WhoAmI", "application/json", "{}", "same-origin")
}

func (b *browser) expect(what string, w *http.Response, text string, status int, has string) {
	b.t.Helper()
	if w.StatusCode != status || !strings.Contains(text, has) {
		b.t.Errorf("%s: got %d %s, want %d with %q", what, w.StatusCode, text, status, has)
	}
}

var field = regexp.MustCompile(`name="id" value="([^"]+)"`)

// toCallback signs in at the provider, and returns where that leads back to.
func (b *browser) toCallback(name, password string) string {
	b.t.Helper()
	w, text := b.get(b.url+"/ui/oidc/begin", "same-origin")
	b.expect("the beginning", w, text, http.StatusSeeOther, "")
	at, form := w, ""
	for at.StatusCode/100 == 3 {
		to, err := at.Location()
		if err != nil {
			b.t.Fatal(err)
		}
		at, form = b.get(to.String(), "cross-site")
	}
	id := field.FindStringSubmatch(form)
	if id == nil {
		b.t.Fatalf("the provider shows no form: %d %s", at.StatusCode, form)
	}
	action := *at.Request.URL
	action.RawQuery = ""
	filled := url.Values{"id": {id[1]}, "username": {name}, "password": {password}}
	at, form = b.send(http.MethodPost, action.String(), "application/x-www-form-urlencoded", filled.Encode(), "same-origin")
	for at.StatusCode/100 == 3 {
		to, err := at.Location()
		if err != nil {
			b.t.Fatal(err)
		}
		if strings.HasPrefix(to.String(), b.url) {
			return to.String()
		}
		at, form = b.get(to.String(), "same-origin")
	}
	b.t.Fatalf("the provider does not lead back: %d %s", at.StatusCode, form)
	return ""
}

// signIn signs alice in.
func (b *browser) signIn() (*http.Response, string) {
	b.t.Helper()
	return b.get(b.toCallback("Alice@example.org", "alice-password"), "cross-site")
}

var userName = regexp.MustCompile(`"user/(oidc-alice-[0-9a-f]{10})"`)

// A user signs in by the forms of the provider, is one of the cluster from then on, and is out everywhere once revoked.
func TestSignInByAProvider(t *testing.T) {
	p, admin, b := start(t)
	w, text := b.get(b.url+"/ui/sign-in", "same-origin")
	b.expect("the ways to sign in", w, text, http.StatusOK, `"provider":"`+p.address+`"`)
	w, text = b.get(b.url+"/ui/oidc/begin", "cross-site")
	b.expect("a link elsewhere", w, text, http.StatusForbidden, "another origin")
	w, text = b.signIn()
	b.expect("signed in", w, text, http.StatusOK, `content="0; url=/ui/"`)
	session := cookie(w, "__Host-weir")
	if session == nil || session.SameSite != http.SameSiteStrictMode || !session.HttpOnly || !session.Secure || session.MaxAge > 3600 || session.MaxAge < 3000 {
		t.Errorf("the session's cookie, by a token of an hour: %v", session)
	}
	w, text = b.whoAmI()
	b.expect("with the session", w, text, http.StatusOK, `"role":"operator"`)
	name := userName.FindStringSubmatch(text)
	if name == nil || !strings.Contains(text, `"method":"oidc"`) {
		t.Fatalf("alice is %s", text)
	}
	w, text = b.get(b.url+"/ui/sessions", "same-origin")
	b.expect("her sessions", w, text, http.StatusOK, `"current":true`)
	listed, err := admin.ListUsers(t.Context(), &weirv1.ListUsersRequest{})
	if err != nil || len(listed.GetUsers()) != 2 || listed.GetUsers()[1].GetName() != name[1] || listed.GetUsers()[1].GetMethod() != "oidc" {
		t.Errorf("the users are %v, %v", listed, err)
	}
	if _, err := admin.RotateUser(t.Context(), &weirv1.RotateUserRequest{Name: name[1]}); err == nil || !strings.Contains(err.Error(), "OpenID Connect provider") {
		t.Errorf("a credential beside the provider's: %v", err)
	}
	if _, err := admin.UpdateUser(t.Context(), &weirv1.UpdateUserRequest{Name: name[1], Bindings: []*weirv1.Binding{{Tenant: "*", Role: "admin"}}}); err == nil || !strings.Contains(err.Error(), "roles of its groups") {
		t.Errorf("roles beside the groups': %v", err)
	}
	b.revoked(admin, name[1])

	// Her groups are those of the last sign-in, at all her sessions.
	other := newBrowser(t, b.roots, b.url)
	p.stop()
	p.start("helpdesk")
	w, text = other.signIn() // by keys that the manager has not seen
	b.expect("in another group", w, text, http.StatusOK, "/ui/")
	w, text = b.whoAmI()
	b.expect("the first session", w, text, http.StatusOK, `"role":"viewer"`)
	if strings.Contains(text, "operator") {
		t.Errorf("alice keeps the role of a group that she left: %s", text)
	}
	p.stop()
	p.start("others")
	w, text = newBrowser(t, b.roots, b.url).signIn()
	b.expect("in no group", w, text, http.StatusForbidden, "in no group")
	if session := cookie(w, "__Host-weir"); session != nil {
		t.Errorf("who has no role has a session: %v", session)
	}
}

// revoked revokes alice, who is signed in, and lets her in again.
func (b *browser) revoked(admin *rpc.Client, name string) {
	b.t.Helper()
	if _, err := admin.RevokePrincipal(b.t.Context(), &weirv1.RevokePrincipalRequest{Role: "user", Name: name}); err != nil {
		b.t.Fatal(err)
	}
	w, text := b.whoAmI()
	b.expect("after she was revoked", w, text, http.StatusUnauthorized, "sign-in")
	w, text = b.signIn()
	b.expect("signs in again", w, text, http.StatusForbidden, "was revoked")
	if _, err := admin.DeleteUser(b.t.Context(), &weirv1.DeleteUserRequest{Name: name}); err != nil {
		b.t.Fatal(err)
	}
	w, text = b.signIn()
	b.expect("after the user was deleted", w, text, http.StatusOK, "/ui/")
	w, text = b.whoAmI()
	b.expect("with the new session", w, text, http.StatusOK, name)
}

func cookie(w *http.Response, name string) *http.Cookie {
	for _, c := range w.Cookies() {
		if c.Name == name && c.Value != "" {
			return c
		}
	}
	return nil
}

// What strangers do with an answer of the provider, and what comes of one that is away.
func TestStrangersAndAProviderThatIsAway(t *testing.T) {
	p, _, b := start(t)
	back := b.toCallback("Alice@example.org", "alice-password")
	at, err := url.Parse(b.url)
	if err != nil {
		t.Fatal(err)
	}
	attempt := b.http.Jar.Cookies(at)
	thief := newBrowser(t, b.roots, b.url)
	w, text := thief.get(back, "cross-site")
	b.expect("another browser", w, text, http.StatusUnauthorized, "no sign-in under way")
	thief.toCallback("bob", "bob-password")
	w, text = thief.get(back, "cross-site")
	b.expect("another browser, with a sign-in of its own", w, text, http.StatusUnauthorized, "another sign-in")
	w, text = b.get(back, "cross-site")
	b.expect("her own", w, text, http.StatusOK, "/ui/")
	w, text = b.get(back, "cross-site")
	b.expect("her own again", w, text, http.StatusUnauthorized, "no sign-in under way")
	replay := newBrowser(t, b.roots, b.url)
	for _, c := range attempt {
		c.Secure, c.Path = true, "/"
	}
	replay.http.Jar.SetCookies(at, attempt)
	w, text = replay.get(back, "cross-site")
	b.expect("code and cookie again", w, text, http.StatusUnauthorized, "refuses the code")
	w, text = newBrowser(t, b.roots, b.url).get(newBrowser(t, b.roots, b.url).toCallback("bob", "bob-password"), "cross-site")
	b.expect("an answer that was sent to somebody", w, text, http.StatusUnauthorized, "no sign-in under way")
	bob := newBrowser(t, b.roots, b.url)
	w, text = bob.get(bob.toCallback("bob", "bob-password"), "cross-site")
	b.expect("who is in no group", w, text, http.StatusForbidden, "in no group")
	w, text = bob.get(b.url+oidc.CallbackPath+"?state=x&error=%3Cscript%3E", "cross-site")
	b.expect("markup as an error", w, text, http.StatusUnauthorized, "no sign-in")

	late := newBrowser(t, b.roots, b.url)
	back = late.toCallback("Alice@example.org", "alice-password")
	p.stop()
	w, text = late.get(back, "cross-site")
	b.expect("the provider is away", w, text, http.StatusServiceUnavailable, "sign in by a token, or try again")
	if n, err := strconv.Atoi(w.Header.Get("Content-Length")); err == nil && n > 4096 {
		t.Errorf("the answer has %d bytes", n)
	}
	p.start("netops")
}
