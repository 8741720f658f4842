package oidc

import (
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/coreos/go-oidc/v3/oidc/oidctest"

	"github.com/weirlb/weir/internal/trust"
)

// liar is a provider that signs what it is told to. The real one is in test/oidc.
type liar struct {
	*httptest.Server

	t       *testing.T
	meta    *oidctest.Server
	key     *rsa.PrivateKey
	keyID   string
	claims  map[string]any // of the next token
	answer  func(w http.ResponseWriter)
	asked   atomic.Int32 // for tokens
	request url.Values   // for the last one
}

func newKey(t *testing.T) *rsa.PrivateKey {
	t.Helper()
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func newLiar(t *testing.T) *liar {
	t.Helper()
	l := &liar{t: t, meta: &oidctest.Server{}}
	l.rotate("first")
	l.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/token" {
			l.meta.ServeHTTP(w, r)
			return
		}
		l.asked.Add(1)
		r.ParseForm() // it is looked at
		l.request = r.PostForm
		w.Header().Set("Content-Type", "application/json")
		if l.answer != nil {
			l.answer(w)
			return
		}
		text, _ := json.Marshal(l.claims)
		json.NewEncoder(w).Encode(map[string]string{ // the client says
			"access_token": "a", "token_type": "Bearer", "id_token": oidctest.SignIDToken(l.key, l.keyID, "RS256", string(text)),
		})
	}))
	t.Cleanup(l.Close)
	l.meta.SetIssuer(l.URL)
	return l
}

// rotate has the provider sign with another key.
func (l *liar) rotate(id string) {
	l.key, l.keyID = newKey(l.t), id
	l.meta.PublicKeys = []oidctest.PublicKey{{PublicKey: l.key.Public(), KeyID: id, Algorithm: "RS256"}}
}

func (l *liar) provider(change ...func(*Config)) *Provider {
	l.t.Helper()
	cfg := Config{
		Issuer: l.URL, ClientID: "weir", NameClaim: "preferred_username", GroupsClaim: "groups", RedirectURL: "https://m1.example:7400" + CallbackPath,
		Groups: []string{"netops=operator", "cn=shop,ou=x=viewer@shop", "netops=viewer@shop"},
	}
	for _, do := range change {
		do(&cfg)
	}
	p, err := New(cfg, "", time.Now)
	if err != nil {
		l.t.Fatal(err)
	}
	return p
}

// begin begins a sign-in, and has the next token be of it.
func (l *liar) begin(p *Provider) (answer url.Values, cookie string) {
	l.t.Helper()
	to, cookie, err := p.Begin(l.t.Context())
	if err != nil {
		l.t.Fatal(err)
	}
	u, err := url.Parse(to)
	if err != nil {
		l.t.Fatal(err)
	}
	asks := u.Query()
	for name, want := range map[string]string{"response_type": "code", "code_challenge_method": "S256", "client_id": "weir", "scope": "openid"} {
		if asks.Get(name) != want {
			l.t.Errorf("the provider is asked by %s", to)
		}
	}
	if len(asks.Get("state")) < 26 || len(asks.Get("nonce")) < 26 || len(asks.Get("code_challenge")) != 43 {
		l.t.Errorf("the provider is asked by %s", to)
	}
	now := time.Now().Unix()
	l.claims = map[string]any{
		"iss": l.URL, "sub": "1", "aud": "weir", "nonce": asks.Get("nonce"), "iat": now, "exp": now + 600,
		"preferred_username": "Alice.B@example.org", "groups": []string{"everybody", "cn=shop,ou=x", "netops"},
	}
	return url.Values{"state": {asks.Get("state")}, "code": {"c"}}, cookie
}

// A person is named by the subject, and may do what its groups may.
func TestPersons(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	answer, cookie := l.begin(p)
	who, err := p.Finish(t.Context(), "192.0.2.1", answer, cookie)
	if err != nil {
		t.Fatal(err)
	}
	want := []trust.Binding{{Tenant: "*", Role: trust.Operator}, {Tenant: "shop", Role: trust.Viewer}}
	if !strings.HasPrefix(who.Name, "oidc-alice-b-") || len(who.Name) != len("oidc-alice-b-")+hashDigits || !reflect.DeepEqual(who.Bindings, want) {
		t.Errorf("signed in %+v", who)
	}
	if l.request.Get("code_verifier") == "" || l.request.Get("redirect_uri") != p.cfg.RedirectURL {
		t.Errorf("the code was given by %v", l.request)
	}
	for what, c := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"another person of that name":     {map[string]any{"sub": "2"}, "oidc-alice-b-"},
		"a name that is none":             {map[string]any{"preferred_username": 7}, "oidc-user-"},
		"markup as a name":                {map[string]any{"preferred_username": "<b>é</b>"}, "oidc-b----b-"},
		"a name that is long":             {map[string]any{"preferred_username": strings.Repeat("x", 5000)}, "oidc-" + strings.Repeat("x", maxReadable) + "-"},
		"a group that is no list":         {map[string]any{"groups": "netops"}, "oidc-alice-b-"},
		"several audiences, and which":    {map[string]any{"aud": []string{"weir", "x"}, "azp": "weir"}, "oidc-alice-b-"},
		"a key that is newer than a read": {map[string]any{}, "oidc-alice-b-"},
	} {
		if strings.HasPrefix(what, "a key") {
			l.rotate("second")
		}
		answer, cookie := l.begin(p)
		maps.Copy(l.claims, c.claims)
		other, err := p.Finish(t.Context(), "192.0.2.1", answer, cookie)
		if err != nil || !strings.HasPrefix(other.Name, c.want) || len(other.Name) > 63 {
			t.Errorf("%s: %+v, %v", what, other, err)
		}
		if l.claims["sub"] == "2" && (other.Name == who.Name || other.Subject == who.Subject) {
			t.Errorf("two persons are user %s", who.Name)
		}
	}
}

// Who is in no group that has a role may do nothing: the manager, which knows the user, refuses it.
func TestPersonsWithoutARole(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	for what, groups := range map[string]any{
		"no group": []string{}, "a group without a role": []string{"everybody", "netops2"}, "groups that are no texts": map[string]string{"netops": "netops"},
	} {
		answer, cookie := l.begin(p)
		l.claims["groups"] = groups
		if who, err := p.Finish(t.Context(), "192.0.2.1", answer, cookie); err != nil || who.Subject == "" || len(who.Bindings) != 0 {
			t.Errorf("%s: %+v, %v", what, who, err)
		}
	}
}

// What the provider did not sign for this client, this sign-in and now signs nobody in.
func TestForgedTokensAreRefused(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	now := time.Now().Unix()
	for what, c := range map[string]struct {
		claims map[string]any
		want   string
	}{
		"another issuer":                     {map[string]any{"iss": "https://evil.example"}, "refused"},
		"another client":                     {map[string]any{"aud": "other"}, "refused"},
		"two clients, and not which":         {map[string]any{"aud": []string{"weir", "other"}}, "another client"},
		"made for another of its audiences":  {map[string]any{"aud": []string{"weir", "other"}, "azp": "other"}, "another client"},
		"another sign-in":                    {map[string]any{"nonce": "x"}, "another sign-in"},
		"no sign-in":                         {map[string]any{"nonce": ""}, "another sign-in"},
		"one that has ended":                 {map[string]any{"exp": now - 1, "iat": now - 60}, "expired"},
		"one of long ago that has not ended": {map[string]any{"iat": now - 86400}, "long ago"},
	} {
		answer, cookie := l.begin(p)
		maps.Copy(l.claims, c.claims)
		if who, err := p.Finish(t.Context(), what, answer, cookie); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("a token of %s: %+v, %v", what, who, err)
		}
	}
	for what, sign := range map[string]func(claims string) string{
		"another key": func(claims string) string { return oidctest.SignIDToken(newKey(t), "first", "RS256", claims) },
		"no key":      func(claims string) string { return "eyJhbGciOiJub25lIn0." + encode(claims) + "." },
		"the secret of the client": func(claims string) string {
			return oidctest.SignIDToken([]byte("0123456789abcdef0123456789abcdef"), "first", "HS256", claims)
		},
		"nothing": func(string) string { return "" },
	} {
		answer, cookie := l.begin(p)
		text, _ := json.Marshal(l.claims)
		l.answer = func(w http.ResponseWriter) {
			json.NewEncoder(w).Encode(map[string]string{"access_token": "a", "token_type": "Bearer", "id_token": sign(string(text))}) // the client says
		}
		if who, err := p.Finish(t.Context(), what, answer, cookie); connect.CodeOf(err) != connect.CodeUnauthenticated {
			t.Errorf("a token signed by %s: %+v, %v", what, who, err)
		}
	}
}

func encode(claims string) string { return base64.RawURLEncoding.EncodeToString([]byte(claims)) }

// An answer counts for the browser that began, for the state that it began with, and for a while.
func TestAnswersAreOfTheirSignIn(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	answer, cookie := l.begin(p)
	_, others := l.begin(p)
	clock := time.Now()
	p.now = func() time.Time { return clock }
	change := func(name, value string) url.Values {
		changed := maps.Clone(answer)
		changed.Set(name, value)
		return changed
	}
	restarted := l.provider()
	for what, c := range map[string]struct {
		by     *Provider
		answer url.Values
		cookie string
		want   string
	}{
		"no cookie":                {p, answer, "", "no sign-in under way"},
		"a cookie that is no text": {p, answer, "%", "no sign-in under way"},
		"a forged cookie":          {p, answer, cookie[:len(cookie)-4] + "AAAA", "does not know"},
		"a cookie that is long":    {p, answer, strings.Repeat("A", 3000), "no sign-in under way"},
		"another browser's cookie": {p, answer, others, "another sign-in"},
		"another manager's cookie": {restarted, answer, cookie, "does not know"},
		"another state":            {p, change("state", "x"), cookie, "another sign-in"},
		"no state":                 {p, url.Values{"code": {"c"}}, cookie, "another sign-in"},
		"no code":                  {p, change("code", ""), cookie, "no code"},
		"another provider's":       {p, change("iss", "https://evil.example"), cookie, "another provider"},
		"a refusal":                {p, change("error", "access_denied"), cookie, "access_denied"},
	} {
		if who, err := c.by.Finish(t.Context(), "192.0.2.1", c.answer, c.cookie); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %+v, %v", what, who, err)
		}
	}
	clock = clock.Add(MaxAttempt + time.Second)
	if who, err := p.Finish(t.Context(), "192.0.2.1", answer, cookie); err == nil || !strings.Contains(err.Error(), "took too long") {
		t.Errorf("an old sign-in: %+v, %v", who, err)
	}
	if n := l.asked.Load(); n != 0 {
		t.Errorf("the provider was asked %d times for tokens", n)
	}
}

// A provider that is away, slow to end, or names places without TLS is said to be so.
func TestProvidersThatDoNotAnswerWell(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	answer, cookie := l.begin(p)
	for what, reply := range map[string]func(http.ResponseWriter){
		"refuses the code": func(w http.ResponseWriter) {
			w.WriteHeader(http.StatusBadRequest)
			w.Write([]byte(`{"error": "invalid_grant"}`)) // the client says
		},
		"fails": func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) },
		"leads further": func(w http.ResponseWriter) {
			l.answer = nil // there it would answer well
			w.Header().Set("Location", "/token")
			w.WriteHeader(http.StatusTemporaryRedirect)
		},
	} {
		l.answer = reply
		_, err := p.Finish(t.Context(), "192.0.2.1", answer, cookie)
		want := connect.CodeUnavailable
		if what == "refuses the code" {
			want = connect.CodeUnauthenticated
		}
		if connect.CodeOf(err) != want {
			t.Errorf("a provider that %s: %v", what, err)
		}
	}
	padded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := "http://" + r.Host
		fmt.Fprintf(w, `%s{"issuer": %q, "authorization_endpoint": %[2]q, "token_endpoint": %[2]q, "jwks_uri": %[2]q}`, strings.Repeat(" ", maxAnswer), at)
	}))
	defer padded.Close()
	if _, _, err := l.provider(func(c *Config) { c.Issuer = padded.URL }).Begin(t.Context()); connect.CodeOf(err) != connect.CodeUnavailable {
		t.Errorf("a provider whose answers are too long: %v", err)
	}
	gone := l.provider()
	l.Close()
	if _, _, err := gone.Begin(t.Context()); connect.CodeOf(err) != connect.CodeUnavailable || !strings.Contains(err.Error(), "sign in by a token") {
		t.Errorf("a provider that is away: %v", err)
	}
	plain := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"issuer": "http://%s", "authorization_endpoint": "http://login.example/", "token_endpoint": "http://x/", "jwks_uri": "http://x/"}`, r.Host)
	}))
	defer plain.Close()
	if _, _, err := l.provider(func(c *Config) { c.Issuer = plain.URL }).Begin(t.Context()); err == nil || !strings.Contains(err.Error(), "not https") {
		t.Errorf("a provider without TLS: %v", err)
	}
}

// Strangers that bring codes make a manager ask the provider so often, and no more, and each of them less often.
func TestStrangersAskTheProviderInMeasure(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	answer, cookie := l.begin(p)
	l.answer = func(w http.ResponseWriter) {
		w.WriteHeader(http.StatusBadRequest)
		w.Write([]byte(`{"error": "invalid_grant"}`)) // the client says
	}
	clock := time.Now()
	p.now = func() time.Time { return clock }
	for range 3 * sourceBurst {
		p.Finish(t.Context(), "192.0.2.1", answer, cookie) // it is refused
	}
	if n := l.asked.Load(); n != sourceBurst {
		t.Errorf("one stranger had the provider asked %d times at once, want %d", n, sourceBurst)
	}
	for i := range 3 * askBurst {
		p.Finish(t.Context(), fmt.Sprintf("198.51.100.%d", i), answer, cookie) // it is refused
	}
	if n := l.asked.Load(); n != askBurst {
		t.Errorf("the provider was asked %d times at once, want %d", n, askBurst)
	}
	if _, err := p.Finish(t.Context(), "203.0.113.1", answer, cookie); connect.CodeOf(err) != connect.CodeResourceExhausted {
		t.Errorf("one more: %v", err)
	}
}

// One stranger, who begins sign-ins without end and brings codes, keeps nobody else from signing in.
func TestOneSourceKeepsNobodyOut(t *testing.T) {
	l := newLiar(t)
	p := l.provider()
	clock := time.Now()
	p.now = func() time.Time { return clock }
	answer, cookie := l.begin(p)
	l.claims["nonce"] = "x"
	for range 3 * askBurst {
		if _, _, err := p.Begin(t.Context()); err != nil {
			t.Fatalf("a beginning: %v", err)
		}
		p.Finish(t.Context(), "192.0.2.1", answer, cookie) // it is refused
	}
	answer, cookie = l.begin(p)
	if who, err := p.Finish(t.Context(), "198.51.100.7", answer, cookie); err != nil || who.Subject == "" {
		t.Errorf("a user meanwhile: %+v, %v", who, err)
	}
}

// A configuration that would sign nobody in, or tell others, is refused with what to do.
func TestConfigurationsAreChecked(t *testing.T) {
	l := newLiar(t)
	empty := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Config){
		"--oidc-issuer":                  func(c *Config) { c.Issuer = "http://login.example" },
		"must be https":                  func(c *Config) { c.Issuer = "login.example" },
		"--oidc-client-id is missing":    func(c *Config) { c.ClientID = "" },
		"--oidc-group is missing":        func(c *Config) { c.Groups = nil },
		"GROUP=ROLE":                     func(c *Config) { c.Groups = []string{"netops"} },
		"must be viewer":                 func(c *Config) { c.Groups = []string{"netops=root"} },
		"name of a tenant":               func(c *Config) { c.Groups = []string{"netops=viewer@"} },
		"--oidc-redirect-url":            func(c *Config) { c.RedirectURL = "https://m1/elsewhere" },
		"by the name that browsers open": func(c *Config) { c.RedirectURL = "https://0.0.0.0:7400" + CallbackPath },
		"--oidc-client-secret-file":      func(c *Config) { c.SecretFile = "missing" },
		"--oidc-ca-file":                 func(c *Config) { c.CAFile = "missing" },
		"there is no certificate":        func(c *Config) { c.CAFile = empty },
	} {
		cfg := l.provider().cfg
		change(&cfg)
		if _, err := New(cfg, "", time.Now); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
	if p, err := New(Config{}, "", time.Now); p != nil || err != nil {
		t.Errorf("without an issuer: %v, %v", p, err)
	}
}
